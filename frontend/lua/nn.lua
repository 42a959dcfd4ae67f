-- nn: layers made of ops. `local nn = require "nn"` in a model.
--
-- A layer takes the model object `m` (for its parameters), the values it works on, and a table of
-- options; it returns a value. Parameters are named by the layer's `name` (a block adds its own
-- "blocks.#." in front). Weights are drawn from N(0, 0.02^2) and those that add to the residual
-- stream from N(0, (0.02 / sqrt(2 layers))^2) (Radford et al. 2019, GPT-2, section 2.3). Layers
-- that make weights have the options `std`, in place of 0.02, `decay` (weight decay is so often the
-- recipe's; 0: it leaves them alone), `lr_scale` (their learning rate is so many times that of
-- others), `muon` (0: AdamW updates them where the optimizer is Muon; 1: Muon does, though they are
-- the head) and `frozen` (1: they stay as they are made or loaded); those that end in the residual
-- stream have `out_std` for the weight that does. Layers of attention, layers with a state and
-- feed-forward layers have `lora` (see nn.lora).
--
-- Dropout is applied to the embeddings' sum and to what each residual branch adds. Dropout of
-- attention probabilities is nn.relative_attention's: the attention op does not hold them.

local ops = ops
local nn = {}

local STD = 0.02
local EPS = 1e-5

-- Errors name no line of this file: the front end adds the line of the model that called.
local function fail(text, ...) error(text:format(...), 0) end

