-- nn_classes: what is said of whole texts, their classes and how good answers are, a part of nn.
-- `nn` is what it adds to, `tools` what layers of nn share.
--
-- Every position is told of, and the data's labels say which one counts: a text's first or last.
-- The head is small, and nothing here depends on where texts lie or how they are divided.
local classes = {}

function classes.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE
local MOST = 4096 -- classes (ir/class_names.h)

local function count_of(list)
  if type(list) ~= "string" then
    fail("classify: 'classes' must be names with commas between them, or how many there are, not a "
      .. "%s", type(list))
  end
  local n = tonumber(list)
  if n then return n end
  n = 0
  for _ in (list .. ","):gmatch("[^,]*,") do n = n + 1 end
  return n
end

-- x [batch, seq, model] -> one number of x for each of `n`, [batch, seq, class]. pooled: behind
-- tanh(x W + b), as BERT has it, or another activation of it
local function head(m, x, n, o)
  local from = "model"
  m:axis("class", n)
  if o.pooled then
    m:axis("pooled", m.model)
    from = "pooled"
    x = nn.linear(m, x, "model", from, { weight = "pooler.w", bias = "pooler.b", std = o.std })
    x = o.pooler_act == "tanh" and ops.tanh{ x } or nn.activation(x, o.pooler_act)
  end
  if (m:setting("lora") or 0) > 0 then m:freeze("!score") end -- beside adapters it learns, too
  return nn.linear(m, nn.dropout(x, o.dropout), from, "class",
    { weight = "score", bias = o.bias and "score.b" or nil, std = o.std, muon = 0 })
end

-- Losses of a text [batch, seq], by logits [batch, seq, class] and the data's targets, like them.
local LOSSES = {
  -- shares of classes: -log of the probability of each, so often as it counts
  shares = function(logits, targets)
    return ops.reduce_sum{ targets * (ops.logsumexp{ logits, axis = "class" } - logits),
                           over = "class" }
  end,
  -- 1 of classes that it has, else 0: -log of the probability that it has it, or has not
  sets = function(logits, targets)
    return ops.softplus{ logits } - logits * targets
  end,
  mse = function(logits, targets) return ops.square{ logits - targets } end,
  mae = function(logits, targets) return ops.abs{ logits - targets } end,
  huber = function(logits, targets) -- with a delta of 1 (Huber 1964)
    local apart = ops.abs{ logits - targets }
    local near = 1 - ops.relu{ 1 - apart } -- the lesser of it and 1
    return ops.square{ near } * 0.5 + apart - near
  end,
}
local KINDS = { one = "one", sets = "sets", mse = "numbers", mae = "numbers", huber = "numbers" }

-- What classes are, by m's settings of these names, where nn.classify is not told.
local function settle_kind(m, o)
  if o.kind == nil then o.kind = m:setting("class_kind") or "one" end
  if not KINDS[o.kind] then
    fail("classify: the kind, class_kind, is '%s'; it can be one, sets, mse, mae or huber",
      tostring(o.kind))
  end
  if KINDS[o.kind] == "one" then
    if o.weights == nil then o.weights = m:setting("class_weights") end
    if o.smoothing == nil then o.smoothing = m:setting("class_smoothing") end
  end
  if o.weights == "none" then o.weights = nil end
  if o.smoothing == 0 then o.smoothing = nil end
  return KINDS[o.kind]
end

-- Outputs for the log: how the mean text is told.
local function tell_right(m, logits, targets, n, mean_of_texts)
  local same = ops.equal{ 1 - ops.less{ logits, 0 }, targets }
  local right = ops.reduce_sum{ same, over = "class" }
  m:output("accuracy", mean_of_texts(1 - ops.less{ right, n - 0.5 }))
  m:output("label_accuracy", mean_of_texts(right * (1 / n)))
end

