local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, heads = 2, head = 4, value = 300 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    return ops.attention{ ops.matmul{ x, m:param("q", { "model", "heads", "head" }), over = "model" },
      ops.matmul{ x, m:param("k", { "model", "heads", "head" }), over = "model" },
      ops.matmul{ x, m:param("v", { "model", "heads", "value" }), over = "model" },
      seq = "seq", head = "head", causal = 1, scale = 1 }
  end,
}
