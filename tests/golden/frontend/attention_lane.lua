local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return ops.attention{ x, x, x, seq = "seq", head = "head", causal = true, scale = 1,
                          p = 0.5, first = 0, count = 2 }
  end,
}
