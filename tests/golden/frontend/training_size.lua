-- A field of the model's in `training`.
return model{
  name = "size", axes = { seq = 4, vocab = 8, model = 4 }, layers = 1, training = { size = "big" },
  loss = function(m, tokens, labels) end,
}
