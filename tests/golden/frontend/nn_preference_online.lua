local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.preference(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab",
      { kind = "kto", online = true })
  end }
