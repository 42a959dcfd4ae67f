local nn = require "nn"
return model {
  name = "small", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.document_mean(m, x, nn.documents(m, tokens, -1))
  end,
}
