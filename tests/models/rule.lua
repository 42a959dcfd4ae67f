-- An optimizer of the model's own: momentum whose sign and size are mixed, with numbers of its own.
-- With a shift, weights of 0 move by themselves.
local nn = require "nn"

return model {
  name = "rule", axes = { seq = 8, model = 16, vocab = 25 }, layers = 1,
  optimizer = {
    lr = 1e-2, weight_decay = 0.1, max_norm = 1e4, rho = 0.9, share = 0.25, shift = 0.0,
    states = { "m" },
    update = function(o, w, g, s, t)
      local m = t.rho * s.m + (1 - t.rho) * g
      local size = o.where(o.less(t.step, 2.5), 1, t.share)
      local x = o.where(o.less(o.abs(m), 1e-3), m, size * o.sign(m) + (1 - size) * m)
      return w - t.lr * (x + t.decay * w) + t.shift, { m = m }
    end,
  },
  loss = function(m, tokens, labels)
    return nn.cross_entropy(m, nn.logits(m, "wte", nn.embedding(m, "wte", tokens)), labels)
  end,
}
