return model { name = "small", axes = { seq = 8, vocab = 11 }, lose = function() end }
