-- A penalty on logits, weighted by what was made of all of a position's: they are read twice, with
-- something in between.
local nn = require "nn"
return model {
  name = "twice",
  axes = { seq = 8, model = 16, vocab = 61 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function() return x * m:param("w", { "model" }, { init = "ones" }) end)
    local logits = nn.logits(m, "wte", x)
    local size = ops.sigmoid { ops.logsumexp { logits, axis = "vocab" } }
    local squares = ops.square { logits * size }
    local weighted = ops.reduce_sum { squares, over = { "batch", "seq", "vocab" } }
    return nn.cross_entropy(m, logits, labels) + weighted * 1e-4
  end,
}
