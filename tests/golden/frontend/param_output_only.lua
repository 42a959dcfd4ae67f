local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local logits = nn.logits(m, "wte", nn.embedding(m, "wte", tokens))
    m:output("logits", logits * m:param("temperature", {}, { init = "ones" }))
    local each = ops.cross_entropy{ logits, labels, axis = "vocab" }
    return ops.reduce_sum{ each, over = each.axes } / (m.batch * m.seq)
  end,
}
