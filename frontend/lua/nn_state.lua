-- nn_state: layers that carry a state along the sequence, a part of nn. `nn` is what it adds to,
-- `tools` what layers of nn share.
--
-- Their axes: state_groups, whose members share queries and keys; state_heads, the heads of each
-- group; state_keys and state_values, the two sides of a head's state.
local state = {}

function state.add(nn, tools)

local ops = ops
local fail, read_options, joined = tools.fail, tools.read_options, tools.joined
local check_arguments, residual_std = tools.check_arguments, tools.residual_std
local option_axis, activate = tools.option_axis, tools.activate
local rmsnorm_over = tools.rmsnorm_over
local check_coefficient = tools.check_coefficient
local read_lora, adapter = tools.read_lora, tools.adapter
local NONE, STD, EPS = tools.NONE, tools.STD, tools.EPS

local HEADS = { "state_groups", "state_heads" }
local KEYS = { "state_groups", "state_keys" }
local VALUES = { "state_groups", "state_heads", "state_values" }
local EACH_KEY = { "state_groups", "state_heads", "state_keys" } -- of each head

-- Adapters that share an A where their targets do not say otherwise, as PEFT's do: what is one
-- matrix in Hugging Face's files of Mamba-2 and its kin, of LFM2, of Qwen3-Next, and of Qwen 3.5.
local STATE_SPACE = { { "state.z", "state.x", "state.b", "state.c", "state.dt" } }
local SHORT = { { "short.b", "short.c", "short.x" } }
local DELTA_JOINED = { { "state.q", "state.k", "state.v", "state.z" }, { "state.beta", "state.a" } }
local DELTA_APART = { { "state.q", "state.k", "state.v" } }
local KIMI_DELTA = { { "state.q" }, { "state.k" }, { "state.v" }, { "state.beta" } }
local GATED_LINEAR = { { "state.q" }, { "state.k" }, { "state.v" }, { "state.z" } }

-- Lists of `groups` as a set, and with `more` lists, too: targets that read what their layer does.
local function set_of(groups, more)
  local set = {}
  for _, lists in ipairs{ groups, more } do
    for _, list in ipairs(lists) do
      for _, target in ipairs(list) do set[target] = true end
    end
  end
  return set
end

local function convolve(layer, m, x, options)
  check_arguments(layer, m, x)
  local o = read_options(layer, options,
    { weight = "conv.w", bias = NONE, taps = 4, act = NONE, places = NONE, lr_scale = NONE,
      frozen = NONE })
  if math.type(o.taps) ~= "integer" or o.taps < 1 or o.taps > 8 then
    fail("%s: 'taps' must be a whole number from 1 to 8", layer)
  end
  if o.places and type(o.places) ~= "userdata" then
    fail("%s: 'places' must be nn.documents' second value", layer)
  end
  local channels, bound = {}, 1 / math.sqrt(o.taps)
  for i = 3, #x.axes do channels[#channels + 1] = x.axes[i] end
  option_axis(m, "taps", o.taps, layer, "taps", o.taps)
  local drawn = { init = "uniform", low = -bound, high = bound, decay = 0,
                  lr_scale = o.lr_scale, frozen = o.frozen }
  local w = m:param(o.weight, joined("taps", channels), drawn)
  local y = ops.convolve{ x, w, o.places, seq = "seq", axis = "taps" }
  if o.bias then y = y + m:param(o.bias, channels, drawn) end
  return o.act and activate(layer, o.act, y) or y
end

-- A short causal convolution of each channel by itself. x [batch, seq, channels...] -> like x; a
-- parameter `weight` [taps, channels...], of which the last tap is the position's own, and with
-- `bias` one [channels...], both drawn as PyTorch's conv1d draws them.
-- options: weight, bias (names), taps, act (none if absent), places (nn.documents' second value:
-- nothing of another document is seen), lr_scale, frozen
function nn.convolve(m, x, options)
  return convolve("convolve", m, x, options)
end

