local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
    return nn.cross_entropy(m, ops.stop_gradient{ x }, labels)
  end,
}
