return model {
  name = "m", axes = { seq = 4, vocab = 7, model = 8 },
  loss = function(m, tokens, labels)
    local words, logprobs = m:stored(8)
    return 0
  end,
}
