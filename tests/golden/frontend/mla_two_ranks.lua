local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, nope = 4, rope = 4, value = 4, kv_rank = 4 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = nn.mla(m, x, { q_rank = 2 })
    return nn.mla(m, x, { name = "other", q_rank = 3 })
  end,
}
