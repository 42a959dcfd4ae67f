local nn = require "nn"
return model {
  name = "param_batch",
  axes = { seq = 4, model = 8, vocab = 16 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) * m:param("scale", { "batch", "seq" })
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
