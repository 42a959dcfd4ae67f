-- What ops.stop_gradient holds, and the ops with a corner: two blocks that do not learn, which leaves
-- the table's use before them without a gradient, and two whose weights are rounded straight
-- through.
local nn = require "nn"

return model {
  name = "held",
  axes = { seq = 8, model = 16, heads = 4, kv_heads = 2, vocab = 31 },
  layers = 4,
  optimizer = { kind = "adamw", lr = 1e-3, eps = 1e-6, weight_decay = 0.1, max_norm = 1.0 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", { std = 0.3 })
      + ops.stop_gradient{ m:param("places", { "seq", "model" }, { std = 0.5 }) }
    for i = 1, m.layers do
      x = m:block(i, function()
        if i <= 2 then return ops.stop_gradient{ x + nn.mlp(m, nn.rmsnorm(m, x), { std = 0.2 }) } end
        x = x + nn.attention(m, nn.layernorm(m, x), { qk_norm = true, scale = 0.7, std = 0.2 })
        local w = m:param("w", { "model", "ffn" }, { std = 0.3 })
        local rounded = w + ops.stop_gradient{ ops.round{ w * 8 } / 8 - w }
        local h = nn.clamp(ops.matmul{ nn.rmsnorm(m, x), rounded, over = "model" }, -0.9, 1.1)
        local g = ops.minimum{ ops.abs{ h }, h * 0.5 + ops.sign{ h } * 0.1 }
        return x + nn.linear(m, g, "ffn", "model", { weight = "down", std = 0.2 })
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", nn.rmsnorm(m, x)), labels)
  end,
}
