local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
    local mean = ops.reduce_sum{ logits, over = { "batch", "seq", "vocab" } } * 0.01
    for i = 1, 13 do m:output("mean" .. i, mean) end
    return nn.cross_entropy(m, logits, labels)
  end,
}
