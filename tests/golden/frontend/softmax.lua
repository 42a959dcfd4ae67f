-- Along the last axis and another one; a square matrix.
local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local y = nn.linear(m, nn.softmax(x, "model"), "model", { "heads", "head" })
    x = x + nn.linear(m, nn.softmax(y, "heads"), { "heads", "head" }, "model", { weight = "o" })
    m:axis("turned", m.model)
    x = ops.rename{ nn.linear(m, x, "model", "turned", { weight = "q" }), axis = "turned", to = "model" }
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
