local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11, state_groups = 2 }, layers = 1,
  loss = function(m, tokens, labels)
    return nn.state_space(m, nn.embedding(m, "wte", tokens, "vocab", "model"))
  end,
}
