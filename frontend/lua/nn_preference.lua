-- nn_preference: losses of answers that are preferred, in pairs or one by one, a part of nn. `nn`
-- is what it adds to, `tools` what layers of nn share.
--
-- Rows of the batch are pairs: row 2i is the chosen answer behind its prompt, row 2i + 1 the
-- rejected one. A label below 0 is no answer's. Values [batch] stay [batch]: what is said of a pair
-- stands in its chosen row, and the other is 0, so that nothing here depends on the layout.
-- Of kto and apo_zero_unpaired each row is an answer by itself, and the data say which are wanted.
local preference = {}

function preference.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

-- What is compared with a reference's log-probabilities, and which have label_smoothing.
local KINDS = {
  dpo = { reference = true, smoothed = true }, ipo = { reference = true },
  simpo = { smoothed = true }, orpo = {},
  robust = { reference = true, smoothed = true }, hinge = { reference = true },
  sigmoid_norm = { reference = true }, apo_zero = { reference = true },
  apo_down = { reference = true }, nca_pair = { reference = true },
  sppo_hard = { reference = true },
  kto = { reference = true, single = true },
  apo_zero_unpaired = { reference = true, single = true },
}
tools.PREFERENCES = "dpo, robust, ipo, hinge, sigmoid_norm, apo_zero, apo_down, nca_pair, "
  .. "sppo_hard, simpo, orpo, kto or apo_zero_unpaired"
tools.PREFERENCE_OPTIONS = { rpo_alpha = true, desirable_weight = true, undesirable_weight = true,
  online = true }

local function check_number(o, name, what)
  if not (o[name] >= 0 and o[name] <= 1e6) then
    fail("preference: '%s'%s must be a number from 0 to 1e6", name, what)
  end
end

local function check_preference(o)
  local kind = KINDS[o.kind]
  if not kind then
    fail("preference: '%s' is none of %s", tostring(o.kind), tools.PREFERENCES)
  end
  if not (o.beta > 0 and o.beta <= 1e6) then
    fail("preference: 'beta' must be a number above 0, at most 1e6")
  end
  if not (o.label_smoothing >= 0 and o.label_smoothing < 0.5) then
    fail("preference: 'label_smoothing', the share of pairs that are the wrong way round, must be "
      .. "at least 0 and less than 0.5")
  end
  if o.label_smoothing > 0 and not kind.smoothed then
    fail("preference: 'label_smoothing' is of dpo, robust and simpo, not of %s", o.kind)
  end
  check_number(o, "gamma", "")
  if o.gamma > 0 and o.kind ~= "simpo" then
    fail("preference: 'gamma', the margin that is asked for, is of simpo, not of %s", o.kind)
  end
  check_number(o, "rpo_alpha", ", the weight of chosen answers' likelihood,")
  if o.rpo_alpha > 0 and (kind.single or o.kind == "orpo") then
    fail("preference: 'rpo_alpha' is of pairs%s, not of %s", kind.single and "" or
      " whose loss does not have it already", o.kind)
  end
  for _, name in ipairs{ "desirable_weight", "undesirable_weight" } do
    check_number(o, name, "")
    if o[name] ~= 1 and not kind.single then
      fail("preference: '%s' is of kto and apo_zero_unpaired, not of %s", name, o.kind)
    end
  end
  if o.online and kind.single then
    fail("preference: 'online', pairs of answers that the model writes, is not of %s", o.kind)
  end
end

local function chosen(x) return ops.of_pairs{ x, axis = "batch", from = 0, into = 0 } end
local function rejected(x) return ops.of_pairs{ x, axis = "batch", from = 1, into = 0 } end

-- Mean over the pairs of what stands in chosen rows; what rejected ones have does not count.
local function mean_of_pairs(x)
  return ops.reduce_sum{ chosen(x), over = "batch" } * (2 / x:dim("batch"))
end

-- -log sigmoid(x), finite for every x. Its gradient at 0, where DPO begins, is -1/2: abs has none.
local function minus_log_sigmoid(x)
  local size = ops.abs{ x }
  return (size - x) * 0.5 + ops.log{ ops.exp{ -size } + 1 }
end

local function smoothed(x, share)
  if share == 0 then return minus_log_sigmoid(x) end
  return minus_log_sigmoid(x) * (1 - share) + minus_log_sigmoid(-x) * share