-- The mean over the texts of the global batch of the loss of each one's class, classes or numbers:
-- -log of the class's probability (kind = one), the mean over classes of -log of the probability
-- that it has it, or has not (sets, of any number of them), or how far numbers are apart (mse, mae,
-- huber; the mean over numbers).
-- x [batch, seq, model], labels i32[batch, seq], which are -1 but where a text is told of -> scalar
-- Parameters: score [model, class]; with bias score.b; with pooled pooler.w [model, pooled],
-- pooler.b, and score [pooled, class].
-- options: classes ("negative,positive", or "2"; of numbers there may be 1), kind, weights (of one:
-- "1,3.5", what each class counts in the mean, or "balanced": as the data's counts have it),
-- smoothing (of one: so much of a class's share all classes have: Szegedy et al. 2016, section 7),
-- first (is a text told of at its first token? else at its last), pad (the token behind each text,
-- which no text has), between (how many tokens that end texts are between the two of a pair), eos
-- (which one does; any, if absent), pooled, pooler_act (tanh, or one of nn.activation's), bias,
-- dropout (of what the head reads), std, beside (losses [batch], whose mean is added)
-- Where kind, weights and smoothing are absent, m's settings class_kind, class_weights and
-- class_smoothing say them, if it has them.
-- Makes outputs: logits [batch, seq, class]; for the log accuracy, the share of texts told right,
-- of sets label_accuracy, the share of classes, of numbers mae
function nn.classify(m, x, labels, options)
  check_arguments("classify", m, x)
  local o = read_options("classify", options,
    { classes = NONE, first = false, pad = 0, between = 1, eos = NONE, pooled = false,
      pooler_act = "tanh", bias = false, dropout = 0.0, std = 0.02, beside = NONE, kind = NONE,
      weights = NONE, smoothing = NONE })
  if labels.input ~= "labels" then
    fail("classify: classes are the labels of the data; these are others")
  end
  local kind, n = settle_kind(m, o), count_of(o.classes)
  local least, most = kind == "numbers" and 1 or 2, kind == "one" and m.vocab or MOST
  if n ~= math.floor(n) or n < least or n > most then -- one's labels lie among the tokens
    fail("classify: 'classes' is '%s', %g of them; there must be from %d to %d%s", o.classes, n,
      least, most, kind == "one" and ", as many as there are tokens" or "")
  end
  n = math.tointeger(n)
  local logits = head(m, x, n, o)
  m:output("logits", logits)
  local counts = 1 - ops.less{ labels, 0 }
  local function mean_of_texts(each)
    return mean_of(each * counts) / ops.label_share{ value = -1, classes = o.classes,
      first = o.first and 1 or 0, pad = o.pad, between = o.between, eos = o.eos,
      labels = kind ~= "one" and kind or nil, weights = o.weights, smoothing = o.smoothing }
  end
  local loss
  if kind == "one" then
    m:axis("likeliest", 1)
    local best = ops.top{ logits, axis = "class", to = "likeliest", count = 1 }
    m:output("accuracy", mean_of_texts(ops.equal{ best, labels }))
    loss = mean_of_texts((o.weights or o.smoothing) and LOSSES.shares(logits, m:targets())
      or ops.cross_entropy{ logits, labels, axis = "class" })
  else
    local targets = m:targets()
    local function over_classes(each)
      return ops.reduce_sum{ each, over = "class" } * (1 / n)
    end
    if kind == "sets" then
      tell_right(m, logits, targets, n, mean_of_texts)
    else
      m:output("mae", mean_of_texts(over_classes(LOSSES.mae(logits, targets))))
    end
    loss = mean_of_texts(over_classes(LOSSES[o.kind](logits, targets)))
  end
  return o.beside and loss + mean_of(o.beside) or loss
end

-- The mean of x [batch, seq, model] over each position's own document -> like x. `starts`:
-- nn.documents' first value. Memory is that of a square of the sequence.
function nn.document_mean(m, x, starts)
  check_arguments("document_mean", m, x)
  if type(starts) ~= "userdata" then
    fail("document_mean: the third argument must be nn.documents' first value")
  end
  m:axis("others", x:dim("seq"))
  local same = ops.equal{ starts, ops.rename{ starts, axis = "seq", to = "others" } }
  local sums = ops.matmul{ same, ops.rename{ x, axis = "seq", to = "others" }, over = "others" }
  return sums / ops.reduce_sum{ same, over = "others" }
end

-- Mean over the pairs of the global batch of -log sigmoid(r(chosen) - r(rejected)), where r, the
-- reward of an answer, is read at its last token (Bradley and Terry 1952; Ouyang et al. 2022,
-- equation 1). x [batch, seq, model], labels i32[batch, seq], which are -1 but there -> scalar
-- Parameter: score [model, class]. options: bias, dropout, std, beside, as nn.classify's
-- Makes outputs: rewards [batch], and those that nn.preference has for the log.
function nn.reward(m, x, labels, options)
  check_arguments("reward", m, x)
  local o = read_options("reward", options,
    { bias = false, dropout = 0.0, std = 0.02, beside = NONE })
  local scores = head(m, x, 1, o)
  m:output("logits", scores)
  local each = ops.narrow{ scores, axis = "class", first = 0 }
  local rewards = ops.reduce_sum{ each * (1 - ops.less{ labels, 0 }), over = "seq" }
  m:output("rewards", rewards)
  local loss = tools.loss_of_rewards(m, rewards)
  return o.beside and loss + mean_of(o.beside) or loss
end

end

return classes
