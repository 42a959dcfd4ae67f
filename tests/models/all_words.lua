-- A penalty on a sum over all words of what is not zero where logits are: words of padding would
-- count.
local nn = require "nn"
return model {
  name = "all_words",
  axes = { seq = 8, model = 16, vocab = 62 },
  layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    x = m:block(1, function()
      local w = m:param("w", { "model" }, { init = "ones" })
      return x * w
    end)
    local logits = nn.logits(m, "wte", x)
    local all = ops.reduce_sum { ops.sigmoid { logits }, over = "vocab" }
    return nn.cross_entropy(m, logits, labels, "vocab", { beside = all * 1e-3 })
  end,
}
