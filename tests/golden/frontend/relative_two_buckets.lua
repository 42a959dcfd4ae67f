local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    nn.relative_positions(m, "a")
    return nn.relative_positions(m, "b", { buckets = 16 })
  end,
}
