local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, state_groups = 2, state_heads = 1, state_keys = 4, state_values = 4 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    x = x + nn.kimi_delta(m, x, { rank = 0 })
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab")
  end,
}
