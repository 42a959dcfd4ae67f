local nn = require "nn"
return model {
  name = "small",
  axes = { seq = 8, model = 8, heads = 2, vocab = 11, experts = 4, expert_ffn = 8 },
  layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = nn.moe(m, x)
    return nn.moe(m, x, { name = "other", capacity = 0.5 })
  end,
}
