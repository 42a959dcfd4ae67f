-- nn_lora: adapters of low rank, a part of nn. `nn` is what it adds to, `tools` what layers of nn
-- share; -> what layers make adapters with.
local lora = {}

function lora.add(nn, tools)

local ops = ops
local fail, read_options, joined = tools.fail, tools.read_options, tools.joined
local as_list, option_axis, check_model = tools.as_list, tools.option_axis, tools.check_model
local NONE = tools.NONE

-- What products are called in `targets`, by the kind of their layer; `up` and `down` are also the
-- two of nn.mlp. Those of `reading` read the same, so that they can share an A.
local LAYERS = {
  { reading = { "q", "k", "v", "attn.gate" }, others = { "o" } },
  { reading = { "gate", "up" }, others = { "down" } },
  { reading = { "experts.gate", "experts.up" }, others = { "experts.down" } },
  { reading = { "shared.gate", "shared.up" }, others = { "shared.down" } },
  { reading = { "state.q", "state.k", "state.v", "state.z", "state.x", "state.b", "state.c",
                "state.dt", "state.beta", "state.a" },
    others = { "state.f", "state.g", "state.o" } },
  { reading = { "short.b", "short.c", "short.x" }, others = { "short.o" } },
}
local TARGETS_TOLD = "q, k, v, o, gate, up, down, experts, shared, state, short (or experts.gate, "
  .. ".up, .down, shared.gate, ..., state.in, state.o, state.q, ..., short.in, short.b, ...), "
  .. "attn.gate, all; a+b: those of one layer that read the same share an A"

-- In a set of targets: the layer says what shares an A.
local BY_LAYER = {}

local TARGETS = {}          -- in the order that names of several have
local LAYER, PLACE = {}, {} -- of a target that can share an A
local SEVERAL = { all = TARGETS, experts = {}, shared = {}, state = {}, short = {},
                  ["state.in"] = {}, ["short.in"] = {} }
