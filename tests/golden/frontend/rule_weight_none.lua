return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = {
    states = {},
    update = function(o, w, g, s, t)
      local x = w - g
    end,
  },
  loss = function() end,
}
