local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, loss = function(m, tokens, labels)
  local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
  local loss = nn.cross_entropy(m, logits, labels)
  return nn.distill(m, loss, logits, labels, "vocab", { alpha = 2 })
end }
