return model {
  name = "block_weights_later", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return m:block(1, function() return m:param("w", "model") end, { weights = 1 })
  end,
}
