-- What needs more of a sequence than a rank of c has, for tests: neighbours' values, labels further
-- on, labels left out, positions seen on both sides, sums over positions.
local nn = require "nn"
return model {
  name = "context", layers = 3,
  axes = { seq = 24, model = 32, heads = 4, kv_heads = 2, head = 8, ffn = 48, vocab = 61 },
  optimizer = { kind = "adamw", lr = 1e-3, weight_decay = 0.1, max_norm = 1.0 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    x = x + nn.position(m, "wpe", "seq", "model")
    local before = ops.shift{tokens, axis = "seq", by = -1, value = 0}
    x = x + nn.embedding(m, "bigram", before, "vocab", "model")
    for i = 1, m.layers do
      x = m:block(i, function()
        local n = nn.rmsnorm(m, x, "model", { name = "ln1" })
        x = x + nn.attention(m, n + 0.5 * ops.shift{n, axis = "seq", by = -1},
                             { causal = i ~= 2, window = i == 2 and 5 or nil, rotary = 100 })
        return x + nn.mlp(m, nn.rmsnorm(m, x, "model", { name = "ln2" }))
      end)
    end
    local first = nn.cross_entropy(m, nn.logits(m, "wte", x), labels, "vocab", { ignore = 2 })
    local later = ops.shift{labels, axis = "seq", by = 1, value = -1}
    local second = nn.cross_entropy(m, nn.logits(m, "ahead", x), later, "vocab", { output = false })
    local penalty = ops.reduce_sum{ops.square{x}, over = {"batch", "seq", "model"}}
    local along = ops.logsumexp{ops.transpose{x, to = {"batch", "model", "seq"}}, axis = "seq"}
    penalty = penalty + ops.reduce_sum{along, over = {"batch", "model"}}
    return first + 0.3 * second + 1e-4 / m.batch * penalty
  end,
}
