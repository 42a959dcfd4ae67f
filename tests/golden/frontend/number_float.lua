return model {
  name = "number_float", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return ops.number{ m:param("w", "model") }
  end,
}
