local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, kv_heads = 2, head = 4, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local k = nn.linear(m, x, "model", { "kv_heads", "head" })
    local starts, places, ends = nn.documents(m, tokens, 3, { ends = true })
    return ops.attention{ k, k, k, starts, ends, seq = "seq", head = "head", causal = true, scale = 1.0 }
  end,
}
