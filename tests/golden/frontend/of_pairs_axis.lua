return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = ops.embedding{ tokens, m:param("wte", { "vocab", "model" }), axis = "vocab" }
    return ops.reduce_sum{ ops.of_pairs{ x, axis = "seq", from = 0, into = 1 },
      over = { "batch", "seq", "model" } }
  end }
