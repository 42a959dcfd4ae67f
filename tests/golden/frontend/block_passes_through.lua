local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function() return nn.residual(x, nn.mlp(m, x)) end)
    x = m:block(2, function()
      local unused = x * 2
      return x
    end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
