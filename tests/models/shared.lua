-- Blocks that use each other's weights: neighbours in pairs (MobileLLM), all of them the first
-- one's norm, and the head the last one's projection.
local nn = require "nn"
return model {
  name = "shared",
  axes = { seq = 8, model = 16, ffn = 24, vocab = 61 },
  layers = 4,
  size = "small",
  sizes = { small = {}, wide = { seq = 64, model = 256, ffn = 1024, vocab = 512, layers = 12 } },
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local gain, up, down
    for i = 1, m.layers do
      x = m:block(i, function()
        gain = gain or m:param("gain", "model", { init = "ones" })
        if i % 2 == 1 then
          up = m:param("up", { "model", "ffn" }, { std = 0.2 })
          down = m:param("down", { "ffn", "model" }, { std = 0.2 })
        end
        local h = ops.rmsnorm { x, gain, axis = "model", eps = 1e-5 }
        h = ops.gelu { ops.matmul { h, up, over = "model" } }
        return x + ops.matmul { h, down, over = "ffn" }
      end)
    end
    local h = ops.matmul { ops.tanh { ops.matmul { x, up, over = "model" } }, down, over = "ffn" }
    return nn.cross_entropy(m, nn.logits(m, "wte", x + h), labels)
  end,
}
