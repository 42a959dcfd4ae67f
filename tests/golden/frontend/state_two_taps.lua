local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, state_groups = 2, state_heads = 3, state_keys = 4, state_values = 5 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = nn.state_space(m, x)
    return nn.delta_net(m, x, { taps = 2 })
  end,
}
