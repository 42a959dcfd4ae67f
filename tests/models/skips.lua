-- Values that skip blocks: two embeddings read by block 2, a hidden layer of block 3, of another
-- size, by block 4; a loss on what block 2 makes, and a square of what block 1 makes at the end.
local nn = require "nn"
return model {
  name = "skips",
  axes = { seq = 8, model = 16, ffn = 40, vocab = 61 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local e1, e2 = nn.embedding(m, "e1", tokens), nn.embedding(m, "e2", tokens)
    local first, wide, aux
    for i = 1, m.layers do
      x = m:block(i, function()
        local h = ops.gelu { nn.linear(m, nn.rmsnorm(m, x), "model", "ffn", { weight = "up" }) }
        if i == 4 then h = h + wide end
        if i == 3 then wide = h end
        local y = x + nn.linear(m, h, "ffn", "model", { weight = "down" })
        return i == 2 and y + e1 * ops.tanh { e2 } or y
      end)
      if i == 1 then first = ops.square { x } end
      if i == 2 then
        local size = m.batch * m.seq * m.model
        aux = ops.reduce_sum { ops.tanh { ops.square { x } }, over = x.axes } * (3 / size)
      end
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x + first), labels) + aux
  end,
}
