local nn = require "nn"
return model {
  name = "attention_bias_scale", axes = { seq = 8, model = 4, heads = 2, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.attention(m, x, { forget = true, scale = 0 })
  end,
}
