local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11, part = 4 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return ops.narrow{ x, axis = "model", to = "part", first = 0, padded = "seq", length = 5 }
  end,
}
