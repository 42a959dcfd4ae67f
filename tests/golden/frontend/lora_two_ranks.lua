local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = nn.attention(m, x, { lora = { rank = 2 } })
    return nn.attention(m, x, { name = "other", lora = { rank = 3 } })
  end,
}
