-- Numbers beside the loss, of the first stage, of the last, and of labels.
local nn = require "nn"

local function mean_square(m, x)
  return ops.reduce_sum{ ops.square{ x }, over = x.axes } * (1 / (m.batch * m.seq * m.model))
end

return model {
  name = "reported", axes = { seq = 16, model = 16, heads = 2, vocab = 64 }, layers = 4,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) + nn.position(m, "wpe")
    m:output("first.square", mean_square(m, x))
    for i = 1, m.layers do
      x = m:block(i, function()
        x = x + nn.attention(m, nn.layernorm(m, x, "model", { name = "ln1" }))
        return x + nn.mlp(m, nn.layernorm(m, x, "model", { name = "ln2" }))
      end)
    end
    m:output("last.square", mean_square(m, x))
    local same = ops.reduce_sum{ ops.equal{ tokens, labels }, over = { "batch", "seq" } }
    m:output("repeated", same * (1 / (m.batch * m.seq)))
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