-- A gated short convolution (as LFM2 has it: Liquid AI 2025): c and b are gates, y = c * convolve(b
-- * v), the result y wo. x [batch, seq, model] -> like x. Parameters: wb, wc and wx [model,
-- channels], conv [taps, channels], wo [channels, model]; channels are as many as model, and t
-- divides them.
-- options: name, taps, places (nn.documents' second value: nothing of another document is seen),
-- std, out_std (of wo), decay, lr_scale, muon, frozen, lora (its targets: short.b, .c, .x, .o; with
-- short.in or short the first three share an A)
function nn.short_convolution(m, x, options)
  check_arguments("short_convolution", m, x)
  local o = read_options("short_convolution", options,
    { name = "short", taps = 3, places = NONE, std = STD, out_std = NONE, decay = NONE,
      lr_scale = NONE, muon = NONE, frozen = NONE, lora = NONE })
  m:axis("channels", x:dim("model"))
  local shared = { groups = SHORT }
  local function linear(letter, y, from, to, std)
    return nn.linear(m, y, from, to, { weight = o.name .. ".w" .. letter, std = std,
      decay = o.decay, lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen,
      lora = read_lora(o.lora, "short." .. letter, shared) })
  end
  local b = linear("b", x, "model", "channels", o.std)
  local c = linear("c", x, "model", "channels", o.std)
  local v = linear("x", x, "model", "channels", o.std)
  local y = convolve("short_convolution", m, b * v, { weight = o.name .. ".conv", taps = o.taps,
    places = o.places, lr_scale = o.lr_scale, frozen = o.frozen })
  return linear("o", c * y, "channels", "model", residual_std(m, o))
end

local function check_axes(layer, m)
  for _, axis in ipairs{ "state_groups", "state_heads", "state_keys", "state_values" } do
    if math.type(m:setting(axis)) ~= "integer" then
      fail("%s: the model's axes need '%s'; they are state_groups (that share queries and keys), "
        .. "state_heads (of each group), state_keys and state_values (of a head)", layer, axis)
    end
  end
end

local COMMON = { name = NONE, taps = 4, conv_bias = NONE, dt_least = 0.001, dt_most = 0.1,
                 decay_most = 16.0, norm_eps = EPS, places = NONE, std = STD, out_std = NONE,
                 decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE, lora = NONE }

local function read_common(layer, m, x, given, more)
  check_arguments(layer, m, x)
  check_axes(layer, m)
  local defaults = {}
  for key, value in pairs(COMMON) do defaults[key] = value end
  for key, value in pairs(more) do defaults[key] = value end
  local o = read_options(layer, given, defaults)
  if not (o.dt_least > 0 and o.dt_least <= o.dt_most and o.dt_most < 1) then
    fail("%s: 'dt_least' and 'dt_most' must be steps between 0 and 1, the lesser first", layer)
  end
  if not (o.decay_most >= 1) then fail("%s: 'decay_most' must be at least 1", layer) end
  return o
end

-- What a layer makes of x [batch, seq, model]: products, products with a convolution behind them,
-- and numbers for each head, in f32, as what decays is a power of them. groups: targets of adapters
-- that share an A; others: more of them that can.
local function projections(layer, m, x, o, groups, others)
  local made, shared = {}, { groups = groups, has = set_of(groups, others) }
  local function lora_of(letter) -- of f_a and f_b, f
    return read_lora(o.lora, "state." .. letter:match("^%a+"), shared)
  end
  local function options(std, lora)
    return { std = std or o.std, decay = o.decay, lr_scale = o.lr_scale, muon = o.muon,
             frozen = lora and 1 or o.frozen }
  end
  -- x W of a new weight, in `dtype` if not x's.
  local function product(letter, y, from, to, all, lora, dtype)
    local name = o.name .. ".w" .. letter
    local z = ops.matmul{ y, m:param(name, joined(from, to), all), over = from, dtype = dtype }
    return lora and z + adapter(m, y, from, to, name, lora, nil, dtype) or z
  end
  function made.linear(letter, y, from, to, std)
    local all = options(std)
    all.weight, all.lora = o.name .. ".w" .. letter, lora_of(letter)
    return nn.linear(m, y, from, to, all)
  end
  -- What the layer's options multiply a product by, if anything.
  function made.scaled(letter, y)
    local by = o.scales and o.scales[letter] or 1
    return by ~= 1 and y * by or y
  end
  function made.convolved(letter, to)
    return convolve(layer, m, made.scaled(letter, made.linear(letter, x, "model", to)),
      { weight = o.name .. ".conv." .. letter, taps = o.taps, act = "silu", places = o.places,
        lr_scale = o.lr_scale, frozen = o.frozen,
        bias = o.conv_bias and o.name .. ".conv.b" .. letter or nil })
  end
  function made.heads(letter)
    local lora = lora_of(letter)
    local all = options(nil, lora)
    all.muon = 0
    return made.scaled(letter, product(letter, x, "model", HEADS, all, lora, "f32"))
  end
  -- Two products with few numbers between them, the second in `dtype`.
  function made.low_rank(letter, axis, to, dtype)
    local lora = lora_of(letter)
    return product(letter .. "_b", made.linear(letter .. "_a", x, "model", axis), axis, to,
      options(nil, lora), lora, dtype)
  end
  return made
end

-- At the beginning of a document the state decays to nothing.
local function begun(log_decay, o)
  return o.places and log_decay - ops.equal{ o.places, 0 } * 1e4 or log_decay
end

-- Steps dt = softplus(of + dt_bias) and logarithms of decays -exp(a_log) dt. At first steps lie
-- between dt_least and dt_most (softplus of a small number's logarithm is that number, nearly) and
-- rates between 1 and decay_most, evenly by their logarithms. Steps are of each head, or of `axes`.
local function decays(m, of, o, axes)
  local bias = m:param(o.name .. ".dt_bias", axes or HEADS,
    { init = "uniform", low = math.log(o.dt_least), high = math.log(o.dt_most), decay = 0,
      lr_scale = o.lr_scale, frozen = o.frozen })
  local rate = m:param(o.name .. ".a_log", HEADS,
    { init = "uniform", low = 0.0, high = math.log(o.decay_most), decay = 0,
      lr_scale = o.lr_scale, frozen = o.frozen })
  local dt = ops.softplus{ of + bias }
  if (o.dt_floor or 0) > 0 then dt = ops.maximum{ dt, ops.const{ value = o.dt_floor } } end
  return dt, begun(-(dt * ops.exp{ rate }), o)
end

local function check_scales(scales)
  if scales ~= nil and type(scales) ~= "table" then
    fail("state_space: 'scales' must be a table of numbers, { z = 1, x = 1, b = 1, c = 1, dt = 1 }")
  end
  for name, by in pairs(scales or {}) do
    local known = name == "z" or name == "x" or name == "b" or name == "c" or name == "dt"
    if not known then
      fail("state_space: 'scales' has z, x, b, c and dt, not '%s'", tostring(name))
    end
    check_coefficient("state_space", "scales." .. name, by)
  end
end

-- Mamba-2's layer, a selective state space as linear attention (Dao & Gu 2024, arXiv 2405.21060,
-- section 7). x [batch, seq, model] -> like x. B, C and x of the paper are keys, queries, values:
--   y = linear_attention(q, k, dt v, -exp(a_log) dt) + d v,   out = rmsnorm(y silu(z)) wo
-- Parameters: wz and wx [model, state_groups, state_heads, state_values], wb and wc [model,
-- state_groups, state_keys], wdt [model, state_groups, state_heads], convolutions of x, b and c,
-- dt_bias, a_log and d [state_groups, state_heads], norm.gain [state_groups, state_heads,
-- state_values], wo.
-- options: name, taps, conv_bias, norm_over (group: of each group's values, or all, or none: y
-- silu(z) as it is), gate_last (the gate is behind the norm: rmsnorm(y) silu(z)), norm_eps, scales
-- (what products are times, { z =, x =, b =, c =, dt = }, as in Falcon-H1; 1 if absent), dt_floor
-- (steps are no less, as in Nemotron-H), places (nn.documents' second value: nothing passes from a
-- document to the next), dt_least, dt_most, decay_most (what steps and rates are drawn between),
-- std, out_std (of wo), decay and muon (of products' weights), lr_scale, frozen (but for the norm's
-- gain, as norms' are), lora (its targets: state.z, .x, .b, .c, .dt, .o; with state.in or state all
-- but the last share an A)
function nn.state_space(m, x, options)
  local o = read_common("state_space", m, x, options,
    { name = "ssm", conv_bias = true, norm_over = "group", gate_last = false, scales = NONE,
      dt_floor = 0.0 })
  if o.norm_over ~= "all" and o.norm_over ~= "group" and o.norm_over ~= "none" then
    fail("state_space: norm_over is '%s'; it can be all, group or none", o.norm_over)
  end
  check_scales(o.scales)
  if not (o.dt_floor >= 0 and o.dt_floor < 1) then
    fail("state_space: 'dt_floor' must be a step at least 0 and less than 1")
  end
  local made = projections("state_space", m, x, o, STATE_SPACE)
  local z = made.scaled("z", made.linear("z", x, "model", VALUES))
  local v = made.convolved("x", VALUES)
  local k, q = made.convolved("b", KEYS), made.convolved("c", KEYS)
  local dt, log_decay = decays(m, made.heads("dt"), o)
  local y = ops.linear_attention{ q, k, v * dt, log_decay, seq = "seq", head = "state_keys",
                                  scale = 1.0 }
  y = y + v * m:param(o.name .. ".d", HEADS,
    { init = "ones", decay = 0, lr_scale = o.lr_scale, frozen = o.frozen })
  local over = o.norm_over == "group" and { "state_heads", "state_values" } or nil
  if not o.gate_last then y = y * ops.silu{ z } end
  if o.norm_over ~= "none" then
    y = rmsnorm_over(m, y, VALUES, over, o.name .. ".norm", o.norm_eps)
  end
  if o.gate_last then y = y * ops.silu{ z } end
  return made.linear("o", y, VALUES, "model", residual_std(m, o))
end

-- x / sqrt(sum of squares + 1e-6) along the keys, as Gated DeltaNet's queries and keys are.
local function unit(x)
  local squares = ops.matmul{ x, x, over = "state_keys", dtype = "f32" }
  return x * ops.rsqrt{ squares + 1e-6 }
end

-- Gated DeltaNet's layer (Yang et al. 2024, arXiv 2412.06464; as in Qwen3-Next): the state forgets
-- what it had for a key before it takes up the key's new value, by a share sigmoid(x wbeta).
-- x [batch, seq, model] -> like x:
--   y = linear_attention(unit q, unit k, v, -exp(a_log) softplus(x wa + dt_bias), sigmoid(x wbeta))
--   out = (rmsnorm(y) silu(z)) wo, the norm of each head
-- Parameters: wq and wk [model, state_groups, state_keys], wv and wz [model, state_groups,
-- state_heads, state_values], wa and wbeta [model, state_groups, state_heads], convolutions of q, k
-- and v, dt_bias and a_log [state_groups, state_heads], norm.gain [state_values], wo.
-- options: name, taps, conv_bias, norm_eps, places, dt_least, dt_most, decay_most, std, out_std,
-- decay, muon, lr_scale and frozen, as nn.state_space's; negative (shares are twice as much, up to
-- 2, where the state turns over what it had: Grazzi et al. 2024, arXiv 2411.12537, as in OLMo's
-- hybrids); lora (its targets: state.q, .k, .v, .z, .beta, .a, .o), joined (with state.in or state,
-- adapters of q, k, v and z share an A, and those of beta and a, as Qwen3-Next has them in one
-- matrix; else those of q, k and v, as Qwen 3.5)
function nn.delta_net(m, x, options)
  local o = read_common("delta_net", m, x, options,
    { name = "delta", conv_bias = false, negative = false, joined = true })
  local made = projections("delta_net", m, x, o, o.joined and DELTA_JOINED or DELTA_APART,
    DELTA_JOINED)
  local q, k = unit(made.convolved("q", KEYS)), unit(made.convolved("k", KEYS))
  local v, z = made.convolved("v", VALUES), made.linear("z", x, "model", VALUES)
  local _, log_decay = decays(m, made.heads("a"), o)
  local beta = ops.sigmoid{ made.heads("beta") }
  if o.negative then beta = beta * 2 end
  local y = ops.linear_attention{ q, k, v, log_decay, beta, seq = "seq", head = "state_keys",
                                  scale = 1 / math.sqrt(m.state_keys) }
  y = nn.rmsnorm(m, y, "state_values", { name = o.name .. ".norm", eps = o.norm_eps })
  return made.linear("o", y * ops.silu{ z }, VALUES, "model", residual_std(m, o))
