-- nn_attention: positions and attention, a part of nn. `nn` is what it adds to, `tools` what layers
-- of nn share.
local attention = {}

function attention.add(nn, tools)

local ops = ops
local joined = tools.joined
local fail, read_options, read_lora = tools.fail, tools.read_options, tools.read_lora
local check_model, check_arguments = tools.check_model, tools.check_arguments
local residual_std, NONE, STD, EPS = tools.residual_std, tools.NONE, tools.STD, tools.EPS
local option_axis, rmsnorm_over, biases = tools.option_axis, tools.rmsnorm_over, tools.biases

-- A list of numbers as the text that ops.rotary takes.
local function joined_numbers(factors)
  if type(factors) == "string" then return factors end
  if type(factors) ~= "table" then
    fail("rotary: 'factors' must be a list of numbers, or a text")
  end
  local texts = {}
  for i, factor in ipairs(factors) do
    if type(factor) ~= "number" then fail("rotary: factor %d of 'factors' is no number", i) end
    texts[i] = string.format("%.17g", factor)
  end
  return table.concat(texts, ",")
end

-- Rotary positions (Su et al. 2021): pairs (i, i + head/2) turned by pos * base^(-2i/head).
-- x [batch, seq, ..., head] -> like x
-- options: base, seq, head, factor (frequencies are divided by it, for longer contexts: Chen et al.
-- 2023), and with few, many and context by how often a pair turns in `context` positions, as in
-- Llama 3.1: divided below `few` times, as it is above `many`, mixed between them; by the logarithm
-- of how often with ramp = true, as in YaRN; share (of a head's numbers, the first ones, turn, as
-- if the head had no more; the others stay: Black et al. 2022, GPT-NeoX-20B, section 2.1); factors
-- (in place of factor: a number for each pair, as a list or a text "1,1.05", by which its frequency
-- is divided: Ding et al. 2024, LongRoPE); scale (what has turned is multiplied by it)
function nn.rotary(x, options)
  local o = read_options("rotary", options,
    { base = 10000.0, seq = "seq", head = "head", factor = NONE, few = NONE, many = NONE,
      context = NONE, ramp = false, share = 1.0, factors = NONE, scale = NONE })
  if not (o.share > 0 and o.share <= 1) then
    fail("rotary: 'share', of a head's numbers that turn, must be more than 0 and at most 1")
  end
  local turned = math.floor(x:dim(o.head) * o.share)
  if o.share < 1 and (turned < 2 or turned % 2 ~= 0) then
    fail("rotary: %g of the %d numbers along '%s' are %d; they must be an even number", o.share,
      x:dim(o.head), o.head, turned)
  end
  return ops.rotary{ x, seq = o.seq, head = o.head, base = o.base, factor = o.factor, few = o.few,
                     many = o.many, context = o.context, direction = 1,
                     ramp = o.ramp and 1 or nil, turned = o.share < 1 and turned or nil,
                     factors = o.factors and joined_numbers(o.factors) or nil,
                     scale = o.scale or nil }
end

-- YaRN (Peng et al. 2023, arXiv 2309.00071, section 3.4): to options of nn.rotary what makes the
-- frequencies of `width` numbers last for rotary_factor times as many positions.
local function stretch_yarn(m, rotary, width, truncate)
  for _, name in ipairs{ "rotary_few", "rotary_many", "rotary_context" } do
    if not (m[name] > 0) then fail("yarn: %s must be more than 0", name) end
  end
  if not (m.rotary_factor >= 1 and m.rotary_base > 1) then
    fail("yarn: rotary_factor must be at least 1, and rotary_base more than 1")
  end
  local log_base = math.log(m.rotary_base)
  local function pair(turns)
    return width * math.log(m.rotary_context / (turns * 2 * math.pi)) / (2 * log_base)
  end
  local function turns(pair_number)
    return m.rotary_context * math.exp(-2 * pair_number / width * log_base) / (2 * math.pi)
  end
  local low, high = pair(m.rotary_many), pair(m.rotary_few)
  if truncate then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(0, low), math.min(width - 1, high)
  if high <= low then high = low + 0.001 end
  rotary.factor, rotary.context, rotary.ramp = m.rotary_factor, m.rotary_context, true
  rotary.few, rotary.many = turns(high), turns(low)
