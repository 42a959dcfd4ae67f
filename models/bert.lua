-- BERT: an encoder, in which every position sees all others, that says hidden tokens
-- (Devlin et al. 2018), or tells what texts are. There is no sentence to guess after another:
-- RoBERTa's objective (Liu et al. 2019). With `types` and `transform`, as the published sizes have
-- them, it is their model; hidden tokens are all of the first type. DistilBERT has no types.
--
--   perilune train models/bert.lua --data text.txt
local nn = require "nn"

return model {
  name = "bert",
  axes = { seq = 64, model = 128, heads = 4, vocab = 257 },
  layers = 4,
  mask_rate = 0.15,   -- share of the tokens that are to be said
  mask_token = 256,   -- the token that hides one; a tokenizer's must be special
  types = 0,          -- of tokens, as of the sentences of a pair; 0: no embeddings of them
  -- RoBERTa's (1): at a text's end, with a position of its own, and seen like others. -1: none.
  pad_token = -1,
  documents = -1,     -- the token between texts: each is seen and has positions by itself; -1: none
  classes = "none", class_kind = "one", class_weights = "none", class_smoothing = 0.0, -- of texts
  embedding = "none", -- or mean, cls, last: texts get vectors that are compared (nn.embed)
  embed_group = 16, embed_negatives = 0, embed_temperature = 0.05, embed_symmetric = false,
  embed_dims = "none", embed_length = 0, -- of it
  positions = 0,      -- that embeddings' texts have, where rows are longer than one; 0: seq
  padding = 0,        -- the token behind these texts, where documents and pad_token say none
  sep_token = -1,     -- their end: what is behind the first is of the second type; -1: all of one
  pooler_act = "tanh", -- of the layer before classes; relu in DistilBERT
  transform = false,  -- a layer of its own before the output's table: norm(act(x w + b))
  norm = "layernorm", -- or rmsnorm
  norm_eps = 1e-12,
  pre_norm = false,   -- norms before attention and mlp, as in GPT, instead of after them
  act = "gelu_erf",
  dropout = 0.0, attention_dropout = 0.0, -- of embeddings and branches; of attention's weights
  size = "tiny",
  sizes = {
    tiny = {},
    -- BERT (section 3), and their vocabulary of word pieces
    base = { layers = 12, model = 768, heads = 12, seq = 512, vocab = 30522, mask_token = 103,
             types = 2, sep_token = 102, transform = true },
    large = { layers = 24, model = 1024, heads = 16, seq = 512, vocab = 30522, mask_token = 103,
              types = 2, sep_token = 102, transform = true },
    -- RoBERTa (Liu et al. 2019, table 9), whose vocabulary is byte-level BPE
    ["roberta-base"] = { layers = 12, model = 768, heads = 12, seq = 512, vocab = 50265,
                         mask_token = 50264, norm_eps = 1e-5, types = 1, pad_token = 1,
                         transform = true },
    ["roberta-large"] = { layers = 24, model = 1024, heads = 16, seq = 512, vocab = 50265,
                          mask_token = 50264, norm_eps = 1e-5, types = 1, pad_token = 1,
                          transform = true },
    -- DistilBERT (Sanh et al. 2019, arXiv 1910.01108)
    ["distilbert-base"] = { layers = 6, model = 768, heads = 12, seq = 512, vocab = 30522,
                            mask_token = 103, pooler_act = "relu", transform = true },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-6, weight_decay = 0.01,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local function norm(x, name)
      return nn.norm(m, x, "model", { kind = m.norm, name = name, eps = m.norm_eps })
    end
    -- x + layer(x), with the norm on either side of the sum
    local function add(x, name, layer)
      if m.pre_norm then return nn.residual(x, layer(norm(x, name)), m.dropout) end
      return norm(nn.residual(x, layer(x), m.dropout), name)
    end
    local pairs_end = m.classes ~= "none" and m.types > 1 and m.sep_token or -1
    local between, embeds = m.documents, m.embedding ~= "none"
    if embeds and m.classes ~= "none" then error("'classes' and 'embedding': one of them", 0) end
    if m.positions ~= 0 and not (embeds and m.positions > 0) then
      error("positions is of embedding=, a number of tokens that a text has at most", 0)
    end
    if (embeds or m.classes ~= "none") and between < 0 then
      between = m.pad_token >= 0 and m.pad_token or m.padding
    end
    local documents, places, ends =
      nn.documents(m, tokens, between, { apart = true, ends = true })
    local positions = nn.position(m, "wpe", "seq", "model",
      { places = places, rows = m.positions > 0 and m.positions or nil })
    local x = nn.embedding(m, "wte", tokens, "vocab", "model") + positions
    if m.pad_token >= 0 then -- whose position is the last row before the first one's
      m:axis("before", m.pad_token + 1)
      local before = m:param("wpe_before", { "before", "model" }, { init = "zeros", frozen = 1 })
      local none = ops.narrow{ before, axis = "before", first = m.pad_token }
      x = x + ops.equal{ tokens, m.pad_token } * (none - positions)
    end
    if m.types > 0 then
      m:axis("types", m.types)
      local types = m:param("types", { "types", "model" })
      local first = ops.narrow{ types, axis = "types", first = 0 }
      x = x + first
      if pairs_end >= 0 then -- the second text is behind the first end
        local parts = nn.documents(m, tokens, pairs_end)
        local second = ops.narrow{ types, axis = "types", first = 1 }
        x = x + ops.less{ documents, parts } * (second - first)
      end
    end
    if not m.pre_norm then x = norm(x, "ln_e") end
    x = nn.dropout(x, m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        x = add(x, "ln1", function(y)
          return nn.attention(m, y,
            { bias = true, causal = false, documents = documents, document_ends = ends,
              dropout = m.attention_dropout })
        end)
        return add(x, "ln2", function(y) return nn.mlp(m, y, { act = m.act }) end)
      end)
    end
    if m.pre_norm then x = norm(x, "ln_f") end
    if embeds then
      return nn.embed_as_set(m, x, labels, { starts = documents, pad = between,
        longest = m.positions })
    end
    if m.classes ~= "none" then -- as published: of the first token, through a layer of its own
      return nn.classify(m, x, labels, { classes = m.classes, first = true, pad = between,
        between = m.pad_token >= 0 and 2 or 1, eos = pairs_end >= 0 and pairs_end or nil,
        pooled = true, pooler_act = m.pooler_act, bias = true, dropout = m.dropout })
    end
    if m.transform then
      m:axis("transformed", m.model)
      x = nn.linear(m, x, "model", "transformed", { weight = "head.w", bias = "head.b" })
      x = norm(ops.rename{ nn.activation(x, m.act), axis = "transformed", to = "model" }, "ln_h")
    end
    local logits = nn.logits(m, "wte", x, "vocab", "model")
      + m:param("bias", "vocab", { init = "zeros", decay = 0 })
    return nn.cross_entropy(m, logits, labels, "vocab",
      { masked_lm = { rate = m.mask_rate, mask = m.mask_token } })
  end,
}
