return model { name = "small", axes = { seq = 8, vocab = 11 }, block = 3, loss = function() end }
