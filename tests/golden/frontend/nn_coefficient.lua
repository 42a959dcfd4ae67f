local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, ffn = 16, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function() return x + nn.swiglu(m, x, { gate_scale = 0/0 }) end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
