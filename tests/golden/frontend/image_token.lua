local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.place_images(m, x, x, tokens, -1)
  end,
}
