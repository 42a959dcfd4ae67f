local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, heads = 2, nope = 4, rope = 2, head = 4, value = 4, kv_rank = 6 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.mla(m, x)
  end,
}
