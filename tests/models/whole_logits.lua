-- Logits of the position before are added: a part of the positions cannot be computed by itself.
local nn = require "nn"
return model {
  name = "whole_logits",
  axes = { seq = 8, model = 16, vocab = 61 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function() return x * m:param("w", { "model" }, { init = "ones" }) end)
    local logits = nn.logits(m, "wte", x)
    local mixed = logits + ops.shift { logits, axis = "seq", by = -1 }
    return nn.cross_entropy(m, mixed, labels)
  end,
}
