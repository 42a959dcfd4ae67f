-- T5: an encoder that reads one text and a decoder that writes another, with relative positions
-- (Raffel et al. 2020), and its version 1.1 (Shazeer 2020): gated, the output's table its own. The
-- data hide spans of a text that the decoder is to say, or have prompts and completions.
--
--   perilune train models/t5.lua --data text.txt
local nn = require "nn"

-- What all published sizes have: the vocabulary's 100 sentinels are 32099 and below, and 28 rows
-- are spare.
local function published(size)
  size.source, size.seq, size.vocab, size.sentinel = 512, 114, 32128, 32099
  return size
end

-- And those of version 1.1.
local function gated(size)
  size.act, size.tied, size.scaled = "gated_gelu", false, false
  return published(size)
end

return model {
  name = "t5",
  -- source: positions of the encoder; seq: of the decoder. Of 141 tokens spans make 128 and 29.
  axes = { source = 128, seq = 32, model = 128, heads = 4, head = 32, ffn = 512, vocab = 320 },
  layers = 3,         -- of the encoder
  decoder_layers = 0, -- 0: as many
  norm_eps = 1e-6,
  act = "relu",       -- or gated_gelu, as in 1.1: (act(x wgate) * (x wup)) wdown, not act(x w1) w2
  tied = true,        -- the output shares the embeddings' table
  scaled = true,      -- logits are divided by sqrt(model), as 1.1 does not
  buckets = 32,       -- of relative positions
  distance = 128,     -- positions apart from which on they share one
  dropout = 0.0,      -- of embeddings, weights of attention, within and after each layer, and at
                      -- the end of either stack
  start = 0,          -- the token that the decoder begins with
  pad = 0,            -- the token that fills up what the encoder reads: no one attends to it
  eos = 1,            -- the token that ends either text
  sentinel = -1,      -- the token that stands for the first hidden span, the next for the second is
                      -- one less; -1: the vocabulary's last
  noise = 0.15,       -- share of the tokens that are hidden in spans; 0: prompts and completions
  span = 3.0,         -- mean length of one
  size = "tiny",
  sizes = {
    tiny = {},
    -- T5 (section 3.7)
    small = published{ layers = 6, model = 512, heads = 8, head = 64, ffn = 2048 },
    base = published{ layers = 12, model = 768, heads = 12, head = 64, ffn = 3072 },
    large = published{ layers = 24, model = 1024, heads = 16, head = 64, ffn = 4096 },
    ["3b"] = published{ layers = 24, model = 1024, heads = 32, head = 128, ffn = 16384 },
    ["11b"] = published{ layers = 24, model = 1024, heads = 128, head = 128, ffn = 65536 },
    -- T5 1.1, which Flan-T5 has, too, from its configurations
    ["v1.1-small"] = gated{ layers = 8, model = 512, heads = 6, head = 64, ffn = 1024 },
    ["v1.1-base"] = gated{ layers = 12, model = 768, heads = 12, head = 64, ffn = 2048 },
    ["v1.1-large"] = gated{ layers = 24, model = 1024, heads = 16, head = 64, ffn = 2816 },
    ["v1.1-xl"] = gated{ layers = 24, model = 2048, heads = 32, head = 64, ffn = 5120 },
    ["v1.1-xxl"] = gated{ layers = 24, model = 4096, heads = 64, head = 64, ffn = 10240 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, weight_decay = 0.01,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels, source)
    -- Weights are drawn as Mesh-TensorFlow's T5 draws them: attention has no scale of its own.
    local wide = 1 / math.sqrt(m.model)
    if m.decoder_layers < 0 then error("decoder_layers must be 0, as many as layers, or more") end
    local n_decoder = m.decoder_layers > 0 and m.decoder_layers or m.layers
    local function norm(x, name)
      return nn.rmsnorm(m, x, "model", { name = name, eps = m.norm_eps })
    end
    local function attention(x, context, name, relative, padding)
      local y = nn.relative_attention(m, norm(x, name .. "_norm"), context,
        { name = name, relative = relative, padding = padding, scale = 1, dropout = m.dropout,
          q_std = wide / math.sqrt(m.head), std = wide,
          out_std = 1 / math.sqrt(m.heads * m.head) })
      return nn.residual(x, y, m.dropout)
    end
    local gated = m.act:match("^gated_(.*)")
    local function mlp(x)
      local o = { act = gated or m.act, dropout = m.dropout, std = wide,
                  out_std = 1 / math.sqrt(m.ffn) }
      if not gated then o.bias = false end
      local y = norm(x, "mlp_norm")
      return nn.residual(x, gated and nn.swiglu(m, y, o) or nn.mlp(m, y, o), m.dropout)
    end
    -- Made here, as parameters made within a block are of that block.
    local wte = m:param("wte", { "vocab", "model" }, { std = 1.0 })
    local last = m:param("encoder.norm_f.gain", "model", { init = "ones", decay = 0 })
    local function embed(ids) return nn.dropout(nn.embedding(m, wte, ids), m.dropout) end
    local positions = { buckets = m.buckets, distance = m.distance, std = wide }
    local near = nn.relative_positions(m, "encoder.relative", positions)
    positions.causal = true
    local past = nn.relative_positions(m, "decoder.relative", positions)
    local padding = { source, m.pad }

    local x, y = embed(source), nil
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        return mlp(attention(x, nil, "attn", near, padding))
      end)
    end
    for i = 1, n_decoder do
      x, y = m:block(m.layers + i, function()
        -- The first one ends the encoder and begins the decoder: blocks before it know neither.
        if i == 1 then
          x = ops.rmsnorm{ x, last, axis = "model", eps = m.norm_eps }
          x, y = nn.dropout(x, m.dropout), embed(tokens)
        end
        y = attention(y, nil, "attn", past)
        return x, mlp(attention(y, x, "cross", nil, padding))
      end)
    end
    y = nn.dropout(norm(y, "norm_f"), m.dropout)
    if m.scaled then y = y * wide end
    local logits = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model",
      { std = not m.tied and wide or nil })
    local data = { start = m.start, eos = m.eos, pad = m.pad }
    if m.noise ~= 0 then
      data.rate, data.span = m.noise, m.span
      data.sentinel = m.sentinel >= 0 and m.sentinel or m.vocab - 1
    end
    return nn.cross_entropy(m, logits, labels, "vocab", { from_source = data })
  end,
}
