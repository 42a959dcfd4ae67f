local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1, lr = 3,
  optimizer = { kind = "sgd", lr = 0.5 },
  loss = function(m, tokens, labels)
    return nn.embedding(m, "wte", tokens)
  end,
}
