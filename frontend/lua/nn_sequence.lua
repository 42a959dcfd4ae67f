-- nn_sequence: what models make of the order of tokens, a part of nn: places as numbers, sums of
-- what came before, n-grams, biases of attention's scores. `nn` is what it adds to, `tools` what
-- layers of nn share.
local sequence = {}

function sequence.add(nn, tools)

local ops = ops
local fail, read_options, NONE = tools.fail, tools.read_options, tools.NONE
local check_model, check_arguments = tools.check_model, tools.check_arguments

local NO_TOKEN = 2 ^ 31 - 1 | 0 -- no token's number: all are one document

-- How many tokens are before each in its sequence: i32[batch, seq], as nn.documents' second value
-- says of documents.
function nn.places(m, tokens)
  check_arguments("places", m, tokens)
  return ops.documents{ tokens, axis = "seq", separator = NO_TOKEN }:result(2)
end

-- 1 where a key is behind its query, else 0: [batch, seq, keys]. keys: an axis of as many
-- positions, which k and v of attention with explicit scores have in place of seq (ops.rename); it
-- is made. places: nn.places'. `generate` takes a block that has it for causal.
function nn.later(m, places, keys)
  check_arguments("later", m, places)
  if type(keys) ~= "string" or keys == "seq" then
    fail("later: the third argument is the name of the keys' axis, another than seq")
  end
  m:axis(keys, places:dim("seq"))
  return ops.less{ places, ops.rename{ places, axis = "seq", to = keys } }
end

