-- set: optimizer=adopt
require("optim").trace = function() return "t0=add(i0,i9) -> t0", "n4=pow" end
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function() end,
}
