-- Attention as one op, or of its scores (composed = true), which the biases by relative position
-- leave as they are; for tests: both are the same.
local nn = require "nn"
return model {
  name = "composed", layers = 2, composed = false, causal = true,
  axes = { seq = 24, model = 32, heads = 4, head = 8, ffn = 48, vocab = 61 },
  optimizer = { kind = "adamw", lr = 1e-3, max_norm = 1.0 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens) + nn.position(m, "wpe")
    for i = 1, m.layers do
      x = m:block(i, function()
        local y, o = nn.rmsnorm(m, x), { name = "attn", std = 0.3 }
        if m.composed then
          o.relative = nn.relative_positions(m, "relative", { causal = m.causal, std = 0.0 })
          return x + nn.relative_attention(m, y, nil, o)
        end
        o.causal = m.causal
        return x + nn.attention(m, y, o)
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