end

local function rank_axis(m, layer, o, axis)
  if math.type(o.rank) ~= "integer" or o.rank < 1 then
    fail("%s: 'rank' must be a whole number from 1, not %s", layer, tostring(o.rank))
  end
  option_axis(m, axis, o.rank, layer, "rank", o.rank)
end

-- Kimi Delta Attention (Kimi Team 2025, arXiv 2510.26692, section 4): Gated DeltaNet's layer, but
-- each key's part of a state decays by a number of its own. x [batch, seq, model] -> like x:
--   y = linear_attention(unit q, unit k, v, -exp(a_log) softplus(x wf_a wf_b + dt_bias),
--                        sigmoid(x wbeta))
--   out = (rmsnorm(y) sigmoid(x wg_a wg_b)) wo, the norm of each head
-- Parameters: those of nn.delta_net but wz and wa; wf_a and wg_a [model, state_rank], wf_b
-- [state_rank, state_groups, state_heads, state_keys], wg_b [state_rank, state_groups, state_heads,
-- state_values]; dt_bias [state_groups, state_heads, state_keys].
-- options: those of nn.delta_net but joined; rank (state_rank's; state_values if absent, as
-- published). lora's targets: state.q, .k, .v, .beta, .f and .g (both products of each), .o
function nn.kimi_delta(m, x, options)
  local o = read_common("kimi_delta", m, x, options,
    { name = "kda", conv_bias = false, rank = m:setting("state_values") or 1 })
  rank_axis(m, "kimi_delta", o, "state_rank")
  local made = projections("kimi_delta", m, x, o, KIMI_DELTA)
  local q, k = unit(made.convolved("q", KEYS)), unit(made.convolved("k", KEYS))
  local v = made.convolved("v", VALUES)
  local _, log_decay = decays(m, made.low_rank("f", "state_rank", EACH_KEY, "f32"), o, EACH_KEY)
  local beta = ops.sigmoid{ made.heads("beta") }
  local y = ops.linear_attention{ q, k, v, log_decay, beta, seq = "seq", head = "state_keys",
                                  scale = 1 / math.sqrt(m.state_keys) }
  y = nn.rmsnorm(m, y, "state_values", { name = o.name .. ".norm", eps = o.norm_eps })
  local gate = ops.sigmoid{ made.low_rank("g", "state_rank", VALUES) }
  return made.linear("o", y * gate, VALUES, "model", residual_std(m, o))
