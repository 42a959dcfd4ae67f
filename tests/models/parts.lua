-- Parts of axes wherever models take them: attention over a latent (DeepSeek-V2's, small) with
-- positions turned into a part of each head, gate and up in one product, a mix with the token
-- before, a second head for the token after the next, one label that is left out and one token.
local nn = require "nn"

local function attention(m, x)
  local joint = nn.linear(m, x, "model", "joint", { weight = "wkv" })
  local latent = ops.narrow{ joint, axis = "joint", to = "latent", first = 0 }
  local place = ops.narrow{ joint, axis = "joint", to = "rope", first = joint:dim("joint") - 4 }
  local q = nn.linear(m, x, "model", { "kv_heads", "head" }, { weight = "wq" })
  local q_place = ops.narrow{ q, axis = "head", to = "rope", first = 4 }
  local q_rest = ops.narrow{ q, axis = "head", to = "nope", first = 0 }
  local k_rest = nn.linear(m, latent, "latent", { "kv_heads", "nope" }, { weight = "wk" })
  local v = nn.linear(m, latent, "latent", { "kv_heads", "value" }, { weight = "wv" })
  q = ops.concat{ q_rest, nn.rotary(q_place, { head = "rope" }), over = { "nope", "rope" },
                  to = "head" }
  local k = ops.concat{ k_rest, nn.rotary(place, { head = "rope" }), over = { "nope", "rope" },
                        to = "head" } -- one place for all heads
  v = ops.pad{ v, axis = "value", to = "head", first = 0 }
  local y = ops.attention{ q, k, v, seq = "seq", head = "head", causal = true, scale = 0.4 }
  y = ops.narrow{ y, axis = "head", to = "value", first = 0 }
  return nn.linear(m, y, { "kv_heads", "value" }, "model", { weight = "wo" })
end

local function swiglu(m, x)
  local both = nn.linear(m, x, "model", { "two", "ffn" }, { weight = "w_in" })
  local gate = ops.narrow{ both, axis = "two", first = 0 }
  local up = ops.narrow{ both, axis = "two", first = 1 }
  return nn.linear(m, ops.silu{ gate } * up, "ffn", "model", { weight = "w_out" })
end

return model {
  name = "parts", layers = 4,
  axes = { seq = 8, model = 12, kv_heads = 2, head = 8, rope = 4, nope = 4, value = 6, latent = 6,
           joint = 10, two = 2, ffn = 8, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        x = x + attention(m, nn.rmsnorm(m, x, "model", { name = "n1" }))
        x = x + swiglu(m, nn.rmsnorm(m, x, "model", { name = "n2" }))
        return x + ops.shift{ x, axis = "seq", by = -1 } * m:param("mix", "model", { std = 0.1 })
      end)
    end
    local later = ops.shift{ labels, axis = "seq", by = 1, value = -1 }
    local counts = 1 - ops.equal{ tokens, 3 }
    local y = nn.rmsnorm(m, x, "model", { name = "later" })
    local left_out = { weight = counts, ignore = 5 }
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels, "vocab", left_out)
      + 0.5 * nn.cross_entropy(m, nn.logits(m, "wte", y), later, "vocab", { output = false })
  end,
}
