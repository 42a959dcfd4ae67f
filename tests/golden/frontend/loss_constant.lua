local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    m:output("logits", nn.logits(m, "wte", nn.embedding(m, "wte", tokens)))
    return ops.const{ value = 3 }
  end,
}
