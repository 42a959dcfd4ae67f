local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    local worth = ops.reduce_sum{ m:numbers("advantages") + m:numbers("advantages"), over = "seq" }
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab",
      { beside = worth })
  end }
