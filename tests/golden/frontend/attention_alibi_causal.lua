local nn = require "nn"
return model {
  name = "attention_alibi_causal", axes = { seq = 8, model = 4, heads = 2, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.attention(m, x, { causal = false, alibi = nn.places(m, tokens) })
  end,
}
