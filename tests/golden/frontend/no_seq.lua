return model { name = "small", axes = { model = 8, vocab = 11 }, loss = function() end }
