-- nn_distill: losses of a student that learns from a teacher's logits, at hand or stored, a part of
-- nn. `nn` is what it adds to, `tools` what layers of nn share.
local distill = {}

function distill.add(nn, tools)

local ops = ops
local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local mean_of, NONE = tools.mean_of, tools.NONE

local function check_distill(o)
  if o.kind ~= "forward" and o.kind ~= "reverse" and o.kind ~= "jsd" then
    fail("distill: '%s' is none of forward, reverse and jsd", tostring(o.kind))
  end
  if not (o.alpha >= 0 and o.alpha <= 1) then
    fail("distill: 'alpha', the share of the loss that is the teacher's, must be from 0 to 1")
  end
  if not (o.temperature >= 0.01 and o.temperature <= 100) then
    fail("distill: 'temperature' must be a number from 0.01 to 100")
  end
  if not (o.beta > 0 and o.beta < 1) then
    fail("distill: 'beta', the teacher's share of the mixture, must be between 0 and 1")
  end
  if o.beta ~= 0.5 and o.kind ~= "jsd" then
    fail("distill: 'beta' is of jsd, not of %s", o.kind)
  end
  if o.share and o.ignore == nil then fail("distill: 'share' goes with 'ignore'") end
  if o.stored and (o.kind ~= "forward" or o.temperature ~= 1) then
    fail("distill: 'stored' words have kind forward and temperature 1: what is stored are "
      .. "probabilities of some words, of which no others can be made")
  end
end

-- The model's own loss, (1 - alpha) of it, and alpha T^2 times the mean over labels of how far the
-- student's words are from the teacher's, both at temperature T (Hinton et al. 2015, section 2).
-- loss: a scalar; logits [batch, seq, vocab], the student's; labels i32[batch, seq] -> scalar
-- options: kind: forward, KL(teacher || student), reverse, KL(student || teacher), or jsd, between
-- them by beta (Agarwal et al. 2024, GKD); alpha, temperature, beta; ignore (a label whose
-- positions are left out, as nn.cross_entropy's) and share (that of labels which count; else it is
-- ops.label_share's of `ignore`); stored (so many words of each label are in a file, m:stored, in
-- place of m:teacher: all others are one more outcome). Without `ignore` the mean is over all
-- positions; labels below 0 add nothing.
-- Makes outputs for the log: kl, that mean without T^2, and ce, the loss that was given.
function nn.distill(m, loss, logits, labels, vocab, options)
  check_arguments("distill", m, loss)
  vocab = vocab or "vocab"
  local o = read_options("distill", options, { kind = "forward", alpha = 0.5, temperature = 1.0,
    beta = 0.5, ignore = NONE, share = NONE, stored = NONE })
  check_distill(o)
  if type(logits) ~= "userdata" or type(labels) ~= "userdata" then
    fail("distill: takes the loss, logits and labels, all values")
  end
  local function cooled(x) return o.temperature ~= 1 and x * (1 / o.temperature) or x end
  local each
  if o.stored then
    local words, logprobs = m:stored(o.stored)
    each = ops.stored_divergence{ logits, words, logprobs, axis = vocab }
  else
    local beta = o.kind == "forward" and 0 or o.kind == "reverse" and 1 or o.beta
    each = ops.divergence{ cooled(logits), cooled(m:teacher()), axis = vocab, beta = beta }
  end
  local counts = o.ignore and 1 - ops.equal{ labels, o.ignore } or 1 - ops.less{ labels, 0 }
  local mean = mean_of(each * counts)
  if o.ignore then mean = mean / (o.share or ops.label_share{ value = o.ignore }) end
  m:output("kl", mean)
  m:output("ce", loss)
  return loss * (1 - o.alpha) + mean * (o.alpha * o.temperature * o.temperature)
end

end

return distill
