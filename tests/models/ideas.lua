-- Ideas from papers, each in a few lines, as models/README.md lists them; for tests: all layouts
-- give the same losses.
local nn = require "nn"

local KEYS, QUERIES = { "kv_heads", "head" }, { "kv_heads", "group", "head" }

local function linear(m, x, name, from, to)
  return nn.linear(m, x, from, to, { weight = name, std = 0.2 })
end

local function heads(m, x)
  return linear(m, x, "wq", "model", QUERIES), linear(m, x, "wk", "model", KEYS),
    linear(m, x, "wv", "model", KEYS)
end

local function norm(m, x, name) return nn.rmsnorm(m, x, "model", { name = name }) end

-- A parameter that begins with the value: one number, or along an axis.
local function begins(m, name, value, axis)
  return m:param(name, axis or {}, { init = "range", low = value, high = value })
end

-- Manifold-constrained hyper-connections (arXiv 2512.24880): n streams, whose mixing is made doubly
-- stochastic by Sinkhorn and Knopp's steps. Without these, hyper-connections (arXiv 2409.19606).
local function streams(m, x)
  m:axis("stream", 4)
  return ops.transpose{ x * m:param("spread", "stream", { init = "ones", frozen = 1 }),
                        to = { "batch", "seq", "stream", "model" } }
end

local function connect(m, name, x, layer)
  m:axis("stream_to", 4)
  m:axis("mixes", 24)
  local both = { "stream", "model" }
  local square = ops.matmul{ x, x, over = both, dtype = "f32" } * (1 / (4 * m.model))
  local w = m:param(name .. ".w", { "stream", "model", "mixes" }, { std = 0.1 })
  w = ops.matmul{ x, w, over = both, dtype = "f32" } * ops.rsqrt{ square + 1e-5 }
  local function gate(kind, first)
    local part = ops.narrow{ w, axis = "mixes", to = "stream", first = first }
    return ops.sigmoid{ part * begins(m, name .. kind, 0.1)
                        + begins(m, name .. kind .. "b", 0.5, "stream") }
  end
  local rows
  for k = 0, 3 do
    local row = ops.narrow{ w, axis = "mixes", to = "stream_to", first = 8 + 4 * k }
    row = ops.pad{ row, to = "stream", first = k, at = 2 }
    rows = rows and rows + row or row
  end
  local mix = rows * begins(m, name .. ".mix", 0.1)
    + m:param(name .. ".mixb", { "stream", "stream_to" }, { std = 0.5 })
  mix = ops.exp{ mix }
  for _ = 1, 3 do -- 20 in the paper
    mix = mix / ops.reduce_sum{ mix, over = "stream" }
    mix = mix / ops.reduce_sum{ mix, over = "stream_to" }
  end
  local y = layer(ops.matmul{ x, gate(".pre", 0), over = "stream" })
  local kept = ops.matmul{ mix, x, over = "stream" }
  kept = ops.rename{ kept, axis = "stream_to", to = "stream" }
  return kept + gate(".post", 4) * 2 * y
end

-- Of what blocks are made of: attention of (m, x, block, all), with `all` for what blocks share.
local attention = {}

function attention.plain(m, x) return nn.attention(m, x, { rotary = 100, std = 0.2 }) end

-- Values of the first block mixed into later ones' (ResFormer, arXiv 2410.17897), and scores times
-- a learned number and the logarithm of how many keys there are (SSMax, arXiv 2501.19399).
function attention.values(m, x, _, all)
  local q, k, v = heads(m, x)
  all.v = all.v or v
  local mix = begins(m, "mix", 0.5)
  v = v * (1 - mix) + all.v * mix
  local keys = ops.log{ ops.number{ all.places } + 1 }
  q = q * (keys * begins(m, "ssmax", 0.4, { "kv_heads", "group" }))
  local y = ops.attention{ nn.rotary(q), nn.rotary(k), v, seq = "seq", head = "head",
                           causal = true, scale = 0.35 }
  return linear(m, y, "wo", QUERIES, "model")
