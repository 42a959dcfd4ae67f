local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11, up = 3, down = 5 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    -- the left operand's summed axis lies within
    local y = ops.matmul{ x, m:param("mix", { "seq", "head" }), over = "seq" }
    x = x + ops.matmul{ y, m:param("back", "head"), over = "head" }
    -- neither operand has 'over' in its order, both have the same
    local u = nn.linear(m, x, "model", { "up", "down" }, { weight = "w" })
    x = x + ops.matmul{ u, m:param("v", { "up", "down", "model" }), over = { "down", "up" } }
    -- shared axes in another order on the right
    u = ops.transpose{ u, to = { "up", "down", "batch", "seq" } }
    local z = ops.matmul{ u, m:param("z", { "down", "up", "model" }), over = {} }
    x = x + ops.reduce_sum{ z, over = { "up", "down" } }
    -- neither fits: the right one's summed axes are apart
    u = ops.matmul{ ops.transpose{ u, to = { "batch", "up", "seq", "down" } },
                    m:param("q", { "down", "model", "up" }), over = { "up", "down" } }
    return nn.cross_entropy(m, nn.logits(m, "wte", x + u), labels)
  end,
}
