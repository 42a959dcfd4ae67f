return model {
  name = "block_weights_axes", axes = { seq = 8, model = 4, wide = 8, vocab = 11 },
  loss = function(m, tokens, labels)
    m:block(1, function() return m:param("w", "model") end)
    return m:block(2, function() return m:param("w", "wide") end, { weights = 1 })
  end,
}