end

-- YaRN as a model's settings say, where rotary_scaling is "yarn" (none: positions as they are):
-- rotary_factor, rotary_few and rotary_many (turns in rotary_context positions: beta_slow and
-- beta_fast), rotary_mscale (1 where the model has none). -> options of nn.rotary for an axis of
-- `rope` numbers, and what multiplies scores.
-- options: axis (rope), truncate (the ramp begins and ends at whole numbers of pairs, as published;
-- not so in gpt-oss)
function nn.yarn(m, options)
  check_model("yarn", m)
  local o = read_options("yarn", options, { axis = "rope", truncate = true })
  local rotary = { base = m.rotary_base }
  if m.rotary_scaling == "none" then return rotary, 1.0 end
  if m.rotary_scaling ~= "yarn" then
    fail("rotary_scaling is '%s'; it can be none or yarn", tostring(m.rotary_scaling))
  end
  stretch_yarn(m, rotary, m[o.axis], o.truncate)
  local stretch = 0.1 * (m:setting("rotary_mscale") or 1.0) * math.log(m.rotary_factor) + 1
  return rotary, stretch * stretch
end

-- What queries are multiplied by, for sequences beyond those that were learned first (Nakanishi
-- 2025, arXiv 2501.19399; as Llama 4 has it in layers without positions): 1 + scale x log(1 + (p +
-- first) // every), p a token's place. tokens i32[batch, seq] -> [batch, seq]; nil where all are 1.
-- options: every, scale, first (what the first token counts as: 1, or 0, as in Ministral 3), places
-- (nn.documents' second value: tokens are counted in each document)
function nn.temperature(m, tokens, options)
  check_arguments("temperature", m, tokens)
  local o = read_options("temperature", options,
    { every = NONE, scale = NONE, first = 1, places = NONE })
  if math.type(o.every) ~= "integer" or o.every < 1 then
    fail("temperature: 'every' must be a whole number of tokens, 1 or more, not %s",
      tostring(o.every))
  end
  if type(o.scale) ~= "number" or not (o.scale >= 0) then
    fail("temperature: 'scale' must be a number, 0 or more")
  end
  if o.first ~= 0 and o.first ~= 1 then fail("temperature: 'first' must be 0 or 1") end
  local seq = tokens:dim("seq")
  local steps = (seq - 1 + o.first) // o.every
  if steps > 1024 then
    fail("temperature: %d tokens are more than 1024 times every %d", seq, o.every)
  end
  if steps == 0 or o.scale == 0 then return nil end
  -- No token is the last number there is: all are one document.
  local places = o.places
    or ops.documents{ tokens, axis = "seq", separator = 2 ^ 31 - 1 | 0 }:result(2)
  local sum = 1 + o.scale * math.log(steps + 1)
  for k = 1, steps do -- less at every step that is still to come
    sum = ops.less{ places, k * o.every - o.first } * (-o.scale * math.log((k + 1) / k)) + sum
  end
  return sum
end

-- Options of nn.rotary as a model's settings say: rotary_base, rotary_share (of `head`), and for
-- contexts beyond those of the first training rotary_scaling:
--   linear    all frequencies are divided by rotary_factor
--   llama3    by how often a pair turns in rotary_context positions: those that turn less often
--             than rotary_few are divided by rotary_factor, more often than rotary_many stay
--   yarn      the same in another mixture between them, YaRN; sines and cosines are multiplied by
--             rotary_mscale (0: by 0.1 ln rotary_factor + 1)
--   longrope  each by a number of its own, those of rotary_long where seq is more than
--             rotary_context, else those of rotary_short; sines and cosines by rotary_mscale (0: 1)
--   none
function nn.scaled_rotary(m)
  check_model("scaled_rotary", m)
  local rotary = { base = m.rotary_base, share = m.rotary_share }
  local kind = m.rotary_scaling
  if not (m.rotary_mscale >= 0) then fail("rotary_mscale must be at least 0") end
  if kind == "linear" or kind == "llama3" then rotary.factor = m.rotary_factor end
  if kind == "llama3" then
    rotary.few, rotary.many, rotary.context = m.rotary_few, m.rotary_many, m.rotary_context
  elseif kind == "yarn" then
    stretch_yarn(m, rotary, math.floor(m.head * m.rotary_share), true)
    rotary.scale = m.rotary_mscale > 0 and m.rotary_mscale or 0.1 * math.log(m.rotary_factor) + 1
  elseif kind == "longrope" then
    rotary.factors = m.seq > m.rotary_context and m.rotary_long or m.rotary_short
    rotary.scale = m.rotary_mscale > 0 and m.rotary_mscale or 1.0
  elseif kind ~= "linear" and kind ~= "none" then
    fail("rotary_scaling is '%s'; it can be none, linear, llama3, yarn or longrope", tostring(kind))
  end
  return rotary
end

-- Where documents end is what tells attention that is not causal of its own from the next.
local function check_ends(o)
  if o.document_ends and type(o.document_ends) ~= "userdata" then
    fail("attention: 'document_ends' must be nn.documents' third value")
  end
  if o.document_ends and o.causal then
    fail("attention: 'document_ends' is for attention that is not causal")
  end
  if o.document_ends and not o.documents then
    fail("attention: 'document_ends' needs 'documents', nn.documents' first value")
  end
  if o.documents and not o.causal and not o.document_ends then
    fail("attention: where it is not causal, 'documents' needs 'document_ends', nn.documents' "
      .. "third value")
  end
end

-- What is added to scores, at most one of three: o.score_bias, c [batch, seq, kv_heads, group],
-- adds c_i - c_j for query i and key j; o.forget the sum of the logarithms of forget gates behind j
-- up to i, sigmoid(x wforget + bforget) (Lin et al. 2025, Forgetting Transformer, arXiv
-- 2503.02130);
-- o.alibi is places. -> queries, keys.
local function add_biases(m, x, q, k, o)
  local n = (o.score_bias and 1 or 0) + (o.forget and 1 or 0) + (o.alibi and 1 or 0)
  local scale = o.scale or 1 / math.sqrt(q:dim("head"))
  if n == 0 then return q, k end
  if type(scale) ~= "number" or not (scale >= 1e-6) then
    fail("attention: 'scale' is %s; biases are divided by it: it must be a number, 1e-6 or more",
      tostring(scale))
  end
  if n > 1 then fail("attention: 'score_bias', 'forget' and 'alibi': one of them") end
  if (o.alibi or o.forget) and not o.causal then
    fail("attention: 'alibi' and 'forget' are for causal attention, of keys that came before")
  end
  if o.softcap then fail("attention: 'softcap' would cap biases, too: leave one of them out") end
  if o.alibi then
    return biases.with_distance(m, q, k, o.name .. ".slopes", o.alibi, scale)
  end
  local c = o.score_bias
  if o.forget then
    local heads = { "kv_heads", "group" }
    local w = m:param(o.name .. ".wforget", joined("model", heads),
      { std = o.std, decay = o.decay, muon = o.muon, lr_scale = o.lr_scale, frozen = o.frozen })
    local b = m:param(o.name .. ".bforget", heads,
      { init = "zeros", decay = 0, lr_scale = o.lr_scale, frozen = o.frozen })
    local gate = ops.matmul{ x, w, over = "model", dtype = "f32" } + b
    c = nn.prefix_sum(m, -ops.softplus{ -gate }) -- log sigmoid(gate)
  end
  return biases.with_bias(m, q, k, c, o.name .. ".members", scale)
end

-- ops.attention's p: nil where nothing is dropped.
local function drop_of(layer, p)
  if type(p) ~= "number" or not (p >= 0 and p < 1) then
    fail("%s: 'dropout', of probabilities, must be a number, at least 0 and less than 1", layer)
  end
  return p > 0 and p or nil
end

-- Self-attention: multi-head (Vaswani et al. 2017), or grouped-query (Ainslie et al. 2023) where
-- kv_heads < heads. x [batch, seq, model] -> like x.
-- Parameters: wq [model, kv_heads, group, head], wk and wv [model, kv_heads, head],
-- wo [kv_heads, group, head, model], and with bias: bq, bk, bv, bo.
-- options: name, bias, out_bias (is there bo? as bias if absent), causal, window (positions that
-- each one attends to, itself included; where not causal, as many on the other side; all if
-- absent), rotary (base of rotary positions, or options of nn.rotary; none if absent), scale (of
-- scores; 1 / sqrt(head) if absent), softcap (c: scores x become c tanh(x / c), as in Gemma 2;
-- none if absent), qk_norm (rmsnorm of each head's q and k before positions, with gains qnorm.gain
-- and knorm.gain [head], as in Qwen 3), sinks (each head has a parameter, attn.sinks [kv_heads,
-- group], that is one more score in its softmax, of a key without a value, as in gpt-oss),
-- qk_norm_over (head, or all: of all heads' together, gains [kv_heads, group, head] and [kv_heads,
-- head], as in OLMo), qk_norm_plus_one (of head: the parameters are what gains are more than 1, as
-- in Gemma 3), qk_norm_gains (of head: are there any? not in Llama 4), qk_norm_last (of head: it
-- is behind positions, as in Hunyuan), norm_eps (of it),
-- temperature (a value [batch, seq], nn.temperature's: queries are times it), gate (results are
-- times a sigmoid of x wgate, as in Qwen3-Next), score_bias (a value [batch, seq, kv_heads, group]:
-- scores of query i and key j have its difference, c_i - c_j, added), forget (the same with c the
-- prefix sum of logarithms of forget gates), alibi (nn.places' value: scores less the distance
-- times a slope of each head), documents (nn.documents' first value: a position
-- sees its own only), document_ends (its third: needed with documents where not causal), dropout
-- (of probabilities, behind the softmax), std, out_std (of wo), decay, lr_scale, muon, frozen, lora
-- (its targets: q, k, v, o, attn.gate)
function nn.attention(m, x, options)
  check_arguments("attention", m, x)
  local o = read_options("attention", options,
    { name = "attn", bias = false, out_bias = NONE, causal = true, window = NONE, rotary = NONE,
      scale = NONE, softcap = NONE, qk_norm = false, qk_norm_over = "head",
      qk_norm_plus_one = false, qk_norm_gains = true, qk_norm_last = false, norm_eps = EPS,
      temperature = NONE, score_bias = NONE, forget = false, alibi = NONE, documents = NONE,
      document_ends = NONE, dropout = 0.0,
      sinks = false, std = STD, gate = false, out_std = NONE, decay = NONE, lr_scale = NONE,
      muon = NONE, frozen = NONE, lora = NONE })
  if o.qk_norm_over ~= "head" and o.qk_norm_over ~= "all" then
    fail("attention: qk_norm_over is '%s'; it can be head or all", o.qk_norm_over)
  end
  if o.qk_norm_last and o.qk_norm_over ~= "head" then
    fail("attention: 'qk_norm_last' is of each head's q and k, qk_norm_over = head")
  end
  local out_bias = o.bias
  if o.out_bias ~= nil then out_bias = o.out_bias end
  local shared = { has = { q = true, k = true, v = true, ["attn.gate"] = o.gate } }
  local function project(letter, y, from, to, std)
    local has_bias = o.bias
    if letter == "o" then has_bias = out_bias end
    local bias = has_bias and o.name .. ".b" .. letter or nil
    return nn.linear(m, y, from, to,
      { weight = o.name .. ".w" .. letter, bias = bias, std = std, decay = o.decay,
        lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen,
        lora = read_lora(o.lora, letter == "gate" and "attn.gate" or letter, shared) })
  end
  local q = project("q", x, "model", { "kv_heads", "group", "head" }, o.std)
  local k = project("k", x, "model", { "kv_heads", "head" }, o.std)
  local v = project("v", x, "model", { "kv_heads", "head" }, o.std)
  if o.qk_norm and o.qk_norm_over == "all" then
    q = rmsnorm_over(m, q, { "kv_heads", "group", "head" }, nil, o.name .. ".qnorm", o.norm_eps)
    k = rmsnorm_over(m, k, { "kv_heads", "head" }, nil, o.name .. ".knorm", o.norm_eps)
  end
  local function norm(y, name)
    if not o.qk_norm_gains then return rmsnorm_over(m, y, { "head" }, nil, nil, o.norm_eps) end
    return nn.rmsnorm(m, y, "head",
      { name = o.name .. "." .. name, eps = o.norm_eps, plus_one = o.qk_norm_plus_one })
  end
  local by_head = o.qk_norm and o.qk_norm_over == "head"
  if by_head and not o.qk_norm_last then q, k = norm(q, "qnorm"), norm(k, "knorm") end
  if o.temperature and type(o.temperature) ~= "userdata" then
    fail("attention: 'temperature' must be a value [batch, seq], nn.temperature's")
  end
  if o.temperature then q = q * o.temperature end
  if o.rotary then
    local rotary = type(o.rotary) == "number" and { base = o.rotary } or o.rotary
    if type(rotary) ~= "table" then
      fail("attention: 'rotary' must be a number, the base, or a table of nn.rotary's options")
    end
    q, k = nn.rotary(q, rotary), nn.rotary(k, rotary)
  end
  if by_head and o.qk_norm_last then q, k = norm(q, "qnorm"), norm(k, "knorm") end
  if o.window and type(o.window) ~= "number" then
    fail("attention: 'window' must be a number of positions")
  end
  if o.documents and type(o.documents) ~= "userdata" then
    fail("attention: 'documents' must be nn.documents' first value")
  end
  check_ends(o)
  local more = { o.documents or nil, o.document_ends or nil }
  if o.sinks then
    more[#more + 1] = m:param(o.name .. ".sinks", { "kv_heads", "group" },
      { init = "zeros", decay = 0, muon = 0, lr_scale = o.lr_scale, frozen = o.frozen })
  end
  local scale = o.scale or 1 / math.sqrt(q:dim("head"))
  q, k = add_biases(m, x, q, k, o)
  local y = ops.attention{ q, k, v, more[1], more[2], more[3], seq = "seq", head = q.axes[5],
                           causal = o.causal, window = o.window, softcap = o.softcap or nil,
                           scale = scale, p = drop_of("attention", o.dropout) }
  if o.gate then
    y = y * ops.sigmoid{ project("gate", x, "model", { "kv_heads", "group", "head" }, o.std) }
  end
  return project("o", y, { "kv_heads", "group", "head" }, "model", residual_std(m, o))
end

-- The two parts of a head's queries or keys, the second after rotary positions, side by side.
local function with_positions(nope, rope, o)
  if o.rotary == false then
    return ops.concat{ nope, rope, over = { "nope", "rope" }, to = "head" }
  end
  local rotary = o.rotary or {}
  if type(rotary) == "number" then rotary = { base = rotary } end
  if type(rotary) ~= "table" then
    fail("mla: 'rotary' must be a number, the base, or a table of nn.rotary's options")
  end
  local turned = {}
  for key, value in pairs(rotary) do turned[key] = value end
  turned.head = "rope"
  return ops.concat{ nope, nn.rotary(rope, turned), over = { "nope", "rope" }, to = "head" }
end

local function check_mla(m, o)
  for _, axis in ipairs{ "heads", "head", "nope", "rope", "value", "kv_rank" } do
    if math.type(m:setting(axis)) ~= "integer" then
      fail("mla: the model's axes need '%s'; they are heads, nope and rope (of a head's queries "
        .. "and keys, without and with positions), value (of a head's values) and kv_rank", axis)
    end
  end
  if m.head ~= m.nope + m.rope then
    fail("mla: head is %d; it must be nope + rope, %d, which it is if it is not given", m.head,
      m.nope + m.rope)
  end
  if m.kv_heads ~= m.heads then
    fail("mla: kv_heads is %d and heads %d; latent attention has as many of both", m.kv_heads,
      m.heads)
  end
  if math.type(o.q_rank) ~= "integer" or o.q_rank < 0 then
    fail("mla: 'q_rank' must be a whole number, 0 for queries made of x itself, not %s",
      tostring(o.q_rank))
  end
end

-- Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values are
-- made of a latent of kv_rank numbers a token, queries of one of q_rank; positions are in `rope`
-- numbers of a head, whose keys all heads share. x [batch, seq, model] -> like x.
-- Parameters: wq_a [model, q_rank], qnorm.gain [q_rank], wq_b_nope [q_rank, heads, nope], wq_b_rope
-- [q_rank, heads, rope] (with q_rank = 0 instead wq_nope and wq_rope, of model), wkv_a [model,
-- kv_rank], wk_rope [model, rope], kvnorm.gain [kv_rank], wk [kv_rank, heads, nope], wv [kv_rank,
-- heads, value], wo [heads, value, model].
-- Axes heads, nope, rope, value and kv_rank are the model's, head = nope + rope; q_rank is made.
-- Latents are whole on every rank of t, which divides heads.
-- options: name, q_rank, rotary (base, or options of nn.rotary; false: no positions), scale (of
-- scores; 1 / sqrt(head) if absent), norm_eps, causal, documents (nn.documents' first value;
-- causal), dropout (of probabilities), std, out_std (of wo), decay, lr_scale, muon, frozen, lora
-- (its targets: q, wq_a and what is made of it; k, wkv_a, wk and wk_rope; v, wv; o)
function nn.mla(m, x, options)
  check_arguments("mla", m, x)
  local o = read_options("mla", options,
    { name = "attn", q_rank = 0, rotary = NONE, scale = NONE, norm_eps = EPS, causal = true,
      documents = NONE, dropout = 0.0, std = STD, out_std = NONE, decay = NONE, lr_scale = NONE,
      muon = NONE, frozen = NONE, lora = NONE })
  check_mla(m, o)
  if o.documents and not o.causal then
    fail("mla: 'documents' is for causal attention; that of nn.attention may be any")
  end
  local function linear(y, from, to, weight, std)
    return nn.linear(m, y, from, to,
      { weight = o.name .. "." .. weight, std = std or o.std, decay = o.decay,
        lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen,
        lora = read_lora(o.lora, weight:sub(2, 2), false) }) -- q of wq_a, k of wkv_a, ...
  end
  local function latent(to, weight, norm)
    return nn.rmsnorm(m, linear(x, "model", to, weight), to,
      { name = o.name .. "." .. norm, eps = o.norm_eps })
  end
  local from, source, wq = "model", x, "wq_"
  if o.q_rank > 0 then
    option_axis(m, "q_rank", o.q_rank, "mla", "q_rank", o.q_rank)
    from, source, wq = "q_rank", latent("q_rank", "wq_a", "qnorm"), "wq_b_"
  end
  local q = with_positions(linear(source, from, { "heads", "nope" }, wq .. "nope"),
    linear(source, from, { "heads", "rope" }, wq .. "rope"), o)
  local c = latent("kv_rank", "wkv_a", "kvnorm")
  local k = with_positions(linear(c, "kv_rank", { "heads", "nope" }, "wk"),
    linear(x, "model", "rope", "wk_rope"), o)
  local v = linear(c, "kv_rank", { "heads", "value" }, "wv")
  local y = ops.attention{ q, k, v, o.documents or nil, seq = "seq", head = "head",
                           causal = o.causal, scale = o.scale or 1 / math.sqrt(m.head),
                           p = drop_of("mla", o.dropout) }
  return linear(y, { "heads", "value" }, "model", "wo", residual_std(m, o))
end

-- Biases of attention's scores by how far a key is from its query, in buckets (Raffel et al. 2020,
-- T5, section 2.1), for nn.relative_attention: one table [relative, heads], which the layers of a
-- stack share. options: buckets (32), distance (from which on positions share the last one; 128),
-- causal (keys after the query are hidden; if absent each has buckets too, half of all), std,
-- decay, lr_scale, frozen
function nn.relative_positions(m, name, options)
  check_model("relative_positions", m)
  local o = read_options("relative_positions", options,
    { buckets = 32, distance = 128, causal = false, std = STD, decay = NONE, lr_scale = NONE,
      frozen = NONE })
  option_axis(m, "relative", o.buckets, "relative_positions", "buckets", o.buckets)
  local biases = m:param(name, { "relative", "heads" },
    { std = o.std, decay = o.decay, lr_scale = o.lr_scale, frozen = o.frozen, muon = 0 })
  return { table = biases, distance = o.distance, causal = o.causal }
