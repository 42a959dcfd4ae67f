local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      m:block(i, function() return x end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
