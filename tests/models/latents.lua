-- Attention with keys and values made of latents: as nn.mla has it (layer 1); with values of
-- another latent (2); with a bias in its keys (3). Only the first can have its latents cached.
local nn = require "nn"
return model {
  name = "latents",
  axes = { seq = 8, model = 16, heads = 4, nope = 8, rope = 4, head = 12, value = 8, rank = 6,
           vocab = 61 },
  layers = 3,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local function linear(y, from, to, weight)
          return nn.linear(m, y, from, to, { weight = weight })
        end
        local h = nn.rmsnorm(m, x)
        local c = linear(h, "model", "rank", "wc")
        local nope = linear(c, "rank", { "heads", "nope" }, "wk")
        if i == 3 then nope = nope + m:param("bias", { "heads", "nope" }, { std = 0.5 }) end
        local function join(part, turned)
          return ops.concat{ part, nn.rotary(turned, { head = "rope" }),
                             over = { "nope", "rope" }, to = "head" }
        end
        local q = join(linear(h, "model", { "heads", "nope" }, "wq"),
          linear(h, "model", { "heads", "rope" }, "wqr"))
        local k = join(nope, linear(h, "model", "rope", "wkr"))
        local latent = i == 2 and ops.tanh{ c } or c
        local v = linear(latent, "rank", { "heads", "value" }, "wv")
        local y = ops.attention{ q, k, v, seq = "seq", head = "head", causal = true, scale = 0.3 }
        return x + linear(y, { "heads", "value" }, "model", "wo")
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
