-- A loss that label 2 is left out of, for tests of what the mean is over.
local nn = require "nn"
return model {
  name = "masked", layers = 4,
  axes = { seq = 8, model = 16, ffn = 24, vocab = 16 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", { std = 0.5 })
    for i = 1, m.layers do
      x = m:block(i, function() return x + nn.mlp(m, nn.rmsnorm(m, x)) end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels, "vocab", { ignore = 2 })
  end,
}