end

-- The loss whose mean, where that share of pairs is the wrong way round, is the one without noise.
local function unbiased(x, share)
  if share == 0 then return minus_log_sigmoid(x) end
  return (minus_log_sigmoid(x) * (1 - share) - minus_log_sigmoid(-x) * share) / (1 - 2 * share)
end

-- Losses by the rewards of the two answers, beta (log p - log p of the reference), as in TRL.
local BY_REWARDS = {
  dpo = function(a, b, o) -- Rafailov et al. 2023, equation 7; smoothed: Mitchell 2023, cDPO
    return smoothed(a - b, o.label_smoothing)
  end,
  robust = function(a, b, o) -- Chowdhury et al. 2024, equation 11
    return unbiased(a - b, o.label_smoothing)
  end,
  hinge = function(a, b) return ops.relu{ 1 - (a - b) } end, -- Zhao et al. 2023, SLiC
  apo_zero = function(a, b) -- D'Oosterlinck et al. 2024, equation 7
    return ops.sigmoid{ -a } + ops.sigmoid{ b }
  end,
  apo_down = function(a, b) -- equation 8
    return ops.sigmoid{ a } + ops.sigmoid{ b - a }
  end,
  nca_pair = function(a, b) -- Chen et al. 2024, NCA for two answers
    return minus_log_sigmoid(a) + (minus_log_sigmoid(-a) + minus_log_sigmoid(-b)) * 0.5
  end,
  sppo_hard = function(a, b, o) -- Wu et al. 2024, equation 4.7, the chosen one always winning
    return (ops.square{ a - 0.5 } + ops.square{ b + 0.5 }) * (1 / o.beta ^ 2)
  end,
}

-- log p - log(1 - p) of p = exp(mean): Hong et al. 2024, equation 4. A mean of almost 0 is taken
-- for -1e-6, as 1 - p would be 0 there.
local function log_odds(mean)
  local below = ops.minimum{ mean, ops.const{ value = -1e-6 } }
  return below - ops.log{ 1 - ops.exp{ below } }
end

-- score, count [batch]: the log-probability of each row's answer and its tokens -> the loss of each
-- pair, and the reward of each row, [batch]; and by how much the score is more than the reference's
local function loss_of(m, o, score, count)
  local ratio = KINDS[o.kind].reference and score - m:reference() or score
  if BY_REWARDS[o.kind] then
    local reward = ratio * o.beta
    return BY_REWARDS[o.kind](chosen(reward), rejected(reward), o), reward, ratio
  end
  local mean = ratio / count
  local reward = mean * o.beta
  if o.kind == "ipo" then -- Azar et al. 2023, equation 17, of means over tokens as in TRL
    return ops.square{ chosen(mean) - rejected(mean) - 1 / (2 * o.beta) }, reward, ratio
  end
  if o.kind == "sigmoid_norm" then -- Lambert et al. 2024, section 5.1: dpo by the token
    return minus_log_sigmoid(chosen(reward) - rejected(reward)), reward, ratio
  end
  if o.kind == "simpo" then -- Meng et al. 2024, equation 6
    return smoothed(chosen(reward) - rejected(reward) - o.gamma, o.label_smoothing), reward
  end
  local odds = log_odds(mean) -- Hong et al. 2024, equations 6 and 7
  return minus_log_sigmoid(chosen(odds) - rejected(odds)) * o.beta - chosen(mean), reward
end

-- What the log has of each step; mean: of what stands in chosen rows.
local function report(m, reward, margin, mean)
  m:output("reward_margin", mean(margin))
  m:output("reward_accuracy", mean(ops.less{ 0, margin }))
  m:output("chosen_reward", mean(reward))
  m:output("rejected_reward", mean(rejected(reward)))
end

-- What the data say of each row at its first position: [batch]
local function of_rows(m, name) return ops.reduce_sum{ m:numbers(name), over = "seq" } end

-- The mean over pairs; of answers that the model wrote itself over those that are no ties, which
-- weigh as much more as there are fewer.
local function mean_over(m, o)
  if not o.online then return mean_of_pairs end
  local weight = of_rows(m, "extra_weights") + 1
  return function(x) return mean_of_pairs(x * weight) end
end

