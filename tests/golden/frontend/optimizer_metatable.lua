return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  optimizer = setmetatable({ lr = 1e-3 }, { __index = { kind = "lion" } }),
  loss = function() end,
}
