-- As gpt-oss (OpenAI 2025, arXiv 2508.10925): a sink for each head, a window in every other block,
-- experts with biases. Every token goes to all, and nothing is large enough to be cut off: else
-- rounding decides where numbers are near.
local nn = require "nn"
return model {
  name = "sinks",
  axes = { seq = 16, model = 16, heads = 4, kv_heads = 2, vocab = 61, experts = 3,
           expert_ffn = 12 },
  layers = 4,
  separator = 7,
  optimizer = { eps = 1e-5 },
  loss = function(m, tokens, labels)
    local documents = ops.documents{ tokens, axis = "seq", separator = m.separator }
    local x = nn.embedding(m, "wte", tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        x = x + nn.attention(m, nn.rmsnorm(m, x, "model", { name = "norm1" }),
          { rotary = 10000, sinks = true, bias = true, std = 0.3, window = i % 2 == 1 and 5 or nil,
            documents = i > 2 and documents or nil })
        return x + nn.moe(m, nn.rmsnorm(m, x, "model", { name = "norm2" }),
          { top_k = m.experts, capacity = 0, act = "clamped", biases = true, std = 0.3 })
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "head", nn.rmsnorm(m, x)), labels)
  end,
}
