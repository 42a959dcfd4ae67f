local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 2,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", { std = 1, decay = 0 })
    x = x + nn.position(m, "wpe", "seq", "model", { std = 0.5, decay = false })
    x = m:block(1, function()
      x = x + nn.attention(m, x, { qk_norm = true, norm_eps = 1e-6, scale = 0.125, rotary = 1e4,
                                   std = 0.1, out_std = 0, decay = 0 })
      x = x + nn.mlp(m, x, { act = "relu2", std = 0.2, decay = 0 })
      return x + nn.swiglu(m, x, { name = "glu", std = 0.3, out_std = 0.4, decay = 0 })
    end)
    x = nn.linear(m, x, "model", "ffn", { std = 0.6, decay = 0 })
    x = nn.linear(m, x, "ffn", "model", { weight = "w2" })
    local loss = nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
    local head = nn.logits(m, "head", x, "vocab", "model", { std = 0.7, decay = 0 })
    local other = nn.cross_entropy(m, head, labels, "vocab", { output = "other" })
    return loss + other + nn.cross_entropy(m, head * 2, labels, "vocab", { output = false })
  end,
}
