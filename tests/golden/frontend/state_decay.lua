local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, state_groups = 2, state_heads = 3, state_keys = 4, state_values = 5 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    local q = nn.linear(m, x, "model", { "state_groups", "state_keys" }, { weight = "q" })
    local v = nn.linear(m, x, "model", { "state_groups", "state_heads", "state_values" }, { weight = "v" })
    local g = nn.linear(m, x, "model", { "state_groups" }, { weight = "g" })
    local y = ops.linear_attention{ q, q, v, g, seq = "seq", head = "state_keys", scale = 1 }
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab")
  end,
}
