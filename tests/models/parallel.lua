-- Attention and mlp side by side (GPT-J, PaLM), added to the residual stream one after the other:
-- with several tensor ranks one message completes both, forward, and one their gradients.
local nn = require "nn"
return model {
  name = "parallel",
  axes = { seq = 8, model = 16, heads = 4, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local y = nn.rmsnorm(m, x)
        local attended = nn.attention(m, y, { bias = i % 2 == 0 })
        return x + attended + nn.mlp(m, y)
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", nn.rmsnorm(m, x)), labels)
  end,
}
