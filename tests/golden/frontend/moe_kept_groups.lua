local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, experts = 6, expert_ffn = 8 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return nn.moe(m, x, { groups = 3, kept_groups = 1, top_k = 3 })
  end,
}
