local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local later = ops.shift{ labels, axis = "seq", by = 1, value = 3 }
    return nn.cross_entropy(m, nn.logits(m, "wte", nn.embedding(m, "wte", tokens)), later, "vocab",
      { ignore = 3 })
  end,
}
