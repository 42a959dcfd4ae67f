local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    return nn.clamp(nn.embedding(m, "wte", tokens), 1, 0)
  end,
}
