-- Layers whose result, or gradient, is not zero where operands are: 'layer' says which.
local nn = require "nn"
local layers = {
  logsumexp = function(m, x)
    local h = nn.linear(m, x, "model", { "ffn", "head" }, { weight = "up" })
    return nn.linear(m, ops.logsumexp { h, axis = "head" }, "ffn", "model", { weight = "down" })
  end,
  silu = function(m, x)
    local h = ops.silu { nn.linear(m, x, "model", "ffn", { weight = "up" }) }
    return ops.reduce_sum { h, over = "ffn" } * m:param("gain", "model")
  end,
  attention = function(m, x)
    local heads = { "kv_heads", "head" }
    local q = nn.linear(m, x, "model", { "kv_heads", "group", "head" }, { weight = "q" })
    local k = nn.linear(m, x, "model", heads, { weight = "k" })
    local v = nn.linear(m, x, "model", heads, { weight = "v" }) + m:param("vb", "head")
    local y = ops.attention { q, k, v, seq = "seq", head = "head", causal = true, scale = 0.5 }
    return nn.linear(m, y, { "kv_heads", "group", "head" }, "model", { weight = "o" })
  end,
}
return model {
  name = "odd",
  axes = { seq = 8, model = 12, heads = 3, ffn = 13, vocab = 61 },
  layers = 2,
  layer = "silu",
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function() return x + layers[m.layer](m, x) end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
