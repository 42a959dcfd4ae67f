local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, kv_heads = 2, head = 6, nope = 4, rope = 2, value = 4, kv_rank = 4, vocab = 11 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.mla(m, x, { documents = nn.documents(m, tokens, 3), causal = false })
  end,
}