end

-- Differential attention (arXiv 2410.05258): the difference of two.
function attention.differential(m, x, i)
  m:axis("half", m.head // 2)
  local v, y = linear(m, x, "wv", "model", KEYS), {}
  for k = 1, 2 do
    local q = linear(m, x, "wq" .. k, "model", { "kv_heads", "group", "half" })
    local key = linear(m, x, "wk" .. k, "model", { "kv_heads", "half" })
    y[k] = ops.attention{ q, key, v, seq = "seq", head = "half", causal = true, scale = 0.5 }
  end
  local function dot(k)
    local a = m:param("lq" .. k, "half", { std = 0.1 })
    local b = m:param("lk" .. k, "half", { std = 0.1 })
    return ops.exp{ ops.reduce_sum{ a * b, over = "half" } }
  end
  local first = 0.8 - 0.6 * math.exp(-0.3 * (i - 1))
  local rest = nn.rmsnorm(m, y[1] - (dot(1) - dot(2) + first) * y[2], "head", { name = "sub" })
  return linear(m, rest * (1 - first), "wo", QUERIES, "model")
end

-- Explicit scores: [batch, kv_heads, group, seq, keys].
local function scores(m, x, all)
  local function keys(y) return ops.rename{ y, axis = "seq", to = "keys" } end
  local later = nn.later(m, all.places, "keys")
  local q, k, v = heads(m, x)
  return ops.matmul{ q, keys(k), over = "head", dtype = "f32" } * 0.35, keys(v), later, keys
end

local function weigh(m, weights, v)
  return linear(m, ops.matmul{ weights, v, over = "keys" }, "wo", QUERIES, "model")
end

-- Softpick (arXiv 2504.20966): weights that may be zero, and need not add up to 1. (0.01 is 1e-6 in
-- the paper, with which rows of few keys divide by next to nothing: no two layouts would agree.)
function attention.softpick(m, x, _, all)
  local s, v, later = scores(m, x, all)
  local e = (ops.exp{ s } - 1) * (1 - later)
  return weigh(m, ops.relu{ e } / (ops.reduce_sum{ ops.abs{ e }, over = "keys" } + 0.01), v)
end

-- DeepSeek's sparse attention (V3.2): a light indexer chooses each query's keys; it learns by how
-- far its softmax is from attention's. (All scores are computed: this is what it learns, not its
-- speed.)
function attention.indexed(m, x, _, all)
  for axis, size in pairs{ chosen = 6, index_heads = 2, index_head = 4 } do m:axis(axis, size) end
  local s, v, later, keys = scores(m, x, all)
  local held = ops.stop_gradient{ x }
  local q = linear(m, held, "iq", "model", { "index_heads", "index_head" })
  local k = keys(linear(m, held, "ik", "model", "index_head"))
  local dots = ops.matmul{ q, k, over = "index_head", dtype = "f32" }
  local w = linear(m, held, "iw", "model", "index_heads")
  local index = ops.matmul{ ops.relu{ dots }, w, over = "index_heads", dtype = "f32" }
    + later * -1e30
  local top = ops.top{ index, axis = "keys", to = "chosen" }
  local kept = ops.put{ ops.take{ index, top, axis = "keys" } * 0 + 1, top, axis = "keys" }
  local hidden = later + (1 - ops.stop_gradient{ kept }) * (1 - later)
  local weights = nn.softmax(s + hidden * -1e30, "keys")
  local mean = ops.reduce_sum{ weights, over = { "kv_heads", "group" } } * (1 / m.heads)
  local own = ops.logsumexp{ index, axis = "keys" } - index
  local apart = ops.reduce_sum{ ops.stop_gradient{ mean } * own * (1 - hidden),
                                over = { "seq", "keys" } }
  all.beside = apart * (1 / m.seq) + (all.beside or 0)
  return weigh(m, weights, v)
end

-- Of what feed-forward layers read and make: (m, x, all).
local feed = {}

function feed.plain(m, x) return nn.swiglu(m, x, { std = 0.2 }) end

