local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    local w = m:param("w", { "model", "ffn" })
    local y = ops.matmul{ x, w, over = "model" }
    return ops.matmul{ y, w, over = "model" }
  end,
}
