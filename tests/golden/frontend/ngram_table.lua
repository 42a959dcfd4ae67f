local nn = require "nn"
return model {
  name = "ngram_table", axes = { seq = 8, model = 4, gram = 10, vocab = 11 },
  loss = function(m, tokens, labels)
    return nn.embedding(m, "grams", nn.ngrams(m, tokens, { size = 100 }), "gram")
  end,
}
