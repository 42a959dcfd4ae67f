-- ModernBERT (Warner et al. 2024, arXiv 2412.13663): an encoder that says hidden tokens, or tells
-- what texts are. Rotary positions, norms before each branch, a gated feed-forward layer, no biases
-- inside; some layers see all of a text, the others what is near, with positions of another base.
--
--   perilune train models/modernbert.lua --data text.txt
local nn = require "nn"

return model {
  name = "modernbert",
  axes = { seq = 64, model = 128, heads = 4, ffn = 192, vocab = 257 },
  layers = 4,
  mask_rate = 0.3,    -- share of the tokens that are to be said (section 2.2.2)
  mask_token = 256,   -- the token that hides one; a tokenizer's must be special
  window = 16,        -- positions around each one that it attends to, half of them on either side
  window_layers = "FWW", -- over and over, F for a layer that sees all, W for one with the window
  rotary_base = 160000.0,
  rotary_local_base = 10000.0, -- in layers with the window
  documents = -1,     -- the token between texts: each is seen by itself; -1: none
  classes = "none", class_kind = "one", class_weights = "none", class_smoothing = 0.0, -- of texts
  embedding = "none", -- or mean, cls, last: texts get vectors that are compared (nn.embed)
  embed_group = 16, embed_negatives = 0, embed_temperature = 0.05, embed_symmetric = false,
  embed_dims = "none", embed_length = 0, -- of it
  padding = 0,        -- the token behind these texts, where documents says none; -1: none
  sep_token = -1,     -- what ends each text of a pair; -1: any that the tokenizer adds
  pooling = "first",  -- a text is told by its first token; or mean: by the mean of all its tokens
  norm_bias = false,
  norm_eps = 1e-5,
  act = "gelu_erf",   -- of the gate
  head_act = "gelu_erf", -- of the layer before the output
  decoder_bias = true, -- of the output
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  size = "tiny",
  sizes = {
    tiny = {},
    -- Table 3, and the models' configurations; words padded as published
    base = { layers = 22, model = 768, heads = 12, ffn = 1152, seq = 8192, vocab = 50368,
             mask_token = 50284, window = 128, padding = 50283, sep_token = 50282 },
    large = { layers = 28, model = 1024, heads = 16, ffn = 2624, seq = 8192, vocab = 50368,
              mask_token = 50284, window = 128, padding = 50283, sep_token = 50282 },
  },
  optimizer = {
    kind = "adamw", lr = 8e-4, beta1 = 0.9, beta2 = 0.98, eps = 1e-6, weight_decay = 1e-5,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if not m.window_layers:match("^[WF]+$") then
      error("window_layers is '" .. m.window_layers:sub(1, 40) .. "'; it is letters for layers: W "
        .. "for one with the window, F for one that sees all", 0)
    end
    if m.window < 1 then error("window must be a number of positions, at least 1", 0) end
    if m.pooling ~= "first" and m.pooling ~= "mean" then
      error("pooling is '" .. m.pooling .. "'; it can be first or mean", 0)
    end
    local function norm(x, name)
      return nn.layernorm(m, x, "model", { name = name, eps = m.norm_eps, bias = m.norm_bias })
    end
    local tells, between, embeds = m.classes ~= "none", m.documents, m.embedding ~= "none"
    if tells and embeds then error("'classes' and 'embedding': one of them", 0) end
    if (tells or embeds) and between < 0 then between = m.padding end
    if (tells or embeds) and between < 0 then
      error((tells and "classes" or "embeddings") .. " need padding, the token behind texts", 0)
    end
    local documents, _, ends = nn.documents(m, tokens, between, { apart = true, ends = true })
    local x = nn.dropout(norm(nn.embedding(m, "wte", tokens, "vocab", "model"), "ln_e"), m.dropout)
    for i = 1, m.layers do
      local at = (i - 1) % #m.window_layers + 1
      local near = m.window_layers:sub(at, at) == "W"
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        local y = nn.attention(m, i > 1 and norm(x, "ln1") or x, -- the first reads normed ones
          { causal = false, window = near and m.window // 2 + 1 or nil, documents = documents,
            document_ends = ends, rotary = near and m.rotary_local_base or m.rotary_base })
        x = nn.residual(x, y, m.dropout)
        return nn.residual(x, nn.swiglu(m, norm(x, "ln2"), { act = m.act }), m.dropout)
      end)
    end
    x = norm(x, "ln_f")
    if embeds then return nn.embed_as_set(m, x, labels, { starts = documents, pad = between }) end
    if tells and m.pooling == "mean" then x = nn.document_mean(m, x, documents) end
    m:axis("transformed", m.model)
    x = nn.activation(nn.linear(m, x, "model", "transformed", { weight = "head.w" }), m.head_act)
    x = norm(ops.rename{ x, axis = "transformed", to = "model" }, "ln_h")
    if tells then
      return nn.classify(m, x, labels, { classes = m.classes, first = true, pad = between,
        eos = m.sep_token >= 0 and m.sep_token or nil, bias = true, dropout = m.dropout })
    end
    local logits = nn.logits(m, "wte", x, "vocab", "model")
    if m.decoder_bias then
      logits = logits + m:param("bias", "vocab", { init = "zeros", decay = 0 })
    end
    return nn.cross_entropy(m, logits, labels, "vocab",
      { masked_lm = { rate = m.mask_rate, mask = m.mask_token } })
  end,
}
