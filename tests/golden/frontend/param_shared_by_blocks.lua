-- The first block's gain is read by the second one, and outside; its bias stays its own.
local nn = require "nn"
return model {
  name = "param_shared_by_blocks",
  axes = { seq = 4, model = 8, vocab = 16 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x, gain = nn.embedding(m, "wte", tokens), nil
    for i = 1, m.layers do
      x = m:block(i, function()
        gain = gain or m:param("gain", "model", { init = "ones" })
        return x * gain + m:param("bias", "model", { init = "zeros" })
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x * gain), labels)
  end,
}