-- `given` over `defaults`; an option that has no default but may be given has the default NONE.
local NONE = {}
local function read_options(layer, given, defaults)
  if given ~= nil and type(given) ~= "table" then
    fail("%s: options must be a table, not a %s", layer, type(given))
  end
  local options = {}
  for key, value in pairs(defaults) do
    if value ~= NONE then options[key] = value end
  end
  for key, value in pairs(given or {}) do
    if defaults[key] == nil then
      local known = {}
      for name in pairs(defaults) do known[#known + 1] = name end
      fail("%s: unknown option '%s'; known: %s", layer, tostring(key), table.concat(known, ", "))
    end
    local default = defaults[key]
    if default ~= NONE and type(default) ~= type(value) then
      fail("%s: option '%s' must be a %s, not a %s", layer, key, type(default), type(value))
    end
    options[key] = value
  end
  return options
end

-- The commonest slip is to leave `m` out.
local function check_model(layer, m)
  if type(m) ~= "table" or not m.param then fail("%s: the first argument must be m", layer) end
end

local function check_arguments(layer, m, x)
  check_model(layer, m)
  if type(x) ~= "userdata" then
    fail("%s: the second argument must be a value, not a %s", layer, type(x))
  end
end

-- What a loss or a product is multiplied by: zero or more where `from_zero`, else more.
local function check_coefficient(layer, option, value, from_zero)
  local good = type(value) == "number" and value <= 1e6 and (value > 0 or from_zero and value == 0)
  if good then return end
  fail("%s: '%s' must be a number %s, not %s", layer, option,
    from_zero and "from 0 to 1e6" or "more than 0 and at most 1e6",
    value ~= value and "NaN" or tostring(value))
end

local function as_list(axes) return type(axes) == "table" and axes or { axes } end

local function joined(a, b)
  local list = {}
  for _, axis in ipairs(as_list(a)) do list[#list + 1] = axis end
  for _, axis in ipairs(as_list(b)) do list[#list + 1] = axis end
  return list
end

-- An axis whose size an option says: axes have one size in a model, so the option has one value.
local sizes_of = setmetatable({}, { __mode = "k" }) -- by model, then axis
local function option_axis(m, axis, size, layer, option, value)
  local sizes = sizes_of[m] or {}
  local earlier = sizes[axis]
  if earlier and earlier.size ~= size then
    fail("%s: '%s' is %s here and %s in an earlier layer; it must be the same in all layers of a "
      .. "model", layer, option, value, earlier.value)
  end
  m:axis(axis, size)
  sizes[axis] = { size = size, value = value }
  sizes_of[m] = sizes
end

-- Of the weight that adds to the residual stream.
local function residual_std(m, o)
  local layers = m:setting("layers")
  return o.out_std or (layers and layers > 0 and o.std / math.sqrt(2 * layers) or o.std)
end

-- A weight that another layer may share: what is not said is the other's to say. Instead of a name
-- the weight itself, if it was made already: a block's own names are of that block.
local function shared_weight(layer, m, name, axes, options)
  if type(name) == "userdata" then
    if table.concat(name.axes, ",") ~= table.concat(axes, ",") then
      fail("%s: the weight is [%s]; it must be [%s]", layer, table.concat(name.axes, ", "),
        table.concat(axes, ", "))
    end
    if options ~= nil then fail("%s: a weight that is there has no options", layer) end
    return name
  end
  local o = read_options(layer, options,
    { std = NONE, decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE })
  return m:param(name, axes,
    { std = o.std, decay = o.decay, lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen })
end

local read_lora, adapter = require "nn_lora".add(nn, { fail = fail, read_options = read_options,
  joined = joined, as_list = as_list, option_axis = option_axis, check_model = check_model,
  NONE = NONE })

local function check_apart(from, to)
  local summed = {}
  for _, axis in ipairs(as_list(from)) do summed[axis] = true end
  for _, axis in ipairs(as_list(to)) do
    if summed[axis] then
      fail("linear: axis '%s' is on both sides: declare another of its size with m:axis, and "
        .. "ops.rename the result", tostring(axis))
    end
  end
end

-- y = x W + b:  x [..., from], W [from, to] -> [..., to]. `from` and `to`: one axis or several, all
-- different: a square W has another axis of the size, which ops.rename gives the first one's name.
-- options: weight (its name), bias (its name; none if absent), std, decay, lr_scale, muon, frozen
-- (of the weight), lora (options of an adapter, as nn.lora gives them: the weight is frozen then)
function nn.linear(m, x, from, to, options)
  check_arguments("linear", m, x)
  local o = read_options("linear", options,
    { weight = "w", bias = NONE, std = STD, decay = NONE, lr_scale = NONE, muon = NONE,
      frozen = NONE, lora = NONE })
  local lora = read_lora(o.lora)
  check_apart(from, to)
  local w = m:param(o.weight, joined(from, to),
    { init = "normal", std = o.std, decay = o.decay, lr_scale = o.lr_scale, muon = o.muon,
      frozen = lora and 1 or o.frozen })
  local y = ops.matmul{ x, w, over = from }
  if lora then y = y + adapter(m, x, from, to, o.weight, lora) end
  if o.bias then y = y + m:param(o.bias, to, { init = "zeros", decay = 0 }) end
  return y
end

-- How weights begin and learn, as a model's settings say: `init_std`, their spread, and `mup`, the
-- width (axis model) that this and the recipe are for; 0: this one. Gives options of layers:
-- `table` of embeddings and positions, `hidden` of what is inside blocks, `head`.
-- Maximal update parametrization (Yang et al. 2022, "Tensor Programs V", arXiv 2203.03466, table 8;
-- AdamW): where the model is n times as wide, rates of hidden weights and of the head are 1 / n of
-- the recipe's, hidden weights' spread is 1 / sqrt(n) and the head's 1 / n of it (Yang's factor of
-- the logits, said by spread and rate: so the head is a weight of its own). They decay n times as
-- much, so that each step's decay is as it was. Tables, biases and gains stay as they are. Heads
-- should keep their size, and ffn its share of the width.
function nn.mup(m)
  check_model("mup", m)
  local base, std = m:setting("mup"), m:setting("init_std")
  if math.type(base) ~= "integer" or base < 0 then
    fail("mup: the model's setting 'mup' must be a width, a whole number, or 0, not %s",
      tostring(base))
  end
  if type(std) ~= "number" or not (std > 0 and std <= 1e3) then
    fail("mup: the model's setting 'init_std' must be a number more than 0 and at most 1000, not "
      .. "%s", tostring(std))
  end
  local n = base > 0 and m.model / base or 1
  if n == 1 then return { table = { std = std }, hidden = { std = std }, head = { std = std } } end
  if m:setting("tied") then
    fail("mup: the head must be a weight of its own, as its rate is not the table's: tied = false")
  end
  return { table = { std = std },
           hidden = { std = std / math.sqrt(n), decay = n, lr_scale = 1 / n },
           head = { std = std / n, decay = n, lr_scale = 1 / n } }
end

-- tokens i32[...], table [vocab, model] -> [..., model]. name: or the table, m:param's result.
-- options: std, decay, lr_scale, muon, frozen
function nn.embedding(m, name, tokens, vocab, model, options)
  check_arguments("embedding", m, tokens)
  vocab = vocab or "vocab"
  local w = shared_weight("embedding", m, name, { vocab, model or "model" }, options)
  return ops.embedding{ tokens, w, axis = vocab }
end

-- Of sequences in which documents stand one after another, each with the token `separator` as its
-- last: where each position's document begins, for nn.attention, and how far it is from there, for
-- nn.position. tokens i32[batch, seq] -> two values i32[batch, seq]; none where separator is -1.
-- options: apart (a separator, such as padding, belongs to no document: it ends before it, and each
-- is one by itself), ends (a third value: the position after each one's document's last, for
-- nn.attention that is not causal)
function nn.documents(m, tokens, separator, options)
  check_arguments("documents", m, tokens)
  local o = read_options("documents", options, { apart = false, ends = false })
  if separator == -1 then return end
  local vocab = m:setting("vocab")
  local last = (math.type(vocab) == "integer" and vocab or 2 ^ 31) - 1
  if math.type(separator) ~= "integer" or separator < 0 or separator > last then
    fail("documents: they end with the token %s; it must be a whole number from 0 to %d, or -1: "
      .. "a sequence is one document", tostring(separator), last)
  end
  local apart = o.apart and 1 or nil
  local starts = ops.documents{ tokens, axis = "seq", separator = separator, apart = apart }
  if not o.ends then return starts, starts:result(2) end
  return starts, starts:result(2),
    ops.document_ends{ tokens, axis = "seq", separator = separator, apart = apart }
end

-- Learned positions [seq, model], to be added to embeddings. options: std, decay, lr_scale, muon,
-- frozen, places (nn.documents' second value: positions are counted in each document; -> [batch,
-- seq, model]), rows (of the table then, where documents are shorter than seq)
function nn.position(m, name, seq, model, options)
  check_model("position", m)
  seq = seq or "seq"
  local o = read_options("position", options,
    { std = NONE, decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE, places = NONE,
      rows = NONE })
  local places, rows = o.places, o.rows
  o.places, o.rows = nil, nil
  if not places then
    return shared_weight("position", m, name, { seq, model or "model" }, o)
  end
  if type(places) ~= "userdata" then
    fail("position: 'places' must be nn.documents' second value")
  end
  m:axis("positions", rows or places:dim(seq)) -- not seq: rows are looked up, wherever theirs are
  local table = shared_weight("position", m, name, { "positions", model or "model" }, o)
  return ops.embedding{ places, table, axis = "positions" }
end

-- x [..., model], table [vocab, model] -> [..., vocab]. With the name of an embedding, both share
-- one table (Press & Wolf 2017). options: std, decay, lr_scale, muon, frozen
function nn.logits(m, name, x, vocab, model, options)
  check_arguments("logits", m, x)
  model = model or "model"
  local w = shared_weight("logits", m, name, { vocab or "vocab", model }, options)
  return ops.matmul{ x, w, over = model }
end

-- (x - mean) / sqrt(var + eps) * gain + bias along `axis` (Ba, Kiros & Hinton 2016).
-- options: name, eps, bias (false: there is none, as in Command R), plus_one (the parameter is what
-- the gain is more than 1, as in Nemotron)
function nn.layernorm(m, x, axis, options)
  check_arguments("layernorm", m, x)
  axis = axis or "model"
  local o = read_options("layernorm", options,
    { name = "ln", eps = EPS, bias = true, plus_one = false })
  local gain = m:param(o.name .. ".gain", axis,
    { init = o.plus_one and "zeros" or "ones", decay = 0 })
  if o.plus_one then gain = gain + 1 end
  local bias = o.bias and m:param(o.name .. ".bias", axis, { init = "zeros", decay = 0 })
    or ops.stop_gradient{ gain } * 0 -- the op has one
  return ops.layernorm{ x, gain, bias, axis = axis, eps = o.eps }
end

-- x / sqrt(mean(x^2) + eps) * gain along `axis` (Zhang & Sennrich 2019).
-- options: name, eps, plus_one (the parameter is what the gain is more than 1, as in Gemma)
function nn.rmsnorm(m, x, axis, options)
  check_arguments("rmsnorm", m, x)
  axis = axis or "model"
  local o = read_options("rmsnorm", options, { name = "norm", eps = EPS, plus_one = false })
  local gain = m:param(o.name .. ".gain", axis,
    { init = o.plus_one and "zeros" or "ones", decay = 0 })
  if o.plus_one then gain = gain + 1 end
  return ops.rmsnorm{ x, gain, axis = axis, eps = o.eps }
end

-- rmsnorm over several axes together, of which a mesh may divide some: of sums, not in one op, so
-- that ranks add up their squares. over: `axes`, which the gain has, unless it is some of them.
-- Without a name there is no gain.
local function rmsnorm_over(m, x, axes, over, name, eps)
  local count = 1
  if not (eps >= 0) then fail("rmsnorm: 'eps' must be at least 0, not %g", eps) end
  over = over or axes
  for _, axis in ipairs(over) do count = count * x:dim(axis) end
  local gain = name and m:param(name .. ".gain", axes, { init = "ones", decay = 0 })
  -- In f32 from the start: in f16 a square would overflow from 256 on.
  local squares = ops.matmul{ x, x, over = over, dtype = "f32" }
  local y = x * ops.rsqrt{ squares * (1 / count) + eps }
  return gain and y * gain or y
end

-- One of the two, by options.kind; bias is layernorm's.
function nn.norm(m, x, axis, options)
  local o = read_options("norm", options,
    { kind = "layernorm", name = "norm", eps = EPS, bias = true, plus_one = false })
  if o.kind ~= "layernorm" and o.kind ~= "rmsnorm" then
    fail("norm: kind is '%s'; it can be layernorm or rmsnorm", o.kind)
  end
  local bias
  if o.kind == "layernorm" then bias = o.bias end
  return nn[o.kind](m, x, axis, { name = o.name, eps = o.eps, bias = bias, plus_one = o.plus_one })
end

-- gelu is the tanh approximation (Hendrycks & Gimpel 2016), gelu_erf the exact one, relu2 the
-- square of relu (So et al. 2021, Primer).
local ACTIVATIONS = {
  gelu = ops.gelu, gelu_erf = ops.gelu_erf, relu = ops.relu, silu = ops.silu,
  relu2 = function(operands) return ops.square{ ops.relu(operands) } end,
}

local function activate(layer, act, x)
  local f = ACTIVATIONS[act]
  if not f then
    fail("%s: act is '%s'; it can be gelu, gelu_erf, relu, relu2 or silu", layer, tostring(act))
  end
  return f{ x }
end

-- act(x), by the name that layers' options have.
function nn.activation(x, act) return activate("activation", act, x) end

-- act(x w1 + b1) w2 + b2:  w1 [model, ffn], w2 [ffn, model].
-- options: name, act, bias, dropout (of what w2 reads), std, out_std (of w2), decay, lr_scale,
-- muon, frozen, lora (its targets: up, which is w1, and down, w2)
function nn.mlp(m, x, options)
  check_arguments("mlp", m, x)
  local o = read_options("mlp", options,
    { name = "mlp", act = "gelu", bias = true, dropout = 0.0, std = STD, out_std = NONE,
      decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE, lora = NONE })
  local function linear(y, from, to, number, std)
    local bias = o.bias and o.name .. ".b" .. number or nil
    return nn.linear(m, y, from, to,
      { weight = o.name .. ".w" .. number, bias = bias, std = std, decay = o.decay,
        lr_scale = o.lr_scale, muon = o.muon, frozen = o.frozen,
        lora = read_lora(o.lora, number == 1 and "up" or "down") })
  end
  local h = activate("mlp", o.act, linear(x, "model", "ffn", 1, o.std))
  return linear(nn.dropout(h, o.dropout), "ffn", "model", 2, residual_std(m, o))
end

-- (act(x wgate) * (x wup)) wdown (Shazeer 2020, SwiGLU).
-- options: name, act, gate_scale (x wgate is times it; 1), dropout (of what wdown reads), std,
-- out_std (of wdown), decay, lr_scale, muon, frozen, lora (its targets: gate, up, down)
function nn.swiglu(m, x, options)
  check_arguments("swiglu", m, x)
  local o = read_options("swiglu", options,
    { name = "mlp", act = "silu", gate_scale = 1.0, dropout = 0.0, std = STD, out_std = NONE,
      decay = NONE, lr_scale = NONE, muon = NONE, frozen = NONE, lora = NONE })
  check_coefficient("swiglu", "gate_scale", o.gate_scale)
  local shared = {}
  local function linear(y, from, to, which, std)
    return nn.linear(m, y, from, to,
      { weight = o.name .. ".w" .. which, std = std, decay = o.decay, lr_scale = o.lr_scale,
        muon = o.muon, frozen = o.frozen, lora = read_lora(o.lora, which, shared) })
  end
  local gate = linear(x, "model", "ffn", "gate", o.std)
  if o.gate_scale ~= 1 then gate = gate * o.gate_scale end
  local up = linear(x, "model", "ffn", "up", o.std)
  local h = nn.dropout(activate("swiglu", o.act, gate) * up, o.dropout)
  return linear(h, "ffn", "model", "down", residual_std(m, o))
end

-- Zeroes each element with probability p and divides the others by 1 - p; x itself where p is 0.
function nn.dropout(x, p)
  if type(p) ~= "number" or not (p >= 0 and p < 1) then
    fail("dropout: the probability must be a number, at least 0 and less than 1")
  end
  return p > 0 and ops.dropout{ x, p = p } or x
end

-- exp(x) / its sum along `axis`.
function nn.softmax(x, axis)
  if type(x) ~= "userdata" then
    fail("softmax: the first argument must be a value, not a %s", type(x))
  end
  x:dim(axis) -- or there is no such axis
  local order, n = {}, #x.axes
  for _, name in ipairs(x.axes) do
    if name ~= axis then order[#order + 1] = name end
  end
  order[n] = axis
  local last = x.axes[n] == axis and x or ops.transpose{ x, to = order }
  return ops.exp{ x - ops.logsumexp{ last, axis = axis } }
end

-- x between lo and hi. Its gradient is x's within, 0 beyond and half of x's at either end.
function nn.clamp(x, lo, hi)
  if type(lo) ~= "number" or type(hi) ~= "number" or not (lo < hi) then
    fail("clamp: takes a value and two numbers, the lesser first")
  end
  return ops.minimum{ ops.maximum{ x, ops.const{ value = lo } }, ops.const{ value = hi } }
end

-- x + dropout(branch)
function nn.residual(x, branch, p) return x + nn.dropout(branch, p or 0) end

local function check_ignored(ignore, labels, n_labels)
  if math.type(ignore) ~= "integer" or ignore < -1 or ignore >= n_labels then
    fail("cross_entropy: 'ignore' must be a label, a whole number from 0 to %d, or -1, which the "
      .. "data have where nothing counts", n_labels - 1)
  end
  if labels.input ~= "labels" then
    fail("cross_entropy: 'ignore' counts the labels of the data, and these are others: give "
      .. "'weight', or labels below 0, and a mean over all positions")
  end
end

-- Labels are -1 where nothing is hidden.
local function check_masked_lm(o, n_labels)
  local hidden = o.masked_lm
  if o.ignore then fail("cross_entropy: 'ignore' and 'masked_lm': one of them") end
  if type(hidden) ~= "table" then
    fail("cross_entropy: 'masked_lm' must be a table, { rate = 0.15, mask = 103 }")
  end
  for key in pairs(hidden) do
    if key ~= "rate" and key ~= "mask" then
      fail("cross_entropy: 'masked_lm' has rate and mask, not '%s'", tostring(key))
    end
  end
  if type(hidden.rate) ~= "number" or hidden.rate <= 0 or hidden.rate >= 1 then
    fail("cross_entropy: masked_lm's 'rate' must be a share of the tokens, between 0 and 1")
  end
  if math.type(hidden.mask) ~= "integer" or hidden.mask < 0 or hidden.mask >= n_labels then
    fail("cross_entropy: masked_lm's 'mask' must be a token, a whole number from 0 to %d",
      n_labels - 1)
  end
  return -1
end

-- Is it a token of so many?
local function is_token(id, n_tokens)
  return math.type(id) == "integer" and id >= 0 and id < n_tokens
end

-- Labels are -1 behind the text that the decoder is to say.
local function check_from_source(o, n_labels)
  local data = o.from_source
  local known = { start = 1, eos = 1, pad = 1, rate = 1, span = 1, sentinel = 1 }
  if o.ignore or o.masked_lm then
    fail("cross_entropy: 'from_source', 'ignore' and 'masked_lm': one of them")
  end
  if type(data) ~= "table" then
    fail("cross_entropy: 'from_source' must be a table, { start = 0, eos = 1 }")
  end
  for key in pairs(data) do
    if not known[key] then
      fail("cross_entropy: 'from_source' has start, eos, pad, rate, span, sentinel, not '%s'",
        tostring(key))
    end
  end
  for _, key in ipairs{ "start", "eos", data.pad and "pad" or "eos", data.rate and "sentinel" } do
    if not is_token(data[key], n_labels) then
      fail("cross_entropy: from_source's '%s' must be a token, a whole number from 0 to %d", key,
        n_labels - 1)
    end
  end
  if data.rate == nil and data.span == nil and data.sentinel == nil then return -1 end
  if type(data.rate) ~= "number" or not (data.rate > 0 and data.rate < 1) then
    fail("cross_entropy: from_source's 'rate' must be a share of the tokens, between 0 and 1")
  end
  if type(data.span) ~= "number" or not (data.span >= 1 and data.span <= 1e6) then
    fail("cross_entropy: from_source's 'span', their mean length, must be a number from 1 on")
  end
  return -1
end

-- Labels are -1 where nothing could have been hidden.
local function check_diffusion(o, n_labels)
  local how = o.diffusion
  if o.ignore or o.masked_lm or o.from_source then
    fail("cross_entropy: 'diffusion', 'ignore', 'masked_lm' and 'from_source': one of them")
  end
  if type(how) ~= "table" then
    fail("cross_entropy: 'diffusion' must be a table, { mask = 103 }")
  end
  for key in pairs(how) do
    if key ~= "mask" and key ~= "shifted" and key ~= "by_row" then
      fail("cross_entropy: 'diffusion' has mask, shifted and by_row, not '%s'", tostring(key))
    end
    if key ~= "mask" and type(how[key]) ~= "boolean" then
      fail("cross_entropy: diffusion's '%s' must be true or false, not a %s", key, type(how[key]))
    end
  end
  if not is_token(how.mask, n_labels) then
    fail("cross_entropy: diffusion's 'mask' must be a token, a whole number from 0 to %d",
      n_labels - 1)
  end
  return -1
end

-- Labels are -1 where no text is to be said.
local function check_images(o, n_labels)
  if o.ignore or o.masked_lm or o.from_source or o.diffusion then
    fail("cross_entropy: 'images', 'diffusion', 'ignore', 'masked_lm' and 'from_source': one of "
      .. "them")
  end
  if type(o.images) ~= "table" then
    fail("cross_entropy: 'images' must be a table, as nn.vision's data")
  end
  if not is_token(o.images.token, n_labels) then
    fail("cross_entropy: images' 'token' must be a token, a whole number from 0 to %d, not %s",
      n_labels - 1, tostring(o.images.token))
  end
  return -1
end

local function mean_of(x)
  local count = 1
  for _, axis in ipairs(x.axes) do count = count * x:dim(axis) end
  return count == 1 and #x.axes == 0 and x or ops.reduce_sum{ x, over = x.axes } * (1 / count)
end

-- Mean over all positions of -log softmax(logits)[label]; also makes an output of the logits.
-- logits [batch, seq, vocab], labels i32[batch, seq] -> scalar
-- Positions whose label is below 0 have no loss and no gradient; the mean is still over all.
-- options: output (its name; "logits" if absent, which `generate` reads; false: none), ignore (a
-- label: positions that have it are left out, and the mean is over the others of the whole global
-- batch; one for a model; -1: those that the data's masks leave out), weight (a value that each
-- position's loss is multiplied by, as 1 - ops.equal{tokens, padding}; the mean is over all
-- positions), masked_lm ({ rate, mask }: the data hide this share of the tokens behind the token
-- `mask`, and what is hidden is to be said: BERT's objective, for attention that is not causal),
-- from_source ({ start, eos, pad }: the data have a prompt for the encoder, filled up with `pad`,
-- and its completion, which the decoder, begun with the token `start`, is to say; both end with
-- `eos`; with rate, span and sentinel this share of a text is hidden in spans of that mean length,
-- behind the tokens from `sentinel` downwards: T5's objective), diffusion ({ mask }: the data hide
-- a share of each row's tokens, drawn for the row, behind the token `mask`, and a hidden one's loss
-- counts 1 / share times: LLaDA's objective, Nie et al. 2025, equation 3, for attention that is not
-- causal; with `shifted` a position says the next one's token, as in Dream; with `by_row` rows
-- count alike, however many of their tokens can be hidden), images (nn.vision's data: rows have
-- images in the places of a token), z (this times the square of the logits'
-- log-sum-exp is added to each position's loss: PaLM's z-loss, Chowdhery et al. 2022, section 5;
-- they take 1e-4), beside (losses, as nn.moe's [batch], whose mean is added)
function nn.cross_entropy(m, logits, labels, vocab, options)
  check_arguments("cross_entropy", m, logits)
  vocab = vocab or "vocab"
  local o = read_options("cross_entropy", options,
    { output = NONE, weight = NONE, ignore = NONE, masked_lm = NONE, from_source = NONE,
      diffusion = NONE, images = NONE, z = NONE, beside = NONE })
  local output = o.output
  if o.z then check_coefficient("cross_entropy", "z", o.z, true) end
  if type(o.weight) == "number" then check_coefficient("cross_entropy", "weight", o.weight) end
  if o.masked_lm then o.ignore = check_masked_lm(o, logits:dim(vocab)) end
  if o.from_source then o.ignore = check_from_source(o, logits:dim(vocab)) end
  if o.diffusion then o.ignore = check_diffusion(o, logits:dim(vocab)) end
  if o.images then o.ignore = check_images(o, logits:dim(vocab)) end
  if output ~= false then m:output(output or "logits", logits) end
  local each = ops.cross_entropy{ logits, labels, axis = vocab }
  if o.z and o.z > 0 then
    local lse = ops.logsumexp{ logits, axis = vocab }
    each = each + ops.square{ lse } * (1 - ops.less{ labels, 0 }) * o.z
  end
  local rank = #each.axes
  if o.weight then each = each * o.weight end
  if #each.axes > rank then
    fail("cross_entropy: 'weight' must have no axes that a position's loss lacks")
  end
  if o.ignore then check_ignored(o.ignore, labels, logits:dim(vocab)) end
  if o.beside and type(o.beside) ~= "userdata" then
    fail("cross_entropy: 'beside' must be a value, as nn.moe's second result")
  end
  if o.ignore then each = each * (1 - ops.equal{ labels, o.ignore }) end
  if o.diffusion then each = each * m:numbers("weights") end -- 0 where nothing is hidden
  local mean = mean_of(each)
  if o.ignore then
    local hidden = o.masked_lm or o.from_source or o.diffusion or {}
    local images, shift, each_row = o.images or {}, nil, nil
    if o.diffusion then shift, each_row = hidden.shifted and 1 or 0, hidden.by_row and 1 or 0 end
    mean = mean / ops.label_share{ value = o.ignore, rate = hidden.rate,
                                   mask = hidden.mask or hidden.sentinel, span = hidden.span,
                                   start = hidden.start, eos = hidden.eos, pad = hidden.pad,
                                   by = shift, each = each_row,
                                   image_token = images.token, images = images.images,
                                   image_side = images.side, patch = images.patch,
                                   image_tokens = images.tokens, image_fit = images.fit,
                                   image_filter = images.filter, image_before = images.before,
                                   image_after = images.after, image_mean = images.mean,
                                   image_split = images.split, image_edge = images.edge,
                                   image_tile = images.tile, image_line = images.line,
                                   least_tiles = images.least_tiles,
                                   most_tiles = images.most_tiles }
  end
  return o.beside and mean + mean_of(o.beside) or mean
end

local biases = require "nn_sequence".add(nn, { fail = fail, read_options = read_options,
  NONE = NONE, check_model = check_model, check_arguments = check_arguments })
require "nn_attention".add(nn, { fail = fail, read_options = read_options, joined = joined,
  STD = STD, NONE = NONE, EPS = EPS, check_model = check_model, check_arguments = check_arguments,
  residual_std = residual_std, option_axis = option_axis, read_lora = read_lora,
  rmsnorm_over = rmsnorm_over, biases = biases })
require "nn_state".add(nn, { fail = fail, read_options = read_options, joined = joined, STD = STD,
  NONE = NONE, EPS = EPS, check_model = check_model, check_arguments = check_arguments,
  residual_std = residual_std, option_axis = option_axis, activate = activate,
  rmsnorm_over = rmsnorm_over, check_coefficient = check_coefficient, read_lora = read_lora,
  adapter = adapter })
require "nn_experts".add(nn, { fail = fail, read_options = read_options, joined = joined, STD = STD,
  NONE = NONE, check_arguments = check_arguments, residual_std = residual_std,
  option_axis = option_axis, activate = activate, read_lora = read_lora, adapter = adapter,
  check_coefficient = check_coefficient })
local of_texts = { fail = fail, read_options = read_options, NONE = NONE,
  check_arguments = check_arguments, mean_of = mean_of }
require "nn_preference".add(nn, of_texts)
require "nn_policy".add(nn, of_texts)
require "nn_embed".add(nn, of_texts)
require "nn_classes".add(nn, of_texts)
require "nn_training".add(nn, of_texts)
require "nn_distill".add(nn, of_texts)
require "nn_vision".add(nn, { fail = fail, STD = STD, check_model = check_model,
  check_arguments = check_arguments, rmsnorm_over = rmsnorm_over })

local function fail_unknown_layer(_, name)
  local known = {}
  for layer in pairs(nn) do known[#known + 1] = layer end
  fail("nn has no '%s'; it has: %s", tostring(name), table.concat(known, ", "))
end

return setmetatable(nn, { __index = fail_unknown_layer })
