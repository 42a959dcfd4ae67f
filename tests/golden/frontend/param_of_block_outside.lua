local nn = require "nn"
return model {
  name = "param_of_block_outside",
  axes = { seq = 4, model = 8, vocab = 16 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) * m:param("blocks.0.gain", "model", { init = "ones" })
    x = m:block(1, function() return x * m:param("gain", "model", { init = "ones" }) end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
