-- Optimizers as formulas: --set optimizer=NAME. Each is exactly what its paper does to one element
-- of a weight; those that need a norm or a mean over a matrix are not here.
--
-- update(o, w, g, s, t) returns the new weight and a table of the new states. o has functions, s
-- the states, which are 0 at first, t numbers: lr and decay (the weight decay of this weight), step
-- (the updates so far, with this one), beta1, beta2, eps, momentum of the recipe, and `numbers`,
-- which the recipe may set, too. `squares` are states that are never below 0, means of squares:
-- with --optimizer-state bf16 they are rounded as AdamW's second moment is. Weight decay is
-- decoupled (Loshchilov & Hutter 2019), as AdamW's, unless a formula says otherwise.
--
-- States have the names of the program's own AdamW and SGD where they are the same, so that a
-- checkpoint goes from one to the other.

local rules = {}

-- A mean that keeps beta of itself.
local function mean(old, new, beta) return old + (1 - beta) * (new - old) end
local function mean_square(o, old, x, beta) return beta * old + (1 - beta) * o.square(x) end
-- What a mean lacks as it began at 0 (Kingma & Ba 2015, section 3).
local function correction(beta, t) return 1 - beta ^ t.step end
local function decayed(w, t) return w * (1 - t.lr * t.decay) end

local ADAM = { "adam_m", "adam_v" }
local SQUARES = { "adam_v" }

-- The program's own AdamW, as a formula.
rules.adamw_lua = {
  states = ADAM, squares = SQUARES,
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local size = t.lr / correction(t.beta1, t)
    local root = o.sqrt(v) * o.rsqrt(correction(t.beta2, t))
    return decayed(w, t) - size * (m / (root + t.eps)), { adam_m = m, adam_v = v }
  end,
}

-- AMSGrad (Reddi, Kale & Kumar 2018), as PyTorch has it: the largest second moment so far, and the
-- correction behind it.
rules.amsgrad = {
  states = { "adam_m", "adam_v", "adam_v_max" }, squares = { "adam_v", "adam_v_max" },
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local most = o.maximum(s.adam_v_max, v)
    local root = o.sqrt(most) * o.rsqrt(correction(t.beta2, t))
    return decayed(w, t) - t.lr / correction(t.beta1, t) * (m / (root + t.eps)),
      { adam_m = m, adam_v = v, adam_v_max = most }
  end,
}

-- NAdam (Dozat 2016) with a constant momentum and decoupled decay.
rules.nadamw = {
  states = ADAM, squares = SQUARES,
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local ahead = t.beta1 / (1 - t.beta1 ^ (t.step + 1)) * m
      + (1 - t.beta1) / correction(t.beta1, t) * g
    local root = o.sqrt(v) * o.rsqrt(correction(t.beta2, t))
    return decayed(w, t) - t.lr * (ahead / (root + t.eps)), { adam_m = m, adam_v = v }
  end,
}

-- RAdam (Liu et al. 2020, arXiv 1908.03265, algorithm 2), rectified where PyTorch is, above 5.
rules.radam = {
  states = ADAM, squares = SQUARES,
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local longest = 2 / (1 - t.beta2) - 1
    local length = longest - 2 * t.step * t.beta2 ^ t.step / correction(t.beta2, t)
    local rectified = o.less(5, length)
    local factor = o.sqrt((length - 4) * (length - 2) * longest
      / ((longest - 4) * (longest - 2) * length) * correction(t.beta2, t))
    local size = t.lr / correction(t.beta1, t)
    local adaptive, plain = o.where(rectified, size * factor, 0), o.where(rectified, 0, size)
    return decayed(w, t) - adaptive * (m / (o.sqrt(v) + t.eps)) - plain * m,
      { adam_m = m, adam_v = v }
  end,
}

-- AdaBelief (Zhuang et al. 2020, arXiv 2010.07468, algorithm 2)
rules.adabelief = {
  states = { "adam_m", "belief" }, squares = { "belief" },
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local belief = mean_square(o, s.belief, g - m, t.beta2) + t.eps
    local root = o.sqrt(belief) * o.rsqrt(correction(t.beta2, t))
    return decayed(w, t) - t.lr / correction(t.beta1, t) * (m / (root + t.eps)),
      { adam_m = m, belief = belief }
  end,
}

-- Adamax (Kingma & Ba 2015, section 7.1; eps as PyTorch has it)
rules.adamax = {
  states = { "adam_m", "largest" }, squares = { "largest" },
  update = function(o, w, g, s, t)
    local m = mean(s.adam_m, g, t.beta1)
    local largest = o.maximum(t.beta2 * s.largest, o.abs(g) + t.eps)
    return decayed(w, t) - t.lr / correction(t.beta1, t) * (m / largest),
      { adam_m = m, largest = largest }
  end,
}

