-- A bigram model: an embedding and its logits, no block.
local nn = require "nn"
return model {
  name = "bigram",
  axes = { seq = 16, model = 32, vocab = 64 },
  loss = function(m, tokens, labels)
    return nn.cross_entropy(m, nn.logits(m, "wte", nn.embedding(m, "wte", tokens)), labels)
  end,
}
