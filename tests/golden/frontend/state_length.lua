-- set: state_values=257
local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, state_groups = 2, state_heads = 3,
           state_keys = 4, state_values = 5 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    return nn.state_space(m, x)
  end,
}
