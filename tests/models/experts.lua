-- Sparse mixtures of experts of both kinds: with and without a shared expert, scores of all experts
-- and of each, gates that sum to 1 and that do not, a gated shared expert, a norm of all queries
-- and of all keys together, and a dense block between. Five experts do not divide by two; capacity
-- is so small that choices are dropped.
local nn = require "nn"
return model {
  name = "experts",
  axes = { seq = 8, model = 16, heads = 4, vocab = 61, ffn = 24, experts = 5, expert_ffn = 12,
           shared_ffn = 10 },
  layers = 4,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local beside
    for i = 1, m.layers do
      x, beside = m:block(i, function()
        local h = x + nn.attention(m, nn.rmsnorm(m, x, "model", { name = "norm1" }),
          { qk_norm = i > 2, qk_norm_over = i == 3 and "all" or "head" })
        local y = nn.rmsnorm(m, h, "model", { name = "norm2" })
        if i == 2 then return h + nn.swiglu(m, y), beside end
        local mixed, loss = nn.moe(m, y,
          { capacity = 1.0, scores = i % 2 == 1 and "softmax" or "sigmoid", normalize = i ~= 3,
            scale = i == 3 and 2.5 or 1.0, shared = i ~= 1, shared_gate = i == 3, balance = 0.1,
            z = i == 4 and 0.01 or 0.0, std = 0.3 })
        return h + mixed, beside and beside + loss or loss
      end)
    end
    local logits = nn.logits(m, "wte", nn.rmsnorm(m, x))
    return nn.cross_entropy(m, logits, labels, "vocab", { beside = beside })
  end,
}
