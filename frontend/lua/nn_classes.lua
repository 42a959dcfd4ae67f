-- nn_classes: what is said of whole texts, their classes and how good answers are, a part of nn;
-- and the loss that a decoder's settings ask for. `nn` is what it adds to, `tools` what layers of
-- nn share.
--
-- Every position is told of, and the data's labels say which one counts: a text's first or last.
-- The head is small, and nothing here depends on where texts lie or how they are divided.
local classes = {}

function classes.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

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
  if (rawget(m, "lora") or 0) > 0 then m:freeze("!score") end -- beside adapters it learns, too
  return nn.linear(m, nn.dropout(x, o.dropout), from, "class",
    { weight = "score", bias = o.bias and "score.b" or nil, std = o.std, muon = 0 })
end

-- Mean over the texts of the global batch of -log of the probability of each one's class.
-- x [batch, seq, model], labels i32[batch, seq], which are -1 but where a text is told of -> scalar
-- Parameters: score [model, class]; with bias score.b; with pooled pooler.w [model, pooled],
-- pooler.b, and score [pooled, class].
-- options: classes ("negative,positive", or "2"), first (is a text told of at its first token? else
-- at its last), pad (the token behind each text, which no text has), between (how many tokens that
-- end texts are between the two of a pair), eos (which one does; any, if absent), pooled,
-- pooler_act (tanh, or one of nn.activation's), bias, dropout (of what the head reads), std, beside
-- (losses [batch], whose mean is added)
-- Makes outputs: logits [batch, seq, class], and for the log accuracy, the share that is right.
function nn.classify(m, x, labels, options)
  check_arguments("classify", m, x)
  local o = read_options("classify", options,
    { classes = NONE, first = false, pad = 0, between = 1, eos = NONE, pooled = false,
      pooler_act = "tanh", bias = false, dropout = 0.0, std = 0.02, beside = NONE })
  if labels.input ~= "labels" then
    fail("classify: classes are the labels of the data; these are others")
  end
  local n = count_of(o.classes)
  if n ~= math.floor(n) or n < 2 or n > m.vocab then -- labels lie among the tokens
    fail("classify: 'classes' is '%s', %g of them; there must be from 2 to %d, as many as there "
      .. "are tokens", o.classes, n, m.vocab)
  end
  local logits = head(m, x, math.tointeger(n), o)
  m:output("logits", logits)
  local function share()
    return ops.label_share{ value = -1, classes = o.classes, first = o.first and 1 or 0,
                            pad = o.pad, between = o.between, eos = o.eos }
  end
  local counts = 1 - ops.less{ labels, 0 }
  m:axis("likeliest", 1)
  local best = ops.top{ logits, axis = "class", to = "likeliest", count = 1 }
  m:output("accuracy", mean_of(ops.equal{ best, labels } * counts) / share())
  local loss = mean_of(ops.cross_entropy{ logits, labels, axis = "class" } * counts) / share()
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

-- The loss that m's settings ask for: classes of texts (m.classes is not none: nn.classify), or
-- m.policy (nn.policy's kind, with clip, clip_high and kl), or m.preference (reward: nn.reward, or
-- nn.preference's kind, with beta, label_smoothing, gamma and, if m has them, its other options),
-- or m.diffusion (masked, or shifted: a position says the next one's token; with mask_token, -1:
-- the vocabulary's last, and diffusion_by_row); where these are none, of the tokens that follow,
-- all or, where m.masked, those that the data's masks say. Or m.embedding (mean, or last:
-- nn.embed_as_set), in models that give `starts`.
-- x [batch, seq, model]; logits: a function of x that gives [batch, seq, vocab]
-- options: beside (losses [batch], whose mean is added), starts (nn.documents' first value)
function nn.decoder_loss(m, x, labels, logits, options)
  check_arguments("decoder_loss", m, x)
  local o = read_options("decoder_loss", options, { beside = NONE, starts = NONE })
  if type(logits) ~= "function" then
    fail("decoder_loss: the fourth argument must be a function of x that gives logits")
  end
  local kinds, policy, diffusion, embedding, online = {}, "none", "none", "none", false
  for name, value in pairs(m) do -- models may be without these
    if name == "online" then online = value end
    if name == "policy" then policy = value end
    if name == "embedding" then embedding = value end
    if name == "diffusion" then diffusion = value end
  end
  for name, kind in pairs{ classes = m.classes, policy = policy, preference = m.preference,
                           diffusion = diffusion, embedding = embedding } do
    if kind ~= "none" then kinds[#kinds + 1] = "'" .. name .. "'" end
  end
  table.sort(kinds)
  if #kinds > 1 then fail("decoder_loss: %s: one of them", table.concat(kinds, " and ")) end
  if online and (m.preference == "none" or m.preference == "reward") then
    fail("online: is of pairs (preference=dpo and its like), not of preference=%s", m.preference)
  end
  if embedding ~= "none" then
    if embedding == "cls" then
      fail("embedding=cls: the first token of a decoder sees no other one; last, or mean")
    end
    if m.documents < 0 then
      fail("embedding needs --set documents=, a token that stands between texts and in none")
    end
    return nn.embed_as_set(m, x, labels, { starts = o.starts, pad = m.documents,
      beside = o.beside })
  end
  if m.classes ~= "none" then
    return nn.classify(m, x, labels, { classes = m.classes, dropout = m.dropout,
      pad = m.documents >= 0 and m.documents or 0, beside = o.beside })
  end
  if m.preference == "reward" then
    return nn.reward(m, x, labels, { dropout = m.dropout, beside = o.beside })
  end
  if m.preference ~= "none" and not tools.is_preference(m.preference) then
    fail("preference is '%s'; it can be none, reward, %s", m.preference, tools.PREFERENCES)
  end
  if policy ~= "none" and not tools.is_policy(policy) then
    fail("policy is '%s'; it can be none, grpo, dapo, dr_grpo or gspo", policy)
  end
  if policy ~= "none" then
    return nn.policy(m, logits(x), labels, "vocab", { kind = policy, clip = m.clip,
      clip_high = m.clip_high, kl = m.kl, beside = o.beside })
  end
  if diffusion ~= "none" then
    if diffusion ~= "masked" and diffusion ~= "shifted" then
      fail("diffusion is '%s'; it can be none, masked or shifted", diffusion)
    end
    local mask = m.mask_token == -1 and m.vocab - 1 or m.mask_token
    return nn.cross_entropy(m, logits(x), labels, "vocab", { beside = o.beside, diffusion = {
      mask = mask, shifted = diffusion == "shifted", by_row = m.diffusion_by_row } })
  end
  if m.preference == "none" then
    return nn.cross_entropy(m, logits(x), labels, "vocab",
      { beside = o.beside, ignore = m.masked and -1 or nil })
  end
  local how = { kind = m.preference, beta = m.beta, label_smoothing = m.label_smoothing,
    gamma = m.gamma, beside = o.beside }
  for name, value in pairs(m) do -- models may be without these
    if tools.PREFERENCE_OPTIONS[name] then how[name] = value end
  end
  return nn.preference(m, logits(x), labels, "vocab", how)
end

end

return classes
