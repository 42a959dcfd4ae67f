return model {
  name = "block_option", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return m:block(1, function() return m:param("w", "model") end, { like = 1 })
  end,
}
