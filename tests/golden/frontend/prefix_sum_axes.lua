local nn = require "nn"
return model {
  name = "prefix_sum_axes", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return nn.prefix_sum(m, m:param("w", { "seq", "model" }))
  end,
}
