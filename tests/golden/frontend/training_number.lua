-- `training` that is no table.
return model{
  name = "number", axes = { seq = 4, vocab = 8, model = 4 }, layers = 1, training = 3,
  loss = function(m, tokens, labels) end,
}
