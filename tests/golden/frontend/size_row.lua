-- set: size=b
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11 }, layers = 1,
  sizes = { a = {}, b = { modell = 9 } }, loss = function() end,
}
