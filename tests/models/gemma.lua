-- As Gemma 2 (Gemma Team 2024): a window in every other block, soft caps of scores and of logits,
-- norms before and after each branch, embeddings times sqrt(model), one table.
local nn = require "nn"
return model {
  name = "gemma",
  axes = { seq = 16, model = 16, heads = 4, kv_heads = 2, ffn = 24, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) * math.sqrt(m.model)
    local function branch(name, f)
      local y = f(nn.rmsnorm(m, x, "model", { name = name .. ".before" }))
      return nn.rmsnorm(m, y, "model", { name = name .. ".after" })
    end
    for i = 1, m.layers do
      x = m:block(i, function()
        x = x + branch("attn", function(y)
          local window = i % 2 == 1 and 5 or nil
          return nn.attention(m, y, { rotary = 10000, softcap = 1.5, window = window, std = 0.3 })
        end)
        return x + branch("mlp", function(y) return nn.swiglu(m, y, { act = "gelu" }) end)
      end)
    end
    local logits = nn.logits(m, "wte", nn.rmsnorm(m, x))
    return nn.cross_entropy(m, ops.tanh { logits * (1 / 30) } * 30, labels)
  end,
}
