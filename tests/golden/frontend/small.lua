local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    x = m:block(1, function()
      return nn.residual(x, nn.mlp(m, nn.rmsnorm(m, x, "model"), { act = "relu", bias = false }), 0.25)
    end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab")
  end,
}
