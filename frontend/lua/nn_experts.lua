-- nn_experts: sparse mixtures of experts, a part of nn. `nn` is what it adds to, `tools` what
-- layers of nn share.
local experts = {}

function experts.add(nn, tools)

local ops = ops
local fail, read_options, joined = tools.fail, tools.read_options, tools.joined
local check_arguments, residual_std = tools.check_arguments, tools.residual_std
local option_axis, activate = tools.option_axis, tools.activate
local read_lora, adapter = tools.read_lora, tools.adapter
local check_coefficient, NONE, STD = tools.check_coefficient, tools.NONE, tools.STD

-- How many tokens of a sequence an expert takes: `capacity` times its share, at most all of them;
-- all where capacity is 0.
local function expert_slots(seq, top_k, experts, capacity)
  if capacity == 0 then return seq end
  return math.max(1, math.min(seq, math.ceil(seq * top_k / experts * capacity)))
end

local function check_moe(m, o, experts)
  if math.type(o.top_k) ~= "integer" or o.top_k < 1 or o.top_k > experts then
    fail("moe: 'top_k' must be a whole number from 1 to the %d experts, not %s", experts,
      tostring(o.top_k))
  end
  if not (o.capacity >= 0 and o.capacity <= 1e6) then
    fail("moe: 'capacity' must be a number more than 0 and at most 1e6, or 0: nothing is dropped")
  end
  if o.scores ~= "softmax" and o.scores ~= "sigmoid" then
    fail("moe: scores is '%s'; it can be softmax or sigmoid", o.scores)
  end
  if o.shared_gate and not o.shared then
    fail("moe: 'shared_gate' is of the shared expert, and there is none: shared = true")
  end
  for _, count in ipairs{ "groups", "kept_groups", "group_best" } do
    if math.type(o[count]) ~= "integer" then fail("moe: '%s' must be a whole number", count) end
  end
  if o.groups < 1 then fail("moe: 'groups' must be 1, no groups, or more, not %d", o.groups) end
  if o.bias_rate and not (type(o.bias_rate) == "number" and o.bias_rate >= 0) then
    fail("moe: 'bias_rate' must be a number, 0 or more")
  end
  if o.gate_input and o.top_k ~= 1 then
    fail("moe: 'gate_input' is for one expert a token, top_k = 1, not %d", o.top_k)
  end
  for _, name in ipairs{ "balance", "z", "sum_plus" } do
    check_coefficient("moe", name, o[name], true)
  end
  for _, name in ipairs{ "scale", "limit", "alpha" } do check_coefficient("moe", name, o[name]) end
end

-- Of each sequence, experts x sum over experts of f P: f the share of the sequence's choices that
-- fell on the expert, P its mean probability.
local function balance_loss(probabilities, counts, top_k)
  local seq, experts = probabilities:dim("seq"), probabilities:dim("routes")
  local sums = ops.reduce_sum{ probabilities, over = "seq" }
  return ops.reduce_sum{ sums * counts, over = "routes" } * (experts / (top_k * seq * seq))
end

-- Who goes where: the `top_k` with the greatest of [batch, seq, routes]. Scores may be replaced by
-- what rises with them, unless something is added to them.
local function choose(m, o, scores, logits)
  local grouped = o.groups > 1
  local by = (grouped or o.bias_rate) and scores or logits
  local bias
  if o.bias_rate then
    bias = m:param(o.name .. ".bias", "routes",
      { init = "zeros", decay = 0, balance = o.bias_rate, frozen = o.frozen })
    by = by + bias
  end
  return ops.top{ by, axis = "routes", to = "choice", groups = grouped and o.groups or nil,
                  kept = grouped and o.kept_groups or nil,
                  best = grouped and o.group_best or nil }, bias
end

-- gpt-oss's SwiGLU (OpenAI 2025, arXiv 2508.10925): what is large is cut off, and `up` is about 1.
local function clamped(gate, up, o)
  gate = ops.minimum{ gate, o.limit }
  up = ops.maximum{ ops.minimum{ up, o.limit }, -o.limit }
  return (up + 1) * gate * ops.sigmoid{ gate * o.alpha }
end

