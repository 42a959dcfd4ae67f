local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local function layer()
      nn.residual(x, nn.mlp(m, nn.rmsnorm(m, x)))
    end
    for i = 1, m.layers do
      x = m:block(i, layer)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
