local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
    return nn.cross_entropy(m, logits, labels, "vocab", { diffusion = { mask = 4, shifted = 0 } })
  end,
}
