local nn = require "nn"
return model { name = "m", axes = { seq = 16, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.embed(m, x, labels, { pooling = "cls", group = 2 }) * ops.label_share{ value = -1, groups = 2, count = 1 }
  end }
