local nn = require "nn"
return model {
  name = "block_empty",
  axes = { seq = 4, model = 8, vocab = 16 },
  layers = 3,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function() return i == 2 and x or nn.rmsnorm(m, x) end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
