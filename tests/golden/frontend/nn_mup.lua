-- Four times the width of the recipe's model: hidden weights and the head have other rates.
local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, vocab = 11, model = 16, heads = 2, ffn = 32 },
  layers = 1, init_std = 0.02, mup = 4, tied = false,
  loss = function(m, tokens, labels)
    local mup = nn.mup(m)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", mup.table)
    x = m:block(1, function()
      x = x + nn.attention(m, x, mup.hidden)
      return x + nn.mlp(m, x, mup.hidden)
    end)
    return nn.cross_entropy(m, nn.logits(m, "head", x, "vocab", "model", mup.head), labels, "vocab")
  end,
}
