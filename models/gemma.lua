-- Gemma 2 (Gemma Team 2024): Llama's block with a window in every other block, soft caps of scores
-- and of logits, norms before and after each branch, embeddings times sqrt(model), one table.
-- With other settings it is Gemma 1 (2024), and Gemma 3 (2025): five blocks with a window, then one
-- without, positions of another base where there is a window, norms of q and k, no soft caps.
--
--   perilune plan models/gemma.lua --set size=2b ...
local nn = require "nn"

-- What all sizes of Gemma 3 have in common.
local function gemma3(size)
  size.seq, size.full_every, size.qk_norm = 8192, 6, true
  size.rotary_base, size.rotary_local_base = 1e6, 10000.0
  size.softcap, size.logit_softcap = 0.0, 0.0
  return size
end

return model {
  name = "gemma",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 344, vocab = 256 },
  layers = 4,
  norm_eps = 1e-6,
  act = "gelu",
  norms_after = true,    -- of what each branch adds; not in Gemma 1
  window = 32,           -- positions that each one attends to, but in blocks that see all:
  full_every = 2,        -- the last one of so many does, 1, 3, 5, ...
  rotary_base = 10000.0,
  rotary_local_base = 0.0, -- in blocks with a window; 0: the same
  rotary_scaling = "none", -- of frequencies in the others, for longer contexts: linear, divided by
  rotary_factor = 8.0,
  qk_norm = false,       -- rmsnorm of each head's q and k
  attention_scale = 32,  -- scores are divided by its square root; mostly it is head
  softcap = 50.0,        -- of attention scores; 0: none
  logit_softcap = 30.0,  -- 0: none
  dropout = 0.0,         -- of the embeddings and of each residual branch; not inside attention
  documents = -1,        -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training)
  training = nn.training{ lora_targets = "q,k,v,o,gate,up,down" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- Gemma Team 2024, table 1, and the models' configurations
    ["2b"] = { layers = 26, model = 2304, heads = 8, kv_heads = 4, head = 256, ffn = 9216,
               seq = 8192, vocab = 256000, window = 4096, attention_scale = 256 },
    ["9b"] = { layers = 42, model = 3584, heads = 16, kv_heads = 8, head = 256, ffn = 14336,
               seq = 8192, vocab = 256000, window = 4096, attention_scale = 256 },
    ["27b"] = { layers = 46, model = 4608, heads = 32, kv_heads = 16, head = 128, ffn = 36864,
                seq = 8192, vocab = 256000, window = 4096, attention_scale = 144 },
    -- Gemma Team 2025 (Gemma 3), the text parts' configurations
    ["3-1b"] = gemma3{ layers = 26, model = 1152, heads = 4, kv_heads = 1, head = 256, ffn = 6912,
                       vocab = 262144, window = 512, attention_scale = 256 },
    ["3-4b"] = gemma3{ layers = 34, model = 2560, heads = 8, kv_heads = 4, head = 256, ffn = 10240,
                       vocab = 262208, window = 1024, attention_scale = 256,
                       rotary_scaling = "linear" },
    ["3-12b"] = gemma3{ layers = 48, model = 3840, heads = 16, kv_heads = 8, head = 256,
                        ffn = 15360, vocab = 262208, window = 1024, attention_scale = 256,
                        rotary_scaling = "linear" },
    ["3-27b"] = gemma3{ layers = 62, model = 5376, heads = 32, kv_heads = 16, head = 128,
                        ffn = 21504, vocab = 262208, window = 1024, attention_scale = 168,
                        rotary_scaling = "linear" },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local function norm(x, name)
      return nn.rmsnorm(m, x, "model", { name = name, eps = m.norm_eps, plus_one = true })
    end
    local function branch(x, name, f)
      local y = f(norm(x, name .. ".before"))
      if m.norms_after then y = norm(y, name .. ".after") end
      return nn.residual(x, y, m.dropout)
    end
    for _, cap in ipairs{ "softcap", "logit_softcap" } do
      if m[cap] < 0 then error(cap .. " must be 0, none, or more", 0) end
    end
    if m.full_every < 1 then error("full_every must be 1, no block has a window, or more", 0) end
    if m.rotary_local_base < 0 then error("rotary_local_base must be a base, or 0: the same", 0) end
    local whole, part = { base = m.rotary_base }, { base = m.rotary_base }
    if m.rotary_local_base > 0 then part.base = m.rotary_local_base end
    if m.rotary_scaling == "linear" then
      whole.factor = m.rotary_factor
    elseif m.rotary_scaling ~= "none" then
      error("rotary_scaling is '" .. m.rotary_scaling .. "'; it can be none or linear", 0)
    end
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    local scale = 1 / math.sqrt(m.attention_scale)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model") * math.sqrt(m.model)
    x = nn.dropout(x, m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        x = branch(x, "attn", function(y)
          local sees_all = i % m.full_every == 0
          return nn.attention(m, y, { rotary = sees_all and whole or part, scale = scale,
                                      qk_norm = m.qk_norm, qk_norm_plus_one = true,
                                      norm_eps = m.norm_eps,
                                      softcap = m.softcap > 0 and m.softcap or nil,
                                      window = not sees_all and m.window or nil,
                                      documents = documents, lora = lora })
        end)
        return branch(x, "mlp", function(y)
          return nn.swiglu(m, y, { act = m.act, lora = lora })
        end)
      end)
    end
    return nn.decoder_loss(m, norm(x, "norm_f"), labels, function(y)
      local logits = nn.logits(m, "wte", y, "vocab", "model")
      if m.logit_softcap <= 0 then return logits end
      return ops.tanh{ logits * (1 / m.logit_softcap) } * m.logit_softcap
    end)
  end,
}
