-- Llama: a decoder with rotary positions, grouped-query attention, RMSNorm and SwiGLU
-- (Touvron et al. 2023; Dubey et al. 2024).
--
--   perilune plan models/llama.lua --set size=8b ...
local nn = require "nn"

return model {
  name = "llama",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 344, vocab = 256 },
  layers = 4,
  norm_eps = 1e-5,
  act = "silu",
  qk_norm = false,    -- rmsnorm of each head's q and k, as in Qwen3
  window = 0,         -- positions that each one attends to, as in Mistral (4096 in its 7B); 0: all
  rotary_base = 10000.0,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  size = "tiny",
  sizes = {
    tiny = {},
    -- Llama 3.2 1B, from its model card and configuration. Rotary angles are those of the base: the
    -- published models also stretch them for contexts beyond 8192 tokens.
    ["1b"] = { layers = 16, model = 2048, heads = 32, kv_heads = 8, ffn = 8192, seq = 8192,
               vocab = 128256, rotary_base = 500000.0, tied = true },
    -- Llama 3 and 3.1 (Dubey et al. 2024, table 3); trained on 8192 tokens before long contexts
    ["8b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 8, ffn = 14336, seq = 8192,
               vocab = 128256, rotary_base = 500000.0 },
    ["70b"] = { layers = 80, model = 8192, heads = 64, kv_heads = 8, ffn = 28672, seq = 8192,
                vocab = 128256, rotary_base = 500000.0 },
    ["405b"] = { layers = 126, model = 16384, heads = 128, kv_heads = 8, ffn = 53248, seq = 8192,
                 vocab = 128256, rotary_base = 500000.0 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local function norm(x, name)
      return nn.rmsnorm(m, x, "model", { name = name, eps = m.norm_eps })
    end
    local x = nn.dropout(nn.embedding(m, "wte", tokens, "vocab", "model"), m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        local attention = nn.attention(m, norm(x, "norm1"),
          { rotary = m.rotary_base, qk_norm = m.qk_norm, norm_eps = m.norm_eps,
            window = m.window ~= 0 and m.window or nil })
        x = nn.residual(x, attention, m.dropout)
        return nn.residual(x, nn.swiglu(m, norm(x, "norm2"), { act = m.act }), m.dropout)
      end)
    end
    local logits = nn.logits(m, m.tied and "wte" or "head", norm(x, "norm_f"), "vocab", "model")
    return nn.cross_entropy(m, logits, labels, "vocab")
  end,
}
