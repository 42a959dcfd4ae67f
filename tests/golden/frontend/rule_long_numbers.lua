return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = { "m" },
    update = function(o, w, g, s, t)
      local x = t.lr
      for i = 1, 100 do x = x + i end
      return w - x * g, { m = g }
    end,
  },
  loss = function() end,
}