-- Canon layers (short convolutions with a residual, anywhere) and LayerScale (arXiv 2103.17239).
function feed.canon(m, x)
  x = x + nn.convolve(m, x, { weight = "canon", taps = 4 })
  return nn.swiglu(m, x, { std = 0.2 }) * begins(m, "layer_scale", 0.1, "model")
end

-- Mixture-of-Depths (arXiv 2404.02258): half of a sequence's tokens have the layer, here those that
-- score a way of their own higher, first come, first served, so that it is causal.
function feed.depths(m, x)
  for axis, size in pairs{ ways = 2, routes = 2, way = 1, slot = m.seq // 2 } do
    m:axis(axis, size)
  end
  local score = linear(m, x, "way", "model", "ways")
  local way = ops.top{ score, axis = "ways", to = "way" }
  local slots = ops.route{ way, to = { "ways", "slot", "routes" } }
  local taken = ops.narrow{ ops.dispatch{ x, slots, slots:result(2) }, axis = "ways", first = 0 }
  local y = linear(m, ops.silu{ linear(m, taken, "up", "model", "ffn") }, "down", "ffn", "model")
  local gate = ops.take{ ops.sigmoid{ score }, way, axis = "ways" }
  y = ops.pad{ y, to = "ways", first = 0, at = 0 } -- nothing of the other way
  return ops.combine{ y, slots, slots:result(2), gate }
end

-- Embeddings of each layer (Gemma 3n).
function feed.embedded(m, x, all)
  m:axis("narrow", 8)
  local e = nn.embedding(m, "per_layer", all.tokens, "vocab", "narrow", { std = 0.2 })
  local y = ops.gelu{ linear(m, x, "pg", "model", "narrow") } * e
  return linear(m, y, "po", "narrow", "model")
end

-- A norm without a mean (Dynamic Tanh, arXiv 2503.10622).
local function dynamic_tanh(m, x, name)
  return ops.tanh{ x * begins(m, name .. ".alpha", 0.5) } * begins(m, name .. ".gain", 1, "model")
    + begins(m, name .. ".bias", 0, "model")
end

return model {
  name = "ideas", layers = 4, loops = 1, streams = false, grams = 0, tanh = false,
  attention = "plain", feed = "plain",
  axes = { seq = 24, model = 32, heads = 4, kv_heads = 2, head = 8, ffn = 48, vocab = 64 },
  optimizer = { kind = "adamw", lr = 1e-3, max_norm = 1.0, eps = 1e-6 },
  loss = function(m, tokens, labels)
    local all = { tokens = tokens, places = nn.places(m, tokens) }
    local x = nn.embedding(m, "wte", tokens)
    if m.grams > 0 then -- embeddings of hashed pairs and triples (arXiv 2501.16975)
      m:axis("gram", m.grams)
      for n = 2, 3 do
        local rows = nn.ngrams(m, tokens, { n = n, size = m.grams, seed = n })
        x = x + nn.embedding(m, "grams" .. n, rows, "gram")
      end
    end
    local before = m.tanh and dynamic_tanh or norm
    local function attend(i, y) return attention[m.attention](m, before(m, y, "n1"), i, all) end
    local function feed_forward(y) return feed[m.feed](m, before(m, y, "n2"), all) end
    if m.streams then x = streams(m, x) end
    for i = 1, m.layers * m.loops do -- with loops, blocks' weights again and again
      x = m:block(i, function()
        if m.streams then
          x = connect(m, "h1", x, function(y) return attend(i, y) end)
          return connect(m, "h2", x, feed_forward)
        end
        x = x + attend(i, x)
        return x + feed_forward(x), all.beside
      end, { weights = i > m.layers and i - m.layers or nil })
    end
    if m.streams then x = ops.reduce_sum{ x, over = "stream" } end
    local logits = nn.logits(m, "head", norm(m, x, "nf"))
    return nn.cross_entropy(m, logits, labels, "vocab", { beside = all.beside })
  end,
}
