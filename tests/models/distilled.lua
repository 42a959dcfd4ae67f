-- Logits by the token before, with a head of its own. With `own` the loss reads the teacher itself.
local nn = require "nn"
return model {
  name = "distilled",
  axes = { seq = 6, model = 8, words = 11, vocab = 11 },
  masked = false,
  own = "none",
  std = 1.0,
  loss = function(m, tokens, labels)
    local table = m:param("table", { "words", "model" }, { std = m.std })
    local x = ops.embedding{ tokens, table, axis = "words" }
    local logits = nn.logits(m, "head", x, "vocab", "model", { std = m.std })
    local ignore = m.masked and -1 or nil
    local loss = nn.cross_entropy(m, logits, labels, "vocab", { ignore = ignore })
    if m.own == "none" then return loss end
    return nn.distill(m, loss, logits, labels, "vocab", { kind = m.own, ignore = ignore })
  end,
}
