-- nn_policy: losses of answers that a model wrote itself, by what they are worth, a part of nn.
-- `nn` is what it adds to, `tools` what layers of nn share.
--
-- A row of the batch is a prompt and an answer; a label below 0 is no answer's. What an answer is
-- worth beside others to its prompt, what a label's log-probability was when it was written and
-- what a reference gives it come with the data: m:numbers.
local policy = {}

function policy.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

local KINDS = { grpo = true, dapo = true, dr_grpo = true, gspo = true }
local MOST = 20 -- of the logarithm of a ratio: e^20 is far beyond any clip, and finite

local function check_policy(o)
  if not KINDS[o.kind] then
    fail("policy: '%s' is none of grpo, dapo, dr_grpo and gspo", tostring(o.kind))
  end
  if not (o.clip > 0 and o.clip < 1) then
    fail("policy: 'clip', how far a ratio may fall below 1, must be between 0 and 1")
  end
  if not (o.clip_high >= 0 and o.clip_high <= 1e6) then
    fail("policy: 'clip_high', how far it may rise above 1, must be a number from 0 (as 'clip') "
      .. "to 1e6")
  end
  if not (o.kl >= 0 and o.kl <= 1e6) then
    fail("policy: 'kl', the weight of the distance from the reference, must be a number from 0 to "
      .. "1e6")
  end
end

local function bounded(x, low, high)
  return ops.maximum{ ops.minimum{ x, ops.const{ value = high } }, ops.const{ value = low } }
end

-- A loss of answers by their advantages: the ratio of a token's probability to what it was when the
-- answer was written, times its advantage, or the clipped ratio's, whichever is less (PPO: Schulman
-- et al. 2017, equation 7).
-- logits [batch, seq, vocab], labels i32[batch, seq] (below 0: no answer's) -> scalar
-- options: kind, that is, which mean over tokens it is: grpo (of each answer's mean: Shao et al.
-- 2024, equation 3), dapo (over all tokens of the global batch: Yu et al. 2025, equation 8),
-- dr_grpo (of each answer's sum over `seq`, of rewards that are not divided by their spread: Liu et
-- al. 2025, section 3.2), or gspo (as grpo, with one ratio for an answer, the geometric mean of its
-- tokens': Zheng et al. 2025, equations 5 and 7); clip, clip_high (0: as clip): ratios count from
-- 1 - clip to 1 + clip_high; kl (this times an estimate of the Kullback-Leibler divergence from the
-- reference is added to each token's loss: Shao et al., equation 4); output (as
-- nn.cross_entropy's), beside (losses [batch], whose mean is added)
-- Makes outputs: token_scores [batch, seq], the log-probabilities of labels; and for the log, means
-- over the labels of the global batch, entropy (of -log p of what was written, which estimates it),
-- clipped (the share whose clipped ratio counts) and, with kl, kl.
function nn.policy(m, logits, labels, vocab, options)
  check_arguments("policy", m, logits)
  vocab = vocab or "vocab"
  local o = read_options("policy", options, { kind = "grpo", clip = 0.2, clip_high = 0.0, kl = 0.0,
    output = NONE, beside = NONE })
  check_policy(o)
  if labels.input ~= "labels" then
    fail("policy: which tokens are answers' is said by the labels of the data; these are others")
  end
  if o.output ~= false then m:output(o.output or "logits", logits) end
  local answers = 1 - ops.less{ labels, 0 }
  local count = ops.maximum{ ops.reduce_sum{ answers, over = "seq" }, ops.const{ value = 1 } }
  local share = ops.label_share{ value = -1 }
  local function mean_of_labels(x) return mean_of(x) / share end
  local scores = -ops.cross_entropy{ logits, labels, axis = vocab } * answers
  m:output("token_scores", scores)

  local old = m:numbers("old_scores") * answers
  old = old + ops.stop_gradient{ scores } * ops.equal{ old, 0 } -- 0: as they are now
  local risen = scores - old
  if o.kind == "gspo" then risen = ops.reduce_sum{ risen, over = "seq" } / count end
  local ratio = ops.exp{ bounded(risen, -MOST, MOST) }
  local of_rewards = o.kind == "dr_grpo" and "centered_rewards" or "advantages"
  local advantages = m:numbers(of_rewards) * answers
  local gain = ratio * advantages
  local clipped = bounded(ratio, 1 - o.clip, 1 + (o.clip_high > 0 and o.clip_high or o.clip))
    * advantages
  local each = -ops.minimum{ gain, clipped }
  m:output("entropy", mean_of_labels(-scores))
  m:output("clipped", mean_of_labels(ops.less{ clipped, gain }))
  if o.kl > 0 then
    local below = bounded((m:numbers("reference_scores") * answers) - scores, -MOST, MOST)
    local kl = ops.exp{ below } - below - 1
    m:output("kl", mean_of_labels(kl))
    each = each + kl * o.kl
  end

  local mean
  if o.kind == "dapo" then
    mean = mean_of_labels(each)
  elseif o.kind == "dr_grpo" then
    mean = mean_of(each)
  else
    mean = mean_of(ops.reduce_sum{ each, over = "seq" } / count)
  end
  return o.beside and mean + mean_of(o.beside) or mean
end

function tools.is_policy(kind) return KINDS[kind] == true end

end

return policy
