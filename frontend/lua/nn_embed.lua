-- nn_embed: vectors of whole texts that are near where texts belong together, a part of nn. `nn` is
-- what it adds to, `tools` what layers of nn share.
--
-- A row of the data is a group: texts one behind the other, each seen by itself. So who is compared
-- with whom does not depend on how many rows a micro-batch has, or on where they lie.
local embed = {}

function embed.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

local POOLINGS = { mean = true, cls = true, last = true }
-- The names of a model's settings, without `embed_`, and those of nn.embed's options.
local SETTINGS = { embed_group = "group", embed_negatives = "negatives",
  embed_temperature = "temperature", embed_symmetric = "symmetric", embed_dims = "dims",
  embed_length = "length" }
local NO_SEPARATOR = 2147483647 -- ops.documents: positions are counted
local HIDDEN = 1e9 -- below any score, and what is added to it is lost in no precision

local function whole(x, from, to) return math.type(x) == "integer" and x >= from and x <= to end

local function check_embed(o, x)
  if not POOLINGS[o.pooling] then
    fail("embedding is '%s'; it can be none, mean, cls or last", tostring(o.pooling))
  end
  if not whole(o.group, 1, 1 << 20) or not whole(o.negatives, 0, 62) then
    fail("embed: 'group' must be a number of pairs in a row, at least 1, and 'negatives' how many "
      .. "more texts each has, from 0 to 62")
  end
  local n, seq = o.group * (2 + o.negatives), x:dim("seq")
  if 2 * n > seq then
    fail("embed: a row of %d tokens has no room for %d groups of %d texts, each with a token "
      .. "behind it: a larger --set seq=, or a smaller --set embed_group=", seq, o.group,
      2 + o.negatives)
  end
  if not (o.temperature >= 1e-4 and o.temperature <= 1e4) then
    fail("embed: 'temperature' must be a number from 1e-4 to 1e4")
  end
  if not whole(o.length, 0, 1 << 30) then
    fail("embed: 'length' must be a number of tokens, or 0: as many as fit")
  end
  if o.pooling == "mean" and type(o.starts) ~= "userdata" then
    fail("embed: 'starts' must be nn.documents' first value")
  end
  return n
end

