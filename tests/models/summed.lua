-- Two weights are added before they are multiplied by: both have the same gradient.
local nn = require "nn"
return model {
  name = "summed",
  axes = { seq = 8, model = 16, ffn = 16, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
          local a = m:param("a", { "model", "ffn" }, { std = 0.2 })
          local a2 = m:param("a2", { "model", "ffn" }, { std = 0.2 })
          local b = m:param("b", { "ffn", "model" }, { std = 0.2 })
          local h = ops.matmul{ ops.tanh{ ops.matmul{ x, a + a2, over = "model" } }, b, over="ffn" }
          return x + h
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
