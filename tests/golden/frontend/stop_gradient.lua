local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local fixed = ops.stop_gradient{ m:param("fixed", { "vocab", "model" }) } -- on purpose
    x = x + ops.stop_gradient{ ops.round{ x } - x } + ops.embedding{ tokens, fixed, axis = "vocab" }
    x = nn.clamp(ops.minimum{ ops.abs{ x }, ops.sign{ x } }, -1, 1)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
