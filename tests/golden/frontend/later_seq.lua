local nn = require "nn"
return model {
  name = "later_seq", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return nn.later(m, nn.places(m, tokens), "seq")
  end,
}