-- LaProp (Ziyin, Wang & Ueda 2020, arXiv 2002.04839, algorithm 1): the mean is of normalised
-- gradients.
rules.laprop = {
  states = { "laprop_m", "adam_v" }, squares = SQUARES,
  update = function(o, w, g, s, t)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local root = o.sqrt(v) * o.rsqrt(correction(t.beta2, t))
    local m = mean(s.laprop_m, g / (root + t.eps), t.beta1)
    return decayed(w, t) - t.lr / correction(t.beta1, t) * m, { laprop_m = m, adam_v = v }
  end,
}

-- AdEMAMix (Pagliardini, Ablin & Grangier 2024, arXiv 2409.03137, algorithm 1). The second mean
-- counts alpha times; alpha and its decay, beta3, rise over `slow_steps` (the paper: all steps of
-- the run; 0: they are what they are from the first step on).
rules.ademamix = {
  states = { "adam_m", "slow_m", "adam_v" }, squares = SQUARES,
  numbers = { alpha = 5, beta3 = 0.9999, slow_steps = 0 },
  update = function(o, w, g, s, t)
    local alpha, beta3 = t.alpha, t.beta3
    if t.slow_steps > 0 then
      local share = t.step / t.slow_steps
      local first, last = math.log(t.beta1), math.log(t.beta3)
      alpha = o.minimum(share, 1) * t.alpha
      beta3 = o.minimum(o.exp(first * last / ((1 - share) * last + share * first)), t.beta3)
    end
    local m = mean(s.adam_m, g, t.beta1)
    local slow = mean(s.slow_m, g, beta3)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local root = o.sqrt(v) * o.rsqrt(correction(t.beta2, t))
    local step = (m / correction(t.beta1, t) + alpha * slow) / (root + t.eps)
    return decayed(w, t) - t.lr * step, { adam_m = m, slow_m = slow, adam_v = v }
  end,
}

-- ADOPT (Taniguchi et al. 2024, arXiv 2411.02853, algorithm 2), with its clipping at step^(1/4).
-- The first update makes the second moment alone.
rules.adopt = {
  states = { "adopt_m", "adam_v" }, squares = SQUARES,
  update = function(o, w, g, s, t)
    local first = o.less(t.step, 1.5)
    local most = o.sqrt(o.sqrt(t.step - 1))
    local x = g / o.maximum(o.sqrt(s.adam_v), t.eps)
    local m = mean(s.adopt_m, o.maximum(o.minimum(x, most), -most), t.beta1)
    local v = t.beta2 * s.adam_v + o.where(first, 1, 1 - t.beta2) * o.square(g)
    return w * (1 - t.lr * t.decay * (1 - first)) - t.lr * m, { adopt_m = m, adam_v = v }
  end,
}

-- AdaGrad (Duchi, Hazan & Singer 2011)
rules.adagrad = {
  states = { "square_sum" }, squares = { "square_sum" },
  update = function(o, w, g, s, t)
    local sum = s.square_sum + o.square(g)
    return decayed(w, t) - t.lr * (g / (o.sqrt(sum) + t.eps)), { square_sum = sum }
  end,
}

-- RMSProp (Tieleman & Hinton 2012): the mean keeps beta2.
rules.rmsprop = {
  states = { "adam_v" }, squares = SQUARES,
  update = function(o, w, g, s, t)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    return decayed(w, t) - t.lr * (g / (o.sqrt(v) + t.eps)), { adam_v = v }
  end,
}

-- Adadelta (Zeiler 2012, arXiv 1212.5701, algorithm 1): both means keep beta2.
rules.adadelta = {
  states = { "adam_v", "delta_v" }, squares = { "adam_v", "delta_v" },
  update = function(o, w, g, s, t)
    local v = mean_square(o, s.adam_v, g, t.beta2)
    local delta = o.sqrt(s.delta_v + t.eps) * o.rsqrt(v + t.eps) * g
    return decayed(w, t) - t.lr * delta,
      { adam_v = v, delta_v = mean_square(o, s.delta_v, delta, t.beta2) }
  end,
}

-- Signum (Bernstein et al. 2018, arXiv 1802.04434, algorithm 2): the mean keeps beta1.
rules.signum = {
  states = { "sign_m" },
  update = function(o, w, g, s, t)
    local m = mean(s.sign_m, g, t.beta1)
    return decayed(w, t) - t.lr * o.sign(m), { sign_m = m }
  end,
}

-- Nesterov's momentum as PyTorch's SGD has it; weight decay is part of the gradient there.
rules.nesterov = {
  states = { "momentum" },
  update = function(o, w, g, s, t)
    local x = g + t.decay * w
    local m = t.momentum * s.momentum + x
    return w - t.lr * (x + t.momentum * m), { momentum = m }
  end,
}

return rules
