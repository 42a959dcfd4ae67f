local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, experts = 6 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return m:tally(m:param("w", "experts", { balance = 1 }), x)
  end,
}