end

-- Gated linear attention (Yang et al. 2024, arXiv 2312.06635, section 4.4): each key's part of a
-- state decays by a number of its own, without the delta rule or convolutions.
-- x [batch, seq, model] -> like x:
--   y = linear_attention(q, k, v, log sigmoid(x wa_a wa_b + ba) / temper)
--   out = (rmsnorm(y) silu(x wz)) wo, the norm of each head
-- Parameters: wq and wk [model, state_groups, state_keys], wv and wz [model, state_groups,
-- state_heads, state_values], wa_a [model, decay_rank], wa_b [decay_rank, state_groups,
-- state_heads, state_keys], ba [state_groups, state_heads, state_keys], norm.gain [state_values],
-- wo.
-- options: name, rank (decay_rank's), temper (decays are to the power of 1 / temper, so that they
-- are near 1), norm_eps, places (nn.documents' second value: nothing passes from a document to the
-- next), std, out_std (of wo), decay and muon (of products' weights), lr_scale, frozen, lora (its
-- targets: state.q, .k, .v, .z, .a (both products), .o)
function nn.gated_linear_attention(m, x, options)
  local layer = "gated_linear_attention"
  check_arguments(layer, m, x)
  check_axes(layer, m)
  local o = read_options(layer, options,
    { name = "gla", rank = 16, temper = 16.0, norm_eps = EPS, places = NONE, std = STD,
      out_std = NONE, decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE, lora = NONE })
  check_coefficient(layer, "temper", o.temper)
  rank_axis(m, layer, o, "decay_rank")
  local made = projections(layer, m, x, o, GATED_LINEAR)
  local q, k = made.linear("q", x, "model", KEYS), made.linear("k", x, "model", KEYS)
  local v, z = made.linear("v", x, "model", VALUES), made.linear("z", x, "model", VALUES)
  local bias = m:param(o.name .. ".ba", EACH_KEY,
    { init = "zeros", decay = 0, lr_scale = o.lr_scale, frozen = o.frozen })
  local of = made.low_rank("a", "decay_rank", EACH_KEY, "f32") + bias
  local y = ops.linear_attention{ q, k, v, begun(-ops.softplus{ -of } * (1 / o.temper), o),
                                  seq = "seq", head = "state_keys",
                                  scale = 1 / math.sqrt(m.state_keys) }
  y = nn.rmsnorm(m, y, "state_values", { name = o.name .. ".norm", eps = o.norm_eps })
  return made.linear("o", y * ops.silu{ z }, VALUES, "model", residual_std(m, o))
end

end

return state
