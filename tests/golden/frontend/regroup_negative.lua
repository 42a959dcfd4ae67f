return model {
  name = "small", axes = { seq = 8, model = 8, vocab = 11, rows = 88 },
  loss = function(m, tokens, labels)
    local w = m:param("w", { "model", "vocab" })
    return ops.regroup{ w, over = { "model", "vocab" }, to = "rows", count = -1 }
  end,
}
