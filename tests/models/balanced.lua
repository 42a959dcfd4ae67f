-- A parameter that moves by counts, along an axis that t divides.
local nn = require "nn"
return model {
  name = "balanced",
  axes = { seq = 8, model = 16, heads = 4, vocab = 61 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local b = m:param("b", "heads", { init = "zeros", decay = 0, balance = 0.01 })
        local y = nn.linear(m, x, "model", "heads", { weight = "up" })
        m:tally(b, ops.less{ y, y * 0.0 + b })
        return x + nn.linear(m, ops.tanh{ y + b }, "heads", "model", { weight = "down" })
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
