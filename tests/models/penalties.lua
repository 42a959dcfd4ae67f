-- Weights whose gradient has shares that depend on the batch and shares that do not: penalties
-- before and after the blocks, and a norm of the weight within each block. A penalty on the logits'
-- log-sum-exp.
local nn = require "nn"
return model {
  name = "penalties",
  axes = { seq = 8, model = 16, ffn = 24, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local early = m:param("early", { "model", "ffn" }, { std = 0.2 })
    local late = m:param("late", { "ffn", "model" }, { std = 0.2 })
    local penalty = ops.reduce_sum { ops.square { early }, over = early.axes } * 1e-2
    for i = 1, m.layers do
      x = m:block(i, function()
        local w = m:param("w", { "model", "ffn" }, { std = 0.2 })
        local norm = ops.rsqrt { ops.reduce_sum { ops.square { w }, over = "model" } + 1e-3 }
        local h = ops.matmul { x, w, over = "model" } * norm
        h = ops.tanh { h + ops.matmul { x, early, over = "model" } }
        return x + ops.matmul { h, late, over = "ffn" }
      end)
    end
    penalty = penalty + ops.reduce_sum { ops.square { late }, over = late.axes } * 1e-2
    local logits = nn.logits(m, "wte", x)
    return nn.cross_entropy(m, logits, labels, "vocab", { z = 1e-2 }) + penalty
  end,
}
