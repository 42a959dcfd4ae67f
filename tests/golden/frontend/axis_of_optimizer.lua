local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, momentum = 4, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = { kind = "sgd", lr = 0.5 },
  loss = function(m, tokens, labels)
    return nn.embedding(m, "wte", tokens)
  end,
}