-- "256,128" -> { 256, 128 }
local function read_dims(list, most)
  local dims, seen = {}, {}
  if list == "none" then return dims end
  for part in (list .. ","):gmatch("([^,]*),") do
    local dim = tonumber(part)
    if not dim or dim ~= math.floor(dim) or dim < 1 or dim >= most or seen[dim] then
      fail("embed: 'dims' is '%s'; it must be different numbers of leading columns, from 1 to %d, "
        .. "with commas between them, or none", list, most - 1)
    end
    seen[dim], dims[#dims + 1] = true, math.tointeger(dim)
  end
  return dims
end

-- v over its length along `axis`
local function normalized(v, axis)
  return v * ops.rsqrt{ ops.reduce_sum{ ops.square{ v }, over = axis } + 1e-24 }
end

-- What of each text counts: [batch, texts, model], of x [batch, seq, model]. `of_texts` takes
-- numbers [batch, seq] where labels are.
local function pool(x, labels, o, of_texts)
  local at
  if o.pooling == "mean" then -- of decoders a text's document ends with the token behind it
    local behind = 1 - ops.less{ ops.shift{ labels, axis = "seq", by = -1, value = -1 }, 0 }
    at = ops.number{ o.starts } * (1 - behind) - behind
  else -- cls: labels are at first tokens; last: at last ones
    at = ops.number{
      ops.documents{ labels, axis = "seq", separator = NO_SEPARATOR }:result(2) }
  end
  local member = ops.equal{ at, of_texts(at) } -- [batch, seq, texts]
  local sums = ops.matmul{ member, x, over = "seq", dtype = "f32" }
  return o.pooling == "mean" and sums / ops.reduce_sum{ member, over = "seq" } or sums
end

-- of_texts, as above -> which queries and answers are there, [batch, queries] and so on, the number
-- of each query, and 1 where a query and an answer belong together.
local function find_pairs(labels, there, o, of_texts)
  local function queries(x) return ops.narrow{ x, axis = "texts", to = "queries", first = 0 } end
  local function answers(x)
    return ops.narrow{ x, axis = "texts", to = "answers", first = o.group }
  end
  local present, which = of_texts(there), of_texts(ops.number{ labels })
  local pairs = { queries = queries(present), answers = answers(present), which = queries(which) }
  pairs.same = ops.equal{ pairs.which, answers(which) - o.group } * pairs.queries * pairs.answers
  return pairs
end

-- -log of the share that a query's own answer has of all answers, [batch, queries], and the scores;
-- v [batch, texts, axis], of length 1 (van den Oord et al. 2018, equation 4; Henderson et al. 2017)
local function contrast(v, axis, o, pairs)
  local q = ops.narrow{ v, axis = "texts", to = "queries", first = 0 }
  local a = ops.narrow{ v, axis = "texts", to = "answers", first = o.group }
  local scores = ops.matmul{ q, a, over = axis, dtype = "f32" } * (1 / o.temperature)
  local masked = scores + (pairs.answers - 1) * HIDDEN
  local own = ops.reduce_sum{ scores * pairs.same, over = "answers" }
  local each = (ops.logsumexp{ masked, axis = "answers" } - own) * pairs.queries
  if not o.symmetric then return each, masked end
  -- Of each positive, the share that its own query has of all: as CLIP (Radford et al. 2021).
  local p = ops.narrow{ v, axis = "texts", to = "positives", first = o.group }
  local back = ops.matmul{ p, q, over = axis, dtype = "f32" } * (1 / o.temperature)
  back = ops.logsumexp{ back + (pairs.queries - 1) * HIDDEN, axis = "queries" }
  back = (ops.rename{ back, axis = "positives", to = "queries" } - own) * pairs.queries
  return (each + back) * 0.5, masked
end

-- Mean over the queries of the global batch of -log of softmax(cosine / temperature), over all
-- answers of its group, at its own. x [batch, seq, model], labels i32[batch, seq], which are -1 but
-- at one token of each text, where they say which it is: 0 to group - 1 queries, then the answers
-- to them, then each one's first other text, that is no answer, and so on -> scalar
-- options: pooling (mean: over a text's tokens; cls, last: its first, or last, token), starts
-- (nn.documents' first value, for mean), pad (the token behind each text), group (pairs in a row),
-- negatives (other texts of each), temperature, symmetric (answers look for their queries, too),
-- dims ("256,128": losses of so many leading numbers are added; Kusupati et al. 2022, equation 1),
-- length (tokens of a text at most; 0: as many as fit), beside (losses [batch], whose mean is
-- added)
-- Makes outputs: vectors [batch, texts, model], and for the log accuracy, the share of queries that
-- are nearest to their own answer.
function nn.embed(m, x, labels, options)
  check_arguments("embed", m, x)
  local o = read_options("embed", options,
    { pooling = "mean", starts = NONE, pad = 0, group = 16, negatives = 0, temperature = 0.05,
      symmetric = false, dims = "none", length = 0, beside = NONE })
  if labels.input ~= "labels" then
    fail("embed: which text a token stands for is in the labels of the data; these are others")
  end
  local n, seq = check_embed(o, x), x:dim("seq")
  if n > m.vocab then -- labels lie among the tokens
    fail("embed: %d texts in a row, more than there are tokens: a smaller --set embed_group=", n)
  end
  local dims = read_dims(o.dims, m.model)
  m:axis("texts", n)
  m:axis("queries", o.group)
  m:axis("positives", o.group)
  m:axis("answers", n - o.group)
  local there = 1 - ops.less{ labels, 0 }
  local function of_texts(x) return ops.put{ x * there, labels, axis = "texts" } end
  local pairs = find_pairs(labels, there, o, of_texts)
  local v = pool(x, labels, o, of_texts)
  local vectors = normalized(v, "model")
  m:output("vectors", vectors)
  local each, scores = contrast(vectors, "model", o, pairs)
  for _, dim in ipairs(dims) do
    local axis = "columns_" .. dim
    m:axis(axis, dim)
    local part = ops.narrow{ v, axis = "model", to = axis, first = 0 }
    each = each + contrast(normalized(part, axis), axis, o, pairs)
  end
  local length = o.length > 0 and math.min(o.length, seq - 1) or seq - 1
  -- As many labels as texts: of full rows n of seq, and means are over the queries that are there.
  local share = ops.label_share{ value = -1, groups = o.group, count = 2 + o.negatives,
    length = length, first = o.pooling == "cls" and 1 or 0, pad = o.pad } * (seq / n)
  m:axis("likeliest", 1)
  local best = ops.top{ scores, axis = "answers", to = "likeliest", count = 1 }
  local right = ops.equal{ ops.number{ best }, pairs.which } * pairs.queries
  m:output("accuracy", mean_of(right) / share)
  local loss = mean_of(each) / share
  return o.beside and loss + mean_of(o.beside) or loss
end

-- nn.embed as m's settings ask for it. options: starts, pad and beside of nn.embed's, longest
-- (tokens that the model has positions for in a text; 0: any number)
function nn.embed_as_set(m, x, labels, options)
  check_arguments("embed_as_set", m, x)
  local o = read_options("embed_as_set", options,
    { starts = NONE, pad = 0, beside = NONE, longest = 0 })
  local how = { pooling = m.embedding, starts = o.starts, pad = o.pad, beside = o.beside }
  for name, option in pairs(SETTINGS) do how[option] = m:setting(name) end
  local length = how.length or 0
  if o.longest > 0 and (length == 0 or length > o.longest) then how.length = o.longest end
  return nn.embed(m, x, labels, how)
end

end

return embed