-- Of answers by themselves: score [batch] -> the mean loss. `kind` of a row is 1 / (the share of
-- answers like it), below 0 where it is not desirable, so that means over either kind are known.
local function loss_of_answers(m, o, score)
  local reward = (score - m:reference()) * o.beta
  local kind = of_rows(m, "desirable")
  local wanted = ops.less{ 0, kind }
  local side = wanted * 2 - 1
  local from = reward
  if o.kind == "kto" then -- Ethayarajh et al. 2024, equation 8: from where rewards count
    local divergence = of_rows(m, "divergence")
    from = reward - divergence * o.beta
    m:output("kl", mean_of(divergence))
  end -- else D'Oosterlinck et al. 2024, equation 7, of answers by themselves
  local gain = from * side
  local function mean_of_kind(which) return mean_of(reward * which * ops.abs{ kind }) end
  local good, bad = mean_of_kind(wanted), mean_of_kind(1 - wanted)
  m:output("reward_margin", good - bad)
  m:output("reward_accuracy", mean_of(ops.less{ 0, gain }))
  m:output("chosen_reward", good)
  m:output("rejected_reward", bad)
  local weight = wanted * o.desirable_weight + (1 - wanted) * o.undesirable_weight
  return mean_of(ops.sigmoid{ -gain } * weight)
end

-- Mean over the pairs of the global batch of a loss that prefers chosen answers; or, of kto and
-- apo_zero_unpaired, over answers that are desirable or not.
-- logits [batch, seq, vocab], labels i32[batch, seq] (below 0: no answer's) -> scalar
-- options: kind (KINDS), online (pairs are answers that the model writes while it trains, and the
-- data say how much each counts; kl is put out, too: how much likelier than to the reference they
-- are in the mean), beta, label_smoothing (of dpo, robust and simpo), gamma (simpo's margin),
-- rpo_alpha (this times -log p by the token of chosen answers is added: Pang et al. 2024, equation
-- 2), desirable_weight, undesirable_weight (of answers by themselves), output (as
-- nn.cross_entropy's), beside (losses [batch], whose mean is added)
-- Makes outputs: row_scores [batch], the log-probabilities of answers, which most kinds compare
-- with a reference's (m:reference()); and for the log reward_margin, reward_accuracy (the share of
-- pairs whose chosen answer has more reward, or of answers on the right side), chosen_reward and
-- rejected_reward; of kto and online pairs kl.
function nn.preference(m, logits, labels, vocab, options)
  check_arguments("preference", m, logits)
  vocab = vocab or "vocab"
  local o = read_options("preference", options, { kind = "dpo", beta = 0.1, label_smoothing = 0.0,
    gamma = 0.0, rpo_alpha = 0.0, desirable_weight = 1.0, undesirable_weight = 1.0,
    online = false, output = NONE, beside = NONE })
  check_preference(o)
  if labels.input ~= "labels" then
    fail("preference: which tokens are answers' is said by the labels of the data; these are "
      .. "others")
  end
  if o.output ~= false then m:output(o.output or "logits", logits) end
  local answers = 1 - ops.less{ labels, 0 }
  local each = ops.cross_entropy{ logits, labels, axis = vocab } * answers
  local score = -ops.reduce_sum{ each, over = "seq" }
  local mean
  m:output("row_scores", score)
  if KINDS[o.kind].single then
    mean = loss_of_answers(m, o, score)
  else
    local count = ops.reduce_sum{ answers, over = "seq" }
    local loss, reward, ratio = loss_of(m, o, score, count)
    local mean_of_some = mean_over(m, o)
    report(m, reward, chosen(reward) - rejected(reward), mean_of_some)
    if o.online and ratio then
      m:output("kl", mean_of_some(chosen(ratio) + rejected(ratio)) * 0.5)
    end
    if o.rpo_alpha > 0 then loss = loss - chosen(score / count) * o.rpo_alpha end
    mean = mean_of_some(loss)
  end
  return o.beside and mean + mean_of(o.beside) or mean
end

function tools.is_preference(kind) return KINDS[kind] ~= nil end

-- rewards [batch] -> the mean over pairs of what prefers chosen answers by them.
function tools.loss_of_rewards(m, rewards)
  local margin = chosen(rewards) - rejected(rewards)
  report(m, rewards, margin, mean_of_pairs)
  return mean_of_pairs(minus_log_sigmoid(margin))
end

end

return preference
