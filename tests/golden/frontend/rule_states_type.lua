return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = { 3 },
    update = function(o, w, g, s, t)
      return w, {}
    end,
  },
  loss = function() end,
}
