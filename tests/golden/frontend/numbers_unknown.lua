local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    local rewards = m:numbers("rewards")
    return ops.reduce_mean{ ops.reduce_mean{ rewards, over = "seq" }, over = "batch" }
  end }
