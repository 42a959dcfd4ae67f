local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, experts = 6 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local w = m:param("w", "experts", { balance = 1 })
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
      + ops.reduce_sum{ w, over = "experts" }
  end,
}
