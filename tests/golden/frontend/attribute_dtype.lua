local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = ops.matmul{ x, m:param("w", { "model", "ffn" }), over = "model", dtype = "f32" }
    return ops.reduce_sum{ x, over = "ffn", dtype = "bf16" }
  end,
}
