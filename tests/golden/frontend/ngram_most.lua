local nn = require "nn"
return model {
  name = "ngram_most", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    return nn.ngrams(m, tokens, { n = 17, size = 100 })
  end,
}
