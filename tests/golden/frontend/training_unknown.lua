-- A setting that no training has.
return model{
  name = "unknown", axes = { seq = 4, vocab = 8, model = 4 }, layers = 1,
  training = require "nn".training{ betta = 0.5 },
  loss = function(m, tokens, labels) end,
}
