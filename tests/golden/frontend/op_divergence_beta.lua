local nn = require "nn"
return model { name = "m", axes = { seq = 4, model = 8, vocab = 16 }, loss = function(m, tokens, labels)
  local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
  local each = ops.divergence{ logits, m:teacher(), axis = "vocab", beta = 2 }
  return nn.cross_entropy(m, logits, labels) + ops.reduce_sum{ each, over = each.axes }
end }
