return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, rows = 3, columns = 3 },
  loss = function(m, tokens, labels)
    return ops.regroup{ m:param("w", { "model", "vocab" }), over = "model", to = { "rows", "columns" } }
  end,
}
