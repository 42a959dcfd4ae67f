local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, kv_heads = 2, head = 4, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return ops.documents{ tokens, axis = "seq", separator = 3, apart = 2 }
  end,
}
