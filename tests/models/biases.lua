-- Biases of attention's scores by head (forget: Forgetting Transformer; alibi: ALiBi; own: any), as
-- nn.attention has them, or of explicit scores (composed = true), which generate takes for causal;
-- for tests: both are the same.
local nn = require "nn"

local HEADS = { "kv_heads", "group" }

local function explicit(m, x, c, places)
  local split = { "kv_heads", "group", "head" }
  local function keys(y) return ops.rename{ y, axis = "seq", to = "keys" } end
  local later = nn.later(m, places, "keys")
  local q = nn.linear(m, x, "model", split, { weight = "attn.wq", std = 0.3 })
  local one = { "kv_heads", "head" }
  local k = keys(nn.linear(m, x, "model", one, { weight = "attn.wk", std = 0.3 }))
  local v = keys(nn.linear(m, x, "model", one, { weight = "attn.wv", std = 0.3 }))
  local scores = ops.matmul{ q, k, over = "head", dtype = "f32" } * (1 / math.sqrt(m.head))
  scores = scores + (c - keys(c)) + later * -1e30
  local y = ops.matmul{ nn.softmax(scores, "keys"), v, over = "keys" }
  local std = 0.3 / math.sqrt(2 * m.layers)
  return nn.linear(m, y, split, "model", { weight = "attn.wo", std = std })
end

-- c, of which scores have the difference, and what makes nn.attention have it.
local kinds = {
  forget = function(m, y)
    if not m.composed then return nil, { forget = true } end
    local w = m:param("attn.wforget", { "model", "kv_heads", "group" }, { std = 0.3 })
    local b = m:param("attn.bforget", HEADS, { init = "zeros", decay = 0 })
    local gate = ops.matmul{ y, w, over = "model", dtype = "f32" } + b
    return nn.prefix_sum(m, ops.log{ ops.sigmoid{ gate } }), { forget = true }
  end,
  alibi = function(m, _, places)
    if not m.composed then return nil, { alibi = places } end
    local power = m:param("attn.slopes", HEADS,
      { init = "range", low = 8 / m.heads, high = 8, frozen = 1 })
    return -ops.exp{ power * -math.log(2) } * ops.number{ places }, { alibi = places }
  end,
  own = function(m, y)
    local w = m:param("own", { "model", "kv_heads", "group" }, { std = 2.0 })
    local c = ops.matmul{ y, w, over = "model", dtype = "f32" } * m.times
    return c, { score_bias = c }
  end,
}

return model {
  name = "biases", layers = 4, idea = "forget", composed = false, times = 1.0,
  axes = { seq = 24, model = 16, heads = 4, kv_heads = 4, head = 8, ffn = 16, vocab = 61 },
  optimizer = { kind = "adamw", lr = 1e-3, max_norm = 1.0, eps = 1e-5 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", { std = 0.5 })
    local places = nn.places(m, tokens)
    for i = 1, m.layers do
      x = m:block(i, function()
        local y = nn.rmsnorm(m, x)
        local c, o = kinds[m.idea](m, y, places)
        o.std = 0.3
        return x + (m.composed and explicit(m, y, c, places) or nn.attention(m, y, o))
      end)
    end
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels)
  end,
}
