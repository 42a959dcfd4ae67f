local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", { decay = "often" })
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels)
  end,
}
