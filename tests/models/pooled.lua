-- Two matrices of one shape in a block of which one reads the mean over positions: its gradient is
-- summed over fewer ranks than the other's, where c divides positions.
local nn = require "nn"
return model {
  name = "pooled",
  axes = { seq = 8, model = 16, ffn = 24, vocab = 61 },
  layers = 4,
  optimizer = { kind = "muon", eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local h = ops.gelu{ nn.linear(m, nn.rmsnorm(m, x), "model", "ffn", { weight = "up" }) }
        local mean = ops.reduce_sum{ x, over = "seq" } * (1 / x:dim("seq"))
        local gate = ops.tanh{ nn.linear(m, mean, "model", "ffn", { weight = "up2" }) }
        return x + nn.linear(m, h * gate, "ffn", "model", { weight = "down" })
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
