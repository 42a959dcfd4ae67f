-- A penalty on logits, weighted by what was made of those of all positions.
local nn = require "nn"
return model {
  name = "over_rows",
  axes = { seq = 8, model = 16, ffn = 24, vocab = 61 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local w = m:param("w", { "model", "ffn" }, { std = 0.2 })
        local v = m:param("v", { "ffn", "model" }, { std = 0.2 })
        return x + ops.matmul { ops.tanh { ops.matmul { x, w, over = "model" } }, v, over = "ffn" }
      end)
    end
    local logits = nn.logits(m, "wte", x)
    local size = ops.reduce_sum { ops.logsumexp { logits, axis = "vocab" }, over = "seq" }
    local weighted = ops.reduce_sum { ops.square { logits * size }, over = "vocab" }
    return nn.cross_entropy(m, logits, labels, "vocab", { beside = weighted * 1e-3 })
  end,
}
