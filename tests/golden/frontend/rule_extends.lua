-- The mistake is in this file, not in the model's, which is where model() is called.
local small = require "rule_operand"
small.optimizer = {
  states = { "m", "m" },
  update = function(o, w, g, s, t) return w - t.lr * g, { m = g } end,
}
return small
