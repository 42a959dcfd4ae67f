local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return ops.reduce_sum{ x, over = { "batch", "seq", "model" } } / ops.label_share{ value = -1, first = 1 }
  end }
