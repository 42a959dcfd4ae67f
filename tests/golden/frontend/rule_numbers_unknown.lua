return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    kind = "ademamix", alpha = 8, beta4 = 0.5,
  },
  loss = function() end,
}
