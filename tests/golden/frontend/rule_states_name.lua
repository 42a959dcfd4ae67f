return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = { "ema" },
    update = function(o, w, g, s, t)
      return w, {}
    end,
  },
  loss = function() end,
}