-- A sparse mixture of experts (Shazeer et al. 2017; Fedus et al. 2022), each a nn.swiglu. Every
-- token goes to the `top_k` experts with the greatest scores; their results, times the scores
-- (gates), are summed. An expert takes at most `capacity` x seq x top_k / experts tokens of each
-- sequence, first come first served; who comes later is passed by, here as in generating.
-- x [batch, seq, model] -> like x, a loss of each sequence, [batch] (nil without balance and z):
-- sums of these go to nn.cross_entropy's `beside`; and the share of each sequence's choices that
-- found no room, [batch], for m:output.
-- Parameters: router [model, routes], wgate and wup [experts, model, expert_ffn], wdown [experts,
-- expert_ffn, model]; with `biases` router_b [routes], bgate and bup [experts, expert_ffn], bdown
-- [experts, model]; with `bias_rate` bias [routes]; with `shared` also shared.wgate, .wup [model,
-- shared_ffn], .wdown, and with `shared_gate` shared.gate [model].
-- Axes `experts` and `expert_ffn` (and shared_ffn) are the model's; routes, choice and slot are
-- made.
-- options: name, top_k, capacity (0: nothing is dropped), scores (softmax over all experts, as in
-- Mixtral, or sigmoid of each, as in DeepSeek V3), groups, kept_groups, group_best (experts lie in
-- so many groups, and a token's are in those of them whose greatest, or two greatest, scores sum
-- to most: DeepSeek V2's and V3's device and node limits), bias_rate (a bias of each expert is
-- added to scores where experts are chosen, not to gates; a step adds this to the biases of those
-- chosen less often than the mean, in the whole global batch, and takes it from the others: Wang
-- et al. 2024, arXiv 2408.15664; 0: it stays; none if absent), normalize (gates of a token sum to
-- 1, over those chosen), sum_plus (to less: they are divided by their sum and this, as in LFM2),
-- scale (of gates), act (as nn.swiglu's, or clamped, as in gpt-oss: up to
-- `limit`, and the sigmoid of `alpha` times the gate), biases (of the router and of each expert),
-- gate_input (of one expert a token: gates are times what it reads, not what it makes, as in Llama
-- 4), shared (is there an expert that all tokens meet?), shared_gate (is its result times a sigmoid
-- of x, as in Qwen 2's?), balance (weight of each sequence's load-balancing loss: DeepSeek V3's,
-- section 2.1.2; 1 where all are equal), z (weight of the mean square of the router's log-sum-exp:
-- Zoph et al. 2022), std, out_std (of wdown), decay, lr_scale, frozen, muon (of experts; AdamW
-- updates them if absent, and always the router), lora (its targets: experts.gate, .up, .down, and
-- shared.gate, .up, .down; an adapter of experts is [experts, ..., lora] and [experts, lora, ...])
function nn.moe(m, x, options)
  check_arguments("moe", m, x)
  local o = read_options("moe", options,
    { name = "moe", top_k = 2, capacity = 1.25, scores = "softmax", normalize = true,
      sum_plus = 0.0, scale = 1.0, act = "silu", limit = 7.0, alpha = 1.702, biases = false,
      groups = 1, kept_groups = 1, group_best = 1, bias_rate = NONE, gate_input = false,
      shared = false, shared_gate = false, balance = 0.0, z = 0.0, std = STD, out_std = NONE,
      decay = NONE, lr_scale = NONE, frozen = NONE, muon = 0, lora = NONE })
  if table.concat(x.axes, ",") ~= "batch,seq,model" then
    fail("moe: x is [%s]; it must be [batch, seq, model]", table.concat(x.axes, ", "))
  end
  local experts, seq = m:setting("experts"), x:dim("seq")
  if math.type(experts) ~= "integer" or not m:setting("expert_ffn") then
    fail("moe: the model's axes need 'experts', how many there are, and 'expert_ffn', their width")
  end
  check_moe(m, o, experts)
  m:axis("routes", experts)
  option_axis(m, "choice", o.top_k, "moe", "top_k", o.top_k)
  local slots = expert_slots(seq, o.top_k, experts, o.capacity)
  option_axis(m, "slot", slots, "moe", "capacity", o.capacity)
  local function weight(name, axes, std, muon, frozen)
    return m:param(o.name .. "." .. name, axes,
      { std = std, decay = o.decay, lr_scale = o.lr_scale, frozen = frozen or o.frozen,
        muon = muon })
  end
  local function bias(y, name, axes)
    if not o.biases then return y end
    return y + m:param(o.name .. "." .. name, axes,
      { init = "zeros", decay = 0, muon = 0, lr_scale = o.lr_scale, frozen = o.frozen })
  end
  local shared = { experts = {}, shared = {} }
  -- The product of a new weight, [each, from, to] or [from, to]. each: experts, or nil.
  local function linear(name, each, from, to, std, muon)
    local target = (each and each .. "." or "") .. name:gsub("w(%a+)$", "%1")
    local lora = read_lora(o.lora, target, shared[each or "shared"])
    local w = weight(name, joined(each or {}, { from, to }), std, muon, lora and 1)
    return function(y)
      local z = ops.matmul{ y, w, over = from }
      return lora and z + adapter(m, y, from, to, o.name .. "." .. name, lora, each) or z
    end
  end
  local function gated(rows, prefix, each, ffn, muon, scale)
    local gate_of = linear(prefix .. "wgate", each, "model", ffn, o.std, muon)
    local up_of = linear(prefix .. "wup", each, "model", ffn, o.std, muon)
    local down_of = linear(prefix .. "wdown", each, ffn, "model", residual_std(m, o), muon)
    local gate, up = gate_of(rows), up_of(rows)
    if each then
      gate = bias(gate, "bgate", { each, ffn })
      up = bias(up, "bup", { each, ffn })
    end
    local h = o.act == "clamped" and clamped(gate, up, o) or activate("moe", o.act, gate) * up
    if scale then h = h * scale end
    h = down_of(h)
    return each and bias(h, "bdown", { each, "model" }) or h
  end

  -- The router is in f32 from its product's sums on.
  local router = weight("router", { "model", "routes" }, o.std, 0)
  local logits = bias(ops.matmul{ x, router, over = "model", dtype = "f32" }, "router_b", "routes")
  local lse = ops.logsumexp{ logits, axis = "routes" }
  local scores = o.scores == "softmax" and ops.exp{ logits - lse } or ops.sigmoid{ logits }
  local chosen, balanced = choose(m, o, scores, logits)
  -- Against a sum of nothing: scores of each expert may all be 0.
  if o.scores == "sigmoid" then scores = scores + 1e-20 end
  local gates = ops.take{ scores, chosen, axis = "routes" }
  if o.normalize then
    local sum = ops.reduce_sum{ gates, over = "choice" }
    -- With biases, those chosen may all be of no probability (ERNIE 4.5's least sum).
    if balanced and o.scores == "softmax" then sum = ops.maximum{ sum, 1e-12 } end
    if o.sum_plus > 0 then sum = sum + o.sum_plus end
    gates = gates / sum
  end
  if o.scale ~= 1 then gates = gates * o.scale end

  local slots = ops.route{ chosen, to = { "experts", "slot", "routes" } }
  local tokens, counts = slots:result(2), slots:result(3)
  if balanced then m:tally(balanced, counts) end
  local read = x
  if o.gate_input then
    read = x * ops.reduce_sum{ gates, over = "choice" }
    gates = gates * 0 + 1
  end
  local rows = ops.dispatch{ read, slots, tokens }
  local y = ops.combine{ gated(rows, "", "experts", "expert_ffn", o.muon), slots, tokens, gates }
  if o.shared then
    -- Its gate comes before the last product: behind it, that product's sum over t would have to be
    -- complete first.
    local gate
    if o.shared_gate then
      local w = weight("shared.gate", { "model" }, o.std, 0)
      gate = ops.sigmoid{ ops.matmul{ x, w, over = "model" } }
    end
    y = y + gated(x, "shared.", nil, "shared_ffn", nil, gate)
  end

  local loss
  if o.balance > 0 then
    local p = scores
    if o.scores == "sigmoid" then p = p / ops.reduce_sum{ p, over = "routes" } end
    loss = balance_loss(p, counts, o.top_k) * o.balance
  end
  if o.z > 0 then
    local sum = ops.reduce_sum{ ops.square{ lse }, over = "seq" } * (o.z / seq)
    loss = loss and loss + sum or sum
  end
  local over = ops.relu{ counts - slots:result(2):dim("slot") }
  local dropped = ops.reduce_sum{ over, over = "routes" } * (1 / (o.top_k * seq))
  return y, loss, dropped
end

local function norm(m, x, name)
  return nn.rmsnorm(m, x, "model", { name = name, eps = m.norm_eps })
end

-- One block of a decoder: o.attention(x), then nn.moe, or nn.swiglu where it is `dense`.
local function expert_block(m, x, o, dense, i)
  local function added(branch, name)
    if o.norms_after then branch = norm(m, branch, name) end
    return o.residual_scale ~= 1 and branch * o.residual_scale or branch
  end
  local h = nn.residual(x, added(o.attention(norm(m, x, "norm1"), i), "attn.after"), m.dropout)
  local y, loss, dropped
  if dense then
    y = nn.swiglu(m, norm(m, h, "norm2"), { act = m.act, lora = o.lora })
  else
    y, loss, dropped = nn.moe(m, norm(m, h, "norm2"), o.moe)
  end
  return nn.residual(h, added(y, "mlp.after"), m.dropout), loss, dropped
end

-- Multi-token prediction of depth 1 (DeepSeek-V3, arXiv 2412.19437, section 2.2): of what the last
-- block makes and the embedding of the token that follows, one more block predicts the token after
-- that one, with the model's own tables. What lies beyond the sequence counts as zero in the mean.
-- x [batch, seq, model] -> its mean loss, a scalar, and what its router adds to the loss
local function predict_second(m, x, tokens, labels, o)
  local following = ops.shift{ tokens, axis = "seq", by = 1, value = 0 }
  local target = ops.shift{ labels, axis = "seq", by = 1, value = -1 }
  local embedded = nn.embedding(m, "wte", following, "vocab", "model")
  m:axis("both", 2 * m.model)
  local y, beside = m:block(m.layers + 1, function()
    local both = ops.pad{ norm(m, embedded, "mtp.norm_e"), axis = "model", to = "both", first = 0,
                          count = 2 * m.model }
      + ops.pad{ norm(m, x, "mtp.norm_h"), axis = "model", to = "both", first = m.model,
                 count = 2 * m.model }
    local h, loss = expert_block(m, nn.linear(m, both, "both", "model", { weight = "mtp.w" }), o,
      false, m.layers + 1)
    return norm(m, h, "mtp.norm_f"), loss
  end)
  local logits = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model")
  local loss = nn.cross_entropy(m, logits, target, "vocab", { output = false })
  return m.masked and loss / ops.label_share{ value = -1 } or loss, beside
end

-- Which of the model's layers have no experts, and how many do.
local function dense_layers(m, is_dense)
  local first = m:setting("dense_layers") or 0
  if first < 0 or first > m.layers then
    fail("expert_decoder: dense_layers must be from 0 to the %d layers, not %d", m.layers, first)
  end
  local dense, sparse = {}, 0
  for i = 1, m.layers do
    dense[i] = i <= first or (is_dense and is_dense(i) or false)
    if not dense[i] then sparse = sparse + 1 end
  end
  return dense, sparse
end

-- A decoder whose feed-forward layers are mixtures of experts, as m's settings say: layers, of
-- which the first dense_layers have a nn.swiglu, norm_eps, act, dropout, tied,
-- log_dropped, and those of nn.decoder_loss.
-- tokens and labels i32[batch, seq] -> the loss
-- options: attention (a function of the normed x and the layer's number), moe (options of nn.moe),
-- dense (a function of the layer's number: has it a nn.swiglu, too?), lora (of the dense layers),
-- mtp (weight of the loss of the second next token; none if absent), norms_after (of what branches
-- add, too, as in AFMoE: attn.after.gain and mlp.after.gain), embedding_scale,
-- residual_scale, logit_divisor (what Granite multiplies embeddings and what branches add by, and
-- divides logits by; more than 0)
function nn.expert_decoder(m, tokens, labels, options)
  check_arguments("expert_decoder", m, tokens)
  local o = read_options("expert_decoder", options,
    { attention = NONE, moe = NONE, dense = NONE, lora = NONE, mtp = NONE, norms_after = false,
      embedding_scale = 1.0, residual_scale = 1.0, logit_divisor = 1.0 })
  if type(o.attention) ~= "function" or type(o.moe) ~= "table" then
    fail("expert_decoder: 'attention' must be a function of x, 'moe' a table of nn.moe's options")
  end
  if o.mtp and (m.preference ~= "none" or m.classes ~= "none") then
    fail("expert_decoder: a second predicted token (mtp) is not learned from preferences or "
      .. "classes")
  end
  for _, name in ipairs{ "embedding_scale", "residual_scale", "logit_divisor" } do
    check_coefficient("expert_decoder", name, o[name])
  end
  if o.mtp then check_coefficient("expert_decoder", "mtp", o.mtp) end
  local dense, n_sparse = dense_layers(m, o.dense)
  local x = nn.embedding(m, "wte", tokens, "vocab", "model")
  if o.embedding_scale ~= 1 then x = x * o.embedding_scale end
  x = nn.dropout(x, m.dropout)
  -- What routers add to the loss of each sequence, and the share of choices that they drop. Both
  -- begin with zeros of their own (no token is below 0), so that all blocks are of one kind.
  local routed = (o.moe.balance or 0) > 0 or (o.moe.z or 0) > 0
  local function zeros(below) return ops.reduce_sum{ ops.less{ tokens, below }, over = "seq" } end
  local beside, dropped = routed and zeros(0) or nil, m.log_dropped and zeros(-1) or nil
  for i = 1, m.layers do
    x, beside, dropped = m:block(i, function() -- the unit of pipeline cuts and of recomputation
      local y, loss, share = expert_block(m, x, o, dense[i], i)
      return y, loss and beside + loss or beside, dropped and share and dropped + share or dropped
    end)
  end
  if dropped then
    m:output("dropped",
      ops.reduce_sum{ dropped, over = "batch" } * (1 / (m.batch * math.max(1, n_sparse))))
  end
  local second, second_beside
  if o.mtp then
    second, second_beside = predict_second(m, x, tokens, labels, o)
    if second_beside then beside = beside + second_beside end
  end
  local function logits(y)
    local said = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model")
    return o.logit_divisor ~= 1 and said * (1 / o.logit_divisor) or said
  end
  local loss = nn.decoder_loss(m, norm(m, x, "norm_f"), labels, logits, { beside = beside })
  return second and loss + second * o.mtp or loss
end

end

return experts
