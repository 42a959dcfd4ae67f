-- nn_preference: losses of pairs of answers, one preferred to the other, a part of nn. `nn` is what
-- it adds to, `tools` what layers of nn share.
--
-- Rows of the batch are pairs: row 2i is the chosen answer behind its prompt, row 2i + 1 the
-- rejected one. A label below 0 is no answer's. Values [batch] stay [batch]: what is said of a pair
-- stands in its chosen row, and the other is 0, so that nothing here depends on the layout.
local preference = {}

function preference.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

local KINDS = { dpo = true, ipo = true, simpo = true, orpo = true }
local WITH_REFERENCE = { dpo = true, ipo = true }

local function check_preference(o)
  if not KINDS[o.kind] then
    fail("preference: '%s' is none of dpo, ipo, simpo and orpo", tostring(o.kind))
  end
  if not (o.beta > 0 and o.beta <= 1e6) then
    fail("preference: 'beta' must be a number above 0, at most 1e6")
  end
  if not (o.label_smoothing >= 0 and o.label_smoothing < 0.5) then
    fail("preference: 'label_smoothing', the share of pairs that are the wrong way round, must be "
      .. "at least 0 and less than 0.5")
  end
  if o.label_smoothing > 0 and o.kind ~= "dpo" and o.kind ~= "simpo" then
    fail("preference: 'label_smoothing' is of dpo and simpo, not of %s", o.kind)
  end
  if not (o.gamma >= 0 and o.gamma <= 1e6) then
    fail("preference: 'gamma' must be a number from 0 to 1e6")
  end
  if o.gamma > 0 and o.kind ~= "simpo" then
    fail("preference: 'gamma', the margin that is asked for, is of simpo, not of %s", o.kind)
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

-- log p - log(1 - p) of p = exp(mean): Hong et al. 2024, equation 4. A mean of almost 0 is taken
-- for -1e-6, as 1 - p would be 0 there.
local function log_odds(mean)
  local below = ops.minimum{ mean, ops.const{ value = -1e-6 } }
  return below - ops.log{ 1 - ops.exp{ below } }
end

-- score, count [batch]: the log-probability of each row's answer and its tokens -> the loss of each
-- pair, and the reward of each row, [batch]
local function loss_of(m, o, score, count)
  local ratio = WITH_REFERENCE[o.kind] and score - m:reference() or score
  if o.kind == "dpo" then -- Rafailov et al. 2023, equation 7; smoothed: Mitchell 2023, cDPO
    local reward = ratio * o.beta
    return smoothed(chosen(reward) - rejected(reward), o.label_smoothing), reward
  end
  local mean = ratio / count
  local reward = mean * o.beta
  if o.kind == "ipo" then -- Azar et al. 2023, equation 17, of means over tokens as in TRL
    return ops.square{ chosen(mean) - rejected(mean) - 1 / (2 * o.beta) }, reward
  end
  if o.kind == "simpo" then -- Meng et al. 2024, equation 6
    return smoothed(chosen(reward) - rejected(reward) - o.gamma, o.label_smoothing), reward
  end
  local odds = log_odds(mean) -- Hong et al. 2024, equations 6 and 7
  return minus_log_sigmoid(chosen(odds) - rejected(odds)) * o.beta - chosen(mean), reward
end

-- What the log has of each step.
local function report(m, reward, margin)
  m:output("reward_margin", mean_of_pairs(margin))
  m:output("reward_accuracy", mean_of_pairs(ops.less{ 0, margin }))
  m:output("chosen_reward", mean_of_pairs(reward))
  m:output("rejected_reward", mean_of_pairs(rejected(reward)))
end

-- Mean over the pairs of the global batch of a loss that prefers chosen answers.
-- logits [batch, seq, vocab], labels i32[batch, seq] (below 0: no answer's) -> scalar
-- options: kind (dpo, ipo, simpo, orpo), beta, label_smoothing (of dpo and simpo), gamma (simpo's
-- margin), output (as nn.cross_entropy's), beside (losses [batch], whose mean is added)
-- Makes outputs: row_scores [batch], the log-probabilities of answers, which dpo and ipo compare
-- with those before training (m:reference()); and for the log reward_margin, reward_accuracy (the
-- share of pairs whose chosen answer has more reward), chosen_reward and rejected_reward.
function nn.preference(m, logits, labels, vocab, options)
  check_arguments("preference", m, logits)
  vocab = vocab or "vocab"
  local o = read_options("preference", options, { kind = "dpo", beta = 0.1, label_smoothing = 0.0,
    gamma = 0.0, output = NONE, beside = NONE })
  check_preference(o)
  if labels.input ~= "labels" then
    fail("preference: which tokens are answers' is said by the labels of the data; these are "
      .. "others")
  end
  if o.output ~= false then m:output(o.output or "logits", logits) end
  local answers = 1 - ops.less{ labels, 0 }
  local each = ops.cross_entropy{ logits, labels, axis = vocab } * answers
  local score = -ops.reduce_sum{ each, over = "seq" }
  local count = ops.reduce_sum{ answers, over = "seq" }
  m:output("row_scores", score)
  local loss, reward = loss_of(m, o, score, count)
  report(m, reward, chosen(reward) - rejected(reward))
  local mean = mean_of_pairs(loss)
  return o.beside and mean + mean_of(o.beside) or mean
end

function tools.is_preference(kind) return KINDS[kind] == true end

-- rewards [batch] -> the mean over pairs of what prefers chosen answers by them.
function tools.loss_of_rewards(m, rewards)
  local margin = chosen(rewards) - rejected(rewards)
  report(m, rewards, margin)
  return mean_of_pairs(minus_log_sigmoid(margin))
end

end

return preference
