-- optim: optimizers that are formulas for one element of a weight. `local optim = require "optim"`.
--
-- optim.rules has those that come with the program, by name; a model's own has the same form, see
-- runtime/README.md. optim.trace runs a formula once on symbols and writes down what it computes,
-- as the two texts of ir/rule.h: operations on each element, and numbers of a step, which depend on
-- the learning rate and the step alone.

local optim = { rules = require "optim_rules" }

-- ir/rule.h's RULE_MOST_INSTRUCTIONS and RULE_MOST_NUMBERS.
local MOST_OPERATIONS, MOST_NUMBERS = 31, 64
local MOST_F32 = 0x1.fffffep127

-- Errors name no line of this file: the front end adds the line of the formula.
local function fail(text, ...) error(text:format(...), 0) end

-- What a formula computes with: values, one for each element, and numbers of the step.
local Value, Number = {}, {}
local trace -- of the formula that runs

-- "value", "number" of the step, "plain" number of Lua's, or nil.
local function class(x)
  if type(x) == "number" then return "plain" end
  local meta = type(x) == "table" and getmetatable(x)
  if meta ~= Value and meta ~= Number then return nil end
  if x.trace ~= trace then fail("a value of another formula, or of another call of this one") end
  return meta == Value and "value" or "number"
end

-- `count` operands, each a value or a number.
local function check(what, count, ...)
  if select("#", ...) > count then
    fail("%s: takes %d operand%s, not %d", what, count, count == 1 and "" or "s", select("#", ...))
  end
  for i = 1, count do
    local x = select(i, ...)
    if not class(x) then
      fail("%s: takes w, g, states, what is made of them, and numbers, not a %s", what, type(x))
    end
  end
end

-- Of a number, as the texts have it.
local function text_of(x)
  if type(x) ~= "number" then return x.text end
  if x ~= x then fail("a number of the formula is not one (0 / 0)") end
  if x == math.huge or x == -math.huge then fail("a number of the formula is infinite") end
  return ("%.17g"):format(x)
end

