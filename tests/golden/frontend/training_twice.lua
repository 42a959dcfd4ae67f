-- A setting in `training` and beside it.
return model{
  name = "twice", axes = { seq = 4, vocab = 8, model = 4 }, layers = 1, beta = 0.2,
  training = require "nn".training{ beta = 0.5 },
  loss = function(m, tokens, labels) end,
}