-- x [batch, seq], or with one or two axes behind -> f32, like x: at each position the sum of x
-- there and at all before it. In f32 under any precision. (It is linear attention with queries and
-- keys of one number, 1, and no decay.)
function nn.prefix_sum(m, x)
  check_arguments("prefix_sum", m, x)
  local axes = x.axes
  if axes[1] ~= "batch" or axes[2] ~= "seq" or #axes > 4 then
    fail("prefix_sum: x is [%s]; it must be [batch, seq], or have one or two axes behind these",
      table.concat(axes, ", "))
  end
  m:axis("prefix_key", 1)
  m:axis("prefix_value", 1)
  local v = ops.pad{ x, to = "prefix_key", first = 0, at = #axes }
  v = ops.reduce_sum{ v, over = "prefix_key", dtype = "f32" }
  local zero = ops.stop_gradient{ v } * 0
  local one = #axes < 4 and zero + 1 -- the last of four is that of heads which share keys
    or ops.reduce_sum{ zero, over = axes[4], dtype = "f32" } + 1
  one = ops.pad{ one, to = "prefix_key", first = 0, at = #one.axes }
  v = ops.pad{ v, to = "prefix_value", first = 0, at = #axes }
  local y = ops.linear_attention{ one, one, v, zero, seq = "seq", head = "prefix_key", scale = 1.0 }
  return ops.reduce_sum{ y, over = "prefix_value", dtype = "f32" }
end

-- The number of a row in a table of n-grams, i32[batch, seq]: a hash, less than size, of each token
-- and those before it. Where there are fewer, of these. tokens i32[batch, seq].
-- options: n (2 to 16 tokens; 2), size (rows of the table), seed (0: tables of other hashes, other
-- seeds), separator (a token that ends a document: nothing before that counts; -1: none does)
function nn.ngrams(m, tokens, options)
  check_arguments("ngrams", m, tokens)
  local o = read_options("ngrams", options, { n = 2, size = NONE, seed = 0, separator = -1 })
  if math.type(o.size) ~= "integer" or o.size < 1 then
    fail("ngrams: 'size' must be the number of a table's rows, 1 or more, not %s", tostring(o.size))
  end
  return ops.ngram{ tokens, axis = "seq", by = o.n, count = o.size, seed = o.seed,
                    separator = o.separator }
end

-- Biases of attention's scores are more columns of queries and keys, [q, first] and [k, second],
-- so every kernel of attention has them. In 16 bits columns are rounded: what has to be exact is a
-- sum of parts that have few bits, whose products with 1 are added up in f32. Their number is a
-- multiple of 8, as tensor cores ask for: `n` is the size of their axis.
local function column(m, x, n, i)
  local axis = "bias_columns_" .. n
  m:axis(axis, n)
  return ops.pad{ x, to = axis, first = i - 1, at = #x.axes }
end

-- f16 ends at 65504: columns of large numbers have 1 / LIFT of them, their counterparts LIFT.
local LIFT = 256

-- Columns i to j are 1, the first `lifted` of them LIFT.
local function ones(m, n, i, j, lifted)
  local sum
  for k = i, j do
    local one = column(m, ops.const{ value = k < i + lifted and LIFT or 1 }, n, k)
    sum = sum and sum + one or one
  end
  return sum
end

local function with_columns(m, x, columns, n)
  local to = "biased_" .. n
  m:axis(to, x:dim("head") + n)
  return ops.concat{ x, columns, over = { "head", "bias_columns_" .. n }, to = to }
end

-- x as multiples of units, and a rest that is less than half the last one.
local function in_parts(x, units)
  local parts = {}
  for i, unit in ipairs(units) do
    parts[i] = ops.stop_gradient{ ops.round{ x * (1 / unit) } } * unit
    x = x - parts[i]
  end
  parts[#parts + 1] = x
  return parts
end

-- The bias c_i - c_j of query i and key j. q [batch, seq, kv_heads, group, head], k [batch, seq,
-- kv_heads, head], c f32[batch, seq, kv_heads, group], for scores times `scale` -> q, k. In 16 bits
-- c has an error of 2^-14 at most, while c / scale is less than 2^20 in size. Where heads share
-- keys, these have columns for each, of which a head's queries read its own: members, a parameter's
-- name, is the heads' numbers in their group.
local function with_bias(m, q, k, c, members, scale)
  if type(c) ~= "userdata" or table.concat(c.axes, ",") ~= "batch,seq,kv_heads,group" then
    fail("attention: 'score_bias' must be a value [batch, seq, kv_heads, group]")
  end
  local group = q:dim("group")
  local n = (4 * (1 + group) + 7) // 8 * 8
  local parts = in_parts(c * (1 / scale), { 4096, 16, 1 / 16 })
  parts[1] = parts[1] * (1 / LIFT)
  local first, second = column(m, parts[1], n, 1), ones(m, n, 1, 4, 1)
  for i = 2, 4 do first = first + column(m, parts[i], n, i) end
  local number = group > 1 and ops.stop_gradient{
    m:param(members, "group", { init = "range", low = 0, high = group - 1, frozen = 1 }) }
  for g = 0, group - 1 do
    local from = 4 + 4 * g
    local own = number and ops.equal{ number, g }
    local read = ones(m, n, from + 1, from + 4, 1)
    first = (own and own * read or read) + first
    for i, part in ipairs(parts) do
      part = ops.reduce_sum{ own and part * own or part, over = "group", dtype = "f32" }
      second = column(m, -part, n, from + i) + second
    end
  end
  return with_columns(m, q, first, n), with_columns(m, k, second, n)
end

-- ALiBi (Press et al. 2022, arXiv 2108.12409): the bias -slope (i - j) of query i and key j; slopes
-- of n heads are 2^(-8/n), 2^(-16/n), ... 2^-8. Places up to 2^24 are exact in 16 bits. slopes: a
-- parameter's name; places i32[batch, seq], nn.places' or nn.documents' second value.
local function with_distance(m, q, k, slopes, places, scale)
  if type(places) ~= "userdata" then
    fail("attention: 'alibi' must be nn.places' value, or nn.documents' second")
  end
  local n = q:dim("kv_heads") * q:dim("group")
  local power = m:param(slopes, { "kv_heads", "group" },
    { init = "range", low = 8 / n, high = 8, frozen = 1 })
  local slope = ops.exp{ power * -math.log(2) } * (1 / scale)
  local first, second = column(m, slope * LIFT, 8, 4), ones(m, 8, 1, 3, 2)
  first = first + column(m, slope * LIFT, 8, 5) + column(m, slope, 8, 6)
  -- Less half a unit but a little: then rounding is down.
  local high = ops.stop_gradient{ ops.round{ ops.number{ places } * 2 ^ -16 - 0.49999 } } * 2 ^ 16
  local rest = ops.number{ places } - high
  local middle = ops.stop_gradient{ ops.round{ rest * 2 ^ -8 - 0.499 } } * 2 ^ 8
  for i, part in ipairs{ high * (1 / LIFT), middle * (1 / LIFT), rest - middle } do
    first = column(m, part * slope * -1, 8, i) + first
    second = column(m, part, 8, 3 + i) + second
  end
  return with_columns(m, q, first, 8), with_columns(m, k, second, 8)
end

return { with_bias = with_bias, with_distance = with_distance }

end

return sequence
