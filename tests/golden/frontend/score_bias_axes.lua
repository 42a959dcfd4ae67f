local nn = require "nn"
return model {
  name = "score_bias_axes", axes = { seq = 8, model = 4, heads = 2, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.attention(m, x, { score_bias = nn.linear(m, x, "model", "kv_heads") })
  end,
}
