-- set: freeze=!blocks.1.w?,*.gain
local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, ffn = 16, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    m:freeze("blocks.*.w*, wte")
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    for i = 1, m.layers do
      x = m:block(i, function()
        local h = nn.linear(m, nn.rmsnorm(m, x, "model"), "model", "ffn", { weight = "w1" })
        return x + nn.linear(m, h, "ffn", "model", { weight = "w2" })
      end)
    end
    local logits = nn.logits(m, "head", x, "vocab", "model", { frozen = 1 })
    return nn.cross_entropy(m, logits, labels)
  end,
}
