local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, kv_heads = 2, head = 4, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local k = nn.linear(m, x, "model", { "kv_heads", "head" })
    local starts, places, ends = nn.documents(m, tokens, 3, { ends = true })
    local other = ops.document_ends{ tokens, axis = "seq", separator = 4 }
    return ops.attention{ k, k, k, starts, other, seq = "seq", head = "head", causal = false, scale = 1.0 }
  end,
}
