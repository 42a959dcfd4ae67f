local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, vocab = 11, model = 16 }, init_std = 0.0, mup = 4,
  loss = function(m, tokens, labels)
    local mup = nn.mup(m)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model", mup.head), labels, "vocab")
  end,
}