end

-- The axis of positions of x [batch, positions, model].
local function positions_of(layer, what, x)
  local axes = x.axes
  if #axes ~= 3 or axes[1] ~= "batch" or axes[3] ~= "model" then
    fail("%s: %s is [%s]; it must be [batch, seq, model], or of another sequence", layer, what,
      table.concat(axes, ", "))
  end
  return axes[2]
end

-- -1e30 for keys that are padding, else 0: [batch, keys]. padding: { tokens, the one that is }.
local function hidden_keys(padding, positions, keys)
  if type(padding) ~= "table" or type(padding[1]) ~= "userdata"
    or math.type(padding[2]) ~= "integer" then
    fail("relative_attention: 'padding' must be { tokens, the token that is no one's }")
  end
  local hidden = ops.equal{ padding[1], padding[2] } * -1e30
  return keys ~= positions and ops.rename{ hidden, axis = positions, to = keys } or hidden
end

-- Multi-head attention whose scores are a value of the graph, [batch, heads, positions, keys] in
-- f32: with biases by relative position, with padding among the keys, with dropout of its weights
-- (Vaswani et al. 2017, as T5 has it), of x itself or of another sequence (cross-attention).
-- x [batch, seq, model], context nil: x; or [batch, source, model], say -> like x.
-- Parameters: wq, wk and wv [model, heads, head], wo [heads, head, model].
-- Memory and time are those of all scores; what needs none of this has them in nn.attention.
-- options: name, relative (nn.relative_positions'; of x itself only), padding ({ tokens of the
-- context, the one that no one attends to }), scale (of scores; 1 / sqrt(head) if absent), dropout
-- (of weights), q_std (of wq; std if absent), std, out_std (of wo), decay, lr_scale, muon, frozen
function nn.relative_attention(m, x, context, options)
  check_arguments("relative_attention", m, x)
  local o = read_options("relative_attention", options,
    { name = "attn", relative = NONE, padding = NONE, scale = NONE, dropout = 0.0, q_std = NONE,
      std = STD, out_std = NONE, decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE })
  if context ~= nil and type(context) ~= "userdata" then
    fail("relative_attention: the third argument, the context, must be a value or nil: x itself")
  end
  local itself = context == nil
  local queries = positions_of("relative_attention", "x", x)
  local positions = itself and queries
    or positions_of("relative_attention", "the context", context)
  local keys = positions
  if o.relative and (type(o.relative) ~= "table" or not o.relative.table) then
    fail("relative_attention: 'relative' must be what nn.relative_positions returns")
  end
  if o.relative and not itself then
    fail("relative_attention: 'relative' is for x itself: another sequence has other positions")
  end
  local function project(y, letter, from, to, std)
    return nn.linear(m, y, from, to, { weight = o.name .. ".w" .. letter, std = std,
      decay = o.decay, lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen })
  end
  local split = { "heads", "head" }
  local q = project(x, "q", "model", split, o.q_std or o.std)
  local k = project(context or x, "k", "model", split, o.std)
  local v = project(context or x, "v", "model", split, o.std)
  if positions == queries then -- an axis has one place in a value: keys need another name
    keys = positions .. "_keys"
    m:axis(keys, x:dim(positions))
    k = ops.rename{ k, axis = positions, to = keys }
    v = ops.rename{ v, axis = positions, to = keys }
  end
  local scores = ops.matmul{ q, k, over = "head", dtype = "f32" }
  local scale = o.scale or 1 / math.sqrt(q:dim("head"))
  if scale ~= 1 then scores = scores * scale end
  if o.padding then scores = scores + hidden_keys(o.padding, positions, keys) end
  if o.relative then
    scores = ops.relative_bias{ scores, o.relative.table, seq = queries, keys = keys,
                                causal = o.relative.causal, distance = o.relative.distance }
  end
  local y = ops.matmul{ nn.dropout(nn.softmax(scores, keys), o.dropout), v, over = keys }
  return project(y, "o", split, "model", residual_std(m, o))
end

end

return attention
