local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, heads = 2 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = x + nn.attention(m, x, { rotary = { factors = "1,-2" } })
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
