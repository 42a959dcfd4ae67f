local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local logits = nn.logits(m, "wte", x)
    return nn.cross_entropy(m, logits, labels, "vocab",
      { z = -1 })
  end,
}
