return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = { "m" },
    update = function(o, w, g, s, t)
      return w - t.lr * o.less(0, g, w), { m = g }
    end,
  },
  loss = function() end,
}