for _, layer in ipairs(LAYERS) do
  for place, list in ipairs{ layer.reading, layer.others } do
    for _, name in ipairs(list) do
      TARGETS[#TARGETS + 1] = name
      LAYER[name] = place == 1 and layer or nil
      PLACE[name] = #TARGETS
      local several = SEVERAL[name:match("^(%a+)%.")]
      if several then several[#several + 1] = name end
      local input = SEVERAL[(name:match("^(%a+)%.") or "") .. ".in"]
      if input and not name:match("%.o$") then input[#input + 1] = name end
    end
  end
end

-- "z_x": what products sharing an A are called in its name.
local function group_name(names)
  local letters = {}
  for i, name in ipairs(names) do letters[i] = name:match("(%a+)$") end
  return table.concat(letters, "_")
end

-- "state.z+state.x", targets that share an A, or one alone.
local function read_item(item, set)
  local names = {}
  for name in (item .. "+"):gmatch("([^+]*)%+") do
    name = name:match("^%s*(.-)%s*$")
    if not PLACE[name] then fail("lora: targets has '%s'; known: %s", name, TARGETS_TOLD) end
    names[#names + 1] = name
  end
  for _, name in ipairs(names) do
    if #names > 1 and (not LAYER[name] or LAYER[name] ~= LAYER[names[1]]) then
      fail("lora: targets has '%s'; an A can be shared by those of one layer that read the same: "
        .. "some of q+k+v+attn.gate, gate+up, experts.gate+experts.up, shared.gate+shared.up, "
        .. "state.q+..., short.b+short.c+short.x", item)
    end
    if set[name] and (#names > 1 or set[name] ~= true) then
      fail("lora: targets has '%s' twice; it has one A, its own or one that it shares", name)
    end
    set[name] = true
  end
  table.sort(names, function(a, b) return PLACE[a] < PLACE[b] end)
  for _, name in ipairs(names) do set[name] = #names > 1 and names or true end
end

-- A list of names, or a text of them with commas, as a set: of each target the list of those that
-- it shares its A with, true where its A is its own, or BY_LAYER.
local function read_targets(targets)
  if type(targets) ~= "string" and type(targets) ~= "table" then
    fail("lora: 'targets' must be a text or a list of names: %s", TARGETS_TOLD)
  end
  local text = type(targets) == "table" and table.concat(targets, ",") or targets
  local set, several = {}, {}
  for item in text:gmatch("[^,]*") do
    item = item:match("^%s*(.-)%s*$")
    if SEVERAL[item] then several[#several + 1] = item else read_item(item, set) end
  end
  for _, name in ipairs(several) do
    for _, target in ipairs(SEVERAL[name]) do
      local of_layer = target:match("^state%.") or target:match("^short%.")
      set[target] = set[target] or of_layer and BY_LAYER or true
    end
  end
  return set
end

local OPTIONS = { rank = 8, alpha = NONE, dropout = 0.0, rslora = false, plus = 1.0,
                  targets = NONE }

-- Options that read_lora made: what it knows besides, { group =, shared = } where an A is shared.
local known = setmetatable({}, { __mode = "k" })

-- Of targets those that the layer has, and with `set` those alone that are left to it.
local function those_of(names, shared, set)
  local some = {}
  for _, name in ipairs(names) do
    local has = not shared.has or shared.has[name]
    if has and (not set or set[name] == BY_LAYER) then some[#some + 1] = name end
  end
  return some
end

-- The name of the group that shares the A of `target`; nil where its A is its own.
local function group_of(target, set, shared)
  local names = set[target]
  if names == BY_LAYER then
    names = {}
    for _, list in ipairs(shared.groups or {}) do
      for _, name in ipairs(list) do
        if name == target then names = those_of(list, shared, set) end
      end
    end
  elseif names ~= true then
    names = shared.has and not shared.has[target] and {} or those_of(names, shared)
  end
  return names ~= true and #names > 1 and group_name(names) or nil
end

-- The options of `lora`, complete; nil where the product called `target` has no adapter.
-- shared: a table of this layer's own, in which products that share an A find what it makes; has: a
-- set of the targets that can (all if absent); groups: lists of those that do where `targets` leave
-- it to the layer. Or false: none can.
local function read_lora(given, target, shared)
  if given == nil or known[given] and not target then return given end
  local o = read_options("lora", given, OPTIONS)
  if math.type(o.rank) ~= "integer" or o.rank < 1 then
    fail("lora: 'rank' must be a whole number from 1 on, not %s", tostring(o.rank))
  end
  local alpha = o.alpha or 1
  if type(alpha) ~= "number" or not (alpha > 0 and alpha <= 1e6) then
    fail("lora: 'alpha' must be a number more than 0 and at most 1e6, not %s", tostring(alpha))
  end
  if not (o.plus > 0 and o.plus <= 1e4) then
    fail("lora: 'plus' must be more than 0 and at most 10000, not %s", tostring(o.plus))
  end
  o.alpha = o.alpha or o.rank
  known[o] = {}
  if not target then return o end
  local set = read_targets(o.targets or "all")
  local of = set[target]
  if not of then return nil end
  if type(of) == "table" and of ~= BY_LAYER and shared == false then
    fail("lora: '%s' shares an A ('%s'), which products of latent attention cannot: give their "
      .. "targets with commas between", target, table.concat(of, "+"))
  end
  local group = shared and group_of(target, set, shared)
  if group then known[o] = { group = group, shared = shared } end
  return o
end

-- The A [each, from, lora] of a weight called `name`, which one of its layer's may have made.
local function first_half(m, x, from, name, o, each)
  local n_in = 1
  for _, axis in ipairs(as_list(from)) do n_in = n_in * x:dim(axis) end
  if o.rank > n_in then
    fail("lora: rank %d of '%s': it reads %d numbers, and has no more directions", o.rank, name,
      n_in)
  end
  option_axis(m, "lora", o.rank, "lora", "rank", o.rank)
  local group = known[o].group
  local whose = group and name:match("^(.-)[^.]*$") .. group or name
  -- The variance of the uniform distribution that PEFT draws from.
  return m:param(whose .. ".lora_a", joined(each or {}, joined(from, "lora")),
    { init = "normal", std = 1 / math.sqrt(3 * n_in) })
end

-- (alpha / rank) (dropout(x) A) B, beside the product of a weight called `name`. What x leaves
-- partial over t is summed where it has `rank` numbers a token. each: an axis of x along which
-- everything has an adapter of its own (experts), the first of A and B; or nil. dtype: of the
-- result, if not x's.
local function adapter(m, x, from, to, name, o, each, dtype)
  local of = known[o]
  local made = of.group and of.shared[of.group]
  local a = not made and first_half(m, x, from, name, o, each)
  local b = m:param(name .. ".lora_b", joined(each or {}, joined("lora", to)),
    { init = "zeros", decay = 1, lr_scale = o.plus ~= 1 and o.plus or nil })
  if not made then
    local h = ops.matmul{ nn.dropout(x, o.dropout), a, over = from }
    local scale = o.alpha / (o.rslora and math.sqrt(o.rank) or o.rank)
    made = { x = x, h = scale ~= 1 and h * scale or h }
  end
  if made.x ~= x then fail("lora: '%s' shares an A, and reads something else", name) end
  if of.group then of.shared[of.group] = made end
  return ops.matmul{ made.h, b, over = "lora", dtype = dtype }
end

-- Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685), as a model's settings say: `lora`, the
-- rank (0: none), `lora_alpha` (0: the rank), `lora_dropout` (of what adapters read),
-- `lora_targets` (names of TARGETS, or of SEVERAL, with commas between; a+b share an A),
-- `lora_rslora` (alpha / sqrt(rank): Kalajdzievski 2023, arXiv 2312.03732), and `lora_plus` (B's
-- learning rate is so many times A's: LoRA+, Hayou et al. 2024, arXiv 2402.12354).
-- Gives layers' option `lora`, { rank, alpha, dropout, targets, rslora, plus }, or nil. Freezes
-- every parameter but adapters, NAME.lora_a [from, lora] and NAME.lora_b [lora, to], both with an
-- axis `experts` before where each expert has its own; b begins with zeros, so that the model does
-- as it did. An A that wz and wx share is called z_x.lora_a. Later patterns, of m:freeze or --set
-- freeze=, let others train.
function nn.lora(m)
  check_model("lora", m)
  local rank = m:setting("lora")
  if rank == nil then fail("lora: the model has no setting 'lora', the rank") end
  local alpha, dropout = m:setting("lora_alpha"), m:setting("lora_dropout")
  if rank == 0 then
    local without = { lora_alpha = (alpha or 0) ~= 0, lora_dropout = (dropout or 0) ~= 0,
                      lora_rslora = m:setting("lora_rslora") == true,
                      lora_plus = (m:setting("lora_plus") or 1) ~= 1 }
    for _, name in ipairs{ "lora_alpha", "lora_rslora", "lora_plus", "lora_dropout" } do
      if without[name] then
        fail("lora: '%s' has no effect without adapters: 'lora', their rank, is 0", name)
      end
    end
    return nil
  end
  m:freeze("*, !*.lora_a, !*.lora_b")
  return { rank = rank, alpha = alpha ~= 0 and alpha or nil, dropout = dropout,
           targets = m:setting("lora_targets"), rslora = m:setting("lora_rslora"),
           plus = m:setting("lora_plus") }
end

return read_lora, adapter
end

return lora
