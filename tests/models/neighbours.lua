-- Blocks that read the weight of the block before them.
local nn = require "nn"
return model {
  name = "neighbours",
  axes = { seq = 8, model = 16, ffn = 16, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local W
    for i = 1, m.layers do
      x = m:block(i, function()
        if i % 2 == 1 then
          local a = m:param("a", { "model", "ffn" }, { std = 0.2 })
          local b = m:param("b", { "ffn", "model" }, { std = 0.2 })
          W = m:param("w", { "model", "ffn" }, { std = 0.2 })
          local h = ops.matmul{ ops.tanh{ ops.matmul{ x, a, over = "model" } }, b, over="ffn" }
          local g = ops.tanh{ ops.matmul{ h, W, over = "model" } }
          return x + ops.matmul{ g, b, over = "ffn" }
        end
        local h = ops.tanh{ ops.matmul{ x, W, over = "model" } }
        local c = m:param("c", { "ffn", "model" }, { std = 0.2 })
        return x + ops.matmul{ h, c, over = "ffn" }
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
