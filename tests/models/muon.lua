-- Weights for which the choice between Muon and AdamW is not the usual one: a layer and a matrix
-- that opt out, a head that opts in, a product of many small matrices, one that is read
-- transposed, and one whose axes lie between each other's.
local nn = require "nn"
return model {
  name = "muon",
  axes = { seq = 8, model = 16, heads = 2, ffn = 24, vocab = 61, expert = 8, part = 2, a = 4,
           b = 4 },
  layers = 1,
  optimizer = { kind = "muon", eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) + nn.position(m, "wpe")
    for i = 1, m.layers do
      x = m:block(i, function()
        x = x + nn.attention(m, x, { muon = 0, lr_scale = 0.5 })
        local h = ops.gelu{ nn.linear(m, x, "model", "ffn", { weight = "mlp.w1" }) }
        return x + nn.linear(m, h, "ffn", "model", { weight = "mlp.w2", muon = false })
      end)
    end
    -- [a, model, b]: rows a and b, beside the column between them
    local mixed = m:param("mixed", { "a", "model", "b" }, { std = 0.2 })
    local h = ops.tanh{ ops.matmul{ x, mixed, over = "model" } }
    local turned = ops.transpose{ m:param("turned", { "model", "a", "b" }, { std = 0.2 }),
                                  to = { "a", "b", "model" } }
    x = x + ops.matmul{ h, turned, over = { "a", "b" } }
    -- one small matrix for each part of x
    local parts = ops.concat{ ops.narrow{ x, axis = "model", to = "expert", first = 0 },
                              ops.narrow{ x, axis = "model", to = "expert", first = 8 },
                              over = "expert", to = "model" }
    local experts = m:param("experts", { "model", "part" }, { std = 0.2 })
    x = x + ops.reduce_sum{ ops.square{ experts } * 0.01, over = "part" } + 0 * parts
    return nn.cross_entropy(m, nn.logits(m, "head", x, "vocab", "model", { muon = 1 }), labels)
  end,
}
