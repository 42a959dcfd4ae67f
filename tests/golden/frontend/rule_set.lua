-- set: sigma=3
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = { "m" }, rho = 0.5,
    update = function(o, w, g, s, t)
      return w - t.rho * g, { m = g }
    end,
  },
  loss = function() end,
}
