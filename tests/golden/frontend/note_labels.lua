local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function() return nn.residual(x, nn.mlp(m, x)) end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), tokens)
  end,
}
