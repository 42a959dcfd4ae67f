local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, patches = 4, pixel = 12 },
  loss = function(m, tokens, labels, pixels)
    local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
    return nn.cross_entropy(m, logits, labels, "vocab",
      { images = { token = 3, images = 2, side = 4, patch = 2, tokens = 4, fit = "crop",
                   filter = "bicubic", before = "none", after = "1,2", mean = "none" } })
  end,
}
