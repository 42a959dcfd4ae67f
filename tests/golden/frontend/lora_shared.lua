local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, ffn = 16, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    x = x + nn.swiglu(m, x, { lora = { rank = 2, alpha = 6, dropout = 0.1, targets = "gate+up" } })
    return nn.cross_entropy(m, nn.logits(m, "head", x, "vocab", "model"), labels)
  end,
}
