local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  classes = "2", policy = "grpo", preference = "none", masked = false, documents = -1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.decoder_loss(m, x, labels,
      function(x) return nn.logits(m, "wte", x, "vocab", "model") end)
  end }