local function add(list, most, what, mark, first, meta, text)
  if not trace.known[text] then
    if #list + first == most then fail("the formula takes more than %d %s", most, what) end
    local name = mark .. (#list + first)
    list[#list + 1] = name .. "=" .. text
    trace.known[text] = setmetatable({ text = name, trace = trace }, meta)
  end
  return trace.known[text]
end

-- An operation on each element; `number` is its immediate.
local function emit(op, values, number)
  local operands = {}
  if type(number) == "number" and math.abs(number) > MOST_F32 then
    fail("elements are computed in f32, which has no number %g", number)
  end
  for i, x in ipairs(values) do operands[i] = x.text end
  if number then operands[#operands + 1] = "value=" .. text_of(number) end
  local text = op .. "(" .. table.concat(operands, ",") .. ")"
  return add(trace.program, MOST_OPERATIONS, "operations", "t", 0, Value, text)
end

local function number(op, ...)
  local operands = {}
  for i, x in ipairs { ... } do operands[i] = text_of(x) end
  local text = op .. "(" .. table.concat(operands, ",") .. ")"
  return add(trace.numbers, MOST_NUMBERS, "numbers", "n", 4, Number, text)
end

local o = {} -- the functions that a formula is given

local POWERS = {
  [2] = function(x) return o.square(x) end,
  [3] = function(x) return x * o.square(x) end,
  [0.5] = function(x) return o.sqrt(x) end,
  [-0.5] = function(x) return o.rsqrt(x) end,
  [1] = function(x) return x end,
  [-1] = function(x) return o.reciprocal(x) end,
}

-- Where an operand is a value: x and y as they are, and which of them are values.
local ELEMENTWISE = {
  add = function(x, y, of_x, of_y)
    if of_x and of_y then return emit("add", { x, y }) end
    if of_x then return emit("offset", { x }, y) end
    return emit("offset", { y }, x)
  end,
  sub = function(x, y, of_x, of_y)
    if of_x and of_y then return emit("sub", { x, y }) end
    if of_x then return emit("offset", { x }, -y) end
    return emit("offset", { emit("neg", { y }) }, x)
  end,
  mul = function(x, y, of_x, of_y)
    if of_x and of_y then return emit("mul", { x, y }) end
    if of_x then return emit("scale", { x }, y) end
    return emit("scale", { y }, x)
  end,
  div = function(x, y, of_x, of_y)
    if of_x and of_y then return emit("div", { x, y }) end
    if of_x then return emit("scale", { x }, 1 / y) end
    return emit("scale", { emit("reciprocal", { y }) }, x)
  end,
  pow = function(x, y, of_x)
    if not of_x then return o.exp(o.log(x) * y) end
    local power = POWERS[y]
    if not power then
      fail("x ^ y: y is 2, 3, 0.5, -0.5, 1 or -1; others, where x is above 0: o.exp(y * o.log(x))")
    end
    return power(x)
  end,
}
for _, op in ipairs { "minimum", "maximum", "less" } do
  ELEMENTWISE[op] = function(x, y, of_x, of_y)
    if not of_x then x = emit("const", {}, x) end
    if not of_y then y = emit("const", {}, y) end
    return emit(op, { x, y })
  end
end

local PLAIN = {
  minimum = math.min, maximum = math.max,
  less = function(x, y) return x < y and 1 or 0 end,
}

local function binary(op)
  return function(...)
    local x, y = ...
    check(op, 2, ...)
    local a, b = class(x), class(y)
    if a == "plain" and b == "plain" then return PLAIN[op](x, y) end
    if a ~= "value" and b ~= "value" then return number(op, x, y) end
    return ELEMENTWISE[op](x, y, a == "value", b == "value")
  end
end

o.minimum, o.maximum, o.less = binary "minimum", binary "maximum", binary "less"

-- By name: of a plain number, and of a number of the step; those that it lacks are of values alone.
local UNARY = {
  abs = { math.abs, function(x) return o.maximum(x, -x) end },
  exp = { math.exp, function(x) return number("exp", x) end },
  log = { function(x) return math.log(x) end, function(x) return number("log", x) end },
  reciprocal = { function(x) return 1 / x end, function(x) return 1 / x end },
  round = {},
  rsqrt = { function(x) return x ^ -0.5 end, function(x) return 1 / number("sqrt", x) end },
  sigmoid = {},
  sign = {
    function(x) return x > 0 and 1 or x < 0 and -1 or 0 end,
    function(x) return o.less(0, x) - o.less(x, 0) end,
  },
  sqrt = { math.sqrt, function(x) return number("sqrt", x) end },
  square = { function(x) return x * x end, function(x) return x * x end },
  tanh = {},
}
for op, of in pairs(UNARY) do
  o[op] = function(...)
    local x = ...
    check(op, 1, ...)
    local kind = class(x)
    if kind == "value" then return emit(op, { x }) end
    if not of[1] then fail("%s: takes a value of each element, not a number", op) end
    return of[kind == "plain" and 1 or 2](x)
  end
end

-- x where c is 1 and y where it is 0, as o.less says. Both are computed, of values: where one is
-- not finite, the result is not.
function o.where(...)
  local c, x, y = ...
  check("where", 3, ...)
  local a, b, d = class(c), class(x), class(y)
  if a == "plain" then return c ~= 0 and x or y end
  if a == "number" and b ~= "value" and d ~= "value" then return number("where", c, x, y) end
  return c * x + (1 - c) * y
end

local function no_truth()
  fail("a formula is traced once, for all steps and elements, and compares nothing itself: "
    .. "o.less(x, y) is 1 or 0, o.where(c, x, y) chooses")
end
for _, meta in ipairs { Value, Number } do
  meta.__add, meta.__sub, meta.__mul = binary "add", binary "sub", binary "mul"
  meta.__div, meta.__pow = binary "div", binary "pow"
  meta.__unm = function(x) return class(x) == "value" and emit("neg", { x }) or 0 - x end
  meta.__lt, meta.__le, meta.__eq = no_truth, no_truth, no_truth
  meta.__len = function() fail("#x: a formula sees one element, and has no lengths") end
end

-- A table that knows its names.
local function strict(fields, what)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  return setmetatable(fields, {
    __index = function(_, name)
      fail("%s '%s'; it has: %s", what, tostring(name), table.concat(names, ", "))
    end,
  })
end

-- A result, as the last operation that makes it; one that is an operand is copied.
local function result(value)
  return (value.text:sub(1, 1) == "i" and emit("copy", { value }) or value).text
end

-- states: their names; update: the formula; numbers: what t has beside lr, step and decay. Returns
-- the program and the numbers, or nil and what is wrong with the formula's results.
function optim.trace(states, update, numbers)
  trace = { program = {}, numbers = {}, known = {} }
  local function given(meta, text) return setmetatable({ text = text, trace = trace }, meta) end
  local s, t = {}, {}
  for i, name in ipairs(states) do s[name] = given(Value, "i" .. i + 1) end
  for name, value in pairs(numbers) do t[name] = value end
  t.lr, t.step, t.decay = given(Number, "n1"), given(Number, "n2"), given(Number, "n3")
  local w, g = given(Value, "i0"), emit("scale", { given(Value, "i1") }, given(Number, "n0"))
  local new_w, new = update(strict(o, "o: there is no function"), w, g,
    strict(s, "s: there is no state"), strict(t, "t: there is no number"))
  if class(new_w) ~= "value" then
    return nil, ("must return the new weight, made of w, not a %s"):format(
      class(new_w) and "number" or type(new_w))
  end
  if #states > 0 and type(new) ~= "table" then
    return nil, ("must return a table of the new states behind the new weight, not a %s"):format(
      type(new))
  end
  new = new or {}
  local known, results = {}, { result(new_w) }
  for _, name in ipairs(states) do
    known[name] = true
    local value = rawget(new, name)
    if class(value) ~= "value" then
      return nil, ("must return the new state '%s', made of values, not a %s"):format(name,
        class(value) and "number" or type(value))
    end
    results[#results + 1] = result(value)
  end
  for name in pairs(new) do
    if not known[name] then
      return nil, ("returns '%s', which is not in 'states'"):format(tostring(name))
    end
  end
  return table.concat(trace.program, " ") .. " -> " .. table.concat(results, " "),
    table.concat(trace.numbers, " ")
end

return optim
