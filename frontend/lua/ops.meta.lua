---@meta
-- Types of the ops; see perilune.meta.lua.

---Ops of the op table: operands first, then attributes by name. Gives the first result.
---@class perilune.ops
ops = {}

---A scalar.
---@param args { value: number }
---@return perilune.Value
function ops.const(args) end

---a + b; operands broadcast by axis name.
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.add(args) end

---a - b
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.sub(args) end

---a * b
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.mul(args) end

---@class perilune.LabelShareArgs
---@field value integer
---@field rate? number
---@field mask? integer
---@field span? number
---@field start? integer
---@field eos? integer
---@field pad? integer
---@field classes? string
---@field labels? string
---@field weights? string
---@field smoothing? number
---@field first? integer
---@field between? integer
---@field by? integer
---@field each? integer
---@field groups? integer
---@field count? integer
---@field length? integer
---@field image_token? integer
---@field images? integer
---@field image_side? integer
---@field patch? integer
---@field image_tokens? integer
---@field image_fit? string
---@field image_filter? string
---@field image_before? string
---@field image_after? string
---@field image_mean? string
---@field image_split? string
---@field image_edge? integer
---@field least_tiles? integer
---@field most_tiles? integer
---@field image_tile? string
---@field image_line? string

---How many of the labels of the whole global batch are not `value`, as a share of all: a scalar,
---counted before each step. One `value` for a model; -1 is what the data's masks leave out. With
---`rate` and `mask`, labels are tokens that the data hide behind `mask`; with `start` and `eos`
---what a decoder says, as nn.cross_entropy's from_source has it; with `classes`, `first` and `pad`
---labels are classes of texts, as nn.classify's. It then has first and pad, and perhaps between;
---and labels ("sets" or "numbers" of the classes), or weights and smoothing.
---With `groups`, `count`, `length`, first and pad a label says which text of a row's it stands for,
---as nn.embed's. With `mask` and `by` the data hide tokens as nn.cross_entropy's diffusion has it.
---With `image_token` and its like rows have images, as nn.cross_entropy's images has it.
---@param args perilune.LabelShareArgs value; perhaps rate, mask, span, start, eos, pad, classes,
---or by and each, or groups, count and length, or all of
--- image_token images image_side patch image_tokens image_fit image_filter image_before
--- image_after image_mean; with these perhaps image_split and image_edge, image_tile, image_line,
--- or least_tiles and most_tiles
---@return perilune.Value
function ops.label_share(args) end

---a / b
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.div(args) end

----x
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.neg(args) end

---x * value
---@param args { [1]: perilune.Value, value: number }
---@return perilune.Value
function ops.scale(args) end

---x + value
---@param args { [1]: perilune.Value, value: number }
---@return perilune.Value
function ops.offset(args) end

---x
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.copy(args) end

---x * x
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.square(args) end

---The square root.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.sqrt(args) end

---1 / sqrt(x)
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.rsqrt(args) end

---1 / x
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.reciprocal(args) end

---e^x
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.exp(args) end

---The natural logarithm.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.log(args) end

---The hyperbolic tangent.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.tanh(args) end

---1 / (1 + e^-x)
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.sigmoid(args) end

---GELU, the tanh approximation (Hendrycks & Gimpel 2016).
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.gelu(args) end

---GELU, exact.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.gelu_erf(args) end

---log(1 + exp(x))
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.softplus(args) end

---x * sigmoid(x)
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.silu(args) end

---max(x, 0)
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.relu(args) end

---The larger of the two.
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.maximum(args) end

---The smaller of the two.
---@param args { [1]: perilune.Value, [2]: perilune.Value }
---@return perilune.Value
function ops.minimum(args) end

---The absolute value.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.abs(args) end

----1, 0 or 1; has no gradient
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.sign(args) end

---The nearest whole number, halves to the even one; has no gradient. With one, straight through:
---x + ops.stop_gradient{ops.round{x} - x}
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.round(args) end

---1 where a < b, else 0. A side may be a number; tokens and labels are compared as they are, up to
---2^24. Has no gradient.
---@param args { [1]: perilune.Value|number, [2]: perilune.Value|number }
---@return perilune.Value
function ops.less(args) end

---1 where a = b, else 0; as ops.less. 1 - ops.equal{tokens, padding} is a weight for each position.
---@param args { [1]: perilune.Value|number, [2]: perilune.Value|number }
---@return perilune.Value
function ops.equal(args) end

---x, whose gradient is held back: what it is made of does not learn by it.
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.stop_gradient(args) end

---i32 (tokens, labels, nn.places) as f32, which has whole numbers up to 2^24
---@param args { [1]: perilune.Value }
---@return perilune.Value
function ops.number(args) end

---@class perilune.NgramAttributes: { [integer]: perilune.Value }
---@field axis string
---@field by integer
---@field count integer
---@field separator? integer
---@field seed? integer

---tokens i32[..., axis] -> a hash of each and of those before it, `by` in all, less than count,
---alike; none up to a `separator`. (nn.ngrams) Hashes of another seed are others.
---@param args perilune.NgramAttributes axis, by, count; perhaps separator, seed
---@return perilune.Value
function ops.ngram(args) end

---tokens i32[..., axis] -> alike: of a position that has the token how many before it have it, of
---others -1. (nn.place_images)
---@param args { [1]: perilune.Value, axis: string, token: integer }
---@return perilune.Value
function ops.occurrence(args) end

---Zeroes elements with probability p, divides the others by 1 - p.
---`key` is numbered by itself where it is left out.
---Attributes first and count are for what the planner makes of lanes, and refused in models.
---@param args { [1]: perilune.Value, p: number, key?: integer }
---@return perilune.Value
function ops.dropout(args) end

---@class perilune.MatmulArgs
---@field [1] perilune.Value
---@field [2] perilune.Value
---@field over perilune.Axes
---@field to? perilune.Axes
---@field shared? perilune.Axes
---@field dtype? "f32"

---Sums products over the axes `over`. Result: axes of both operands, then the left one's, then
---the right one's. Operands whose axes lie otherwise than a product can read are transposed.
---dtype = "f32" keeps the result in f32 under any --precision. `to` names the result's axes; then
---axes that both operands keep are two of the result's, unless they are in `shared`, and the
---product has no gradient.
---@param args perilune.MatmulArgs two values, and over, to, shared, dtype
---@return perilune.Value
function ops.matmul(args) end

---Sums over the axes `over`. dtype = "f32" keeps the result in f32 under any --precision.
---@param args { [1]: perilune.Value, over: perilune.Axes, dtype?: "f32" }
---@return perilune.Value
function ops.reduce_sum(args) end

---The same values with axes in the order `to`.
---@param args { [1]: perilune.Value, to: perilune.Axes }
---@return perilune.Value
function ops.transpose(args) end

---A part of an axis: as many elements as axis `to` has, from number `first` (0 and up) on, which
---become that axis. Without `to` element `first` alone, and the axis is gone. Not along batch, seq
---and what t divides. (PyTorch's narrow.) `count` is the size of `to` and may be left out.
---Attributes padded and length are for what the planner makes of updates, and refused in models.
---@param args { [1]: perilune.Value, axis: string, to?: string, first: integer, count?: integer }
---@return perilune.Value
function ops.narrow(args) end

---Its opposite: axis `axis` becomes a part, from `first` on, of axis `to`, whose rest is 0. Instead
---of `axis`, `at` is where, 0 and up, among the result's axes `to` is added, for a value without.
---@param args {[1]: any, axis?: string, to: string, first: integer, at?: integer, count?: integer}
---@return perilune.Value
function ops.pad(args) end

---2 to 8 operands side by side: each one's axis in `over` becomes a part of axis `to`. Operands
---that lack axes of the widest one are repeated along them.
---@param args { [integer]: perilune.Value, over: perilune.Axes, to: string }
---@return perilune.Value
function ops.concat(args) end

---Element i of the axis is x's element i + by; beyond x's ends 0 or, of tokens and labels, `value`.
---@param args { [1]: perilune.Value, axis: string, by: integer, value?: integer }
---@return perilune.Value
function ops.shift(args) end

---Rows of the batch are pairs, 0 and 1, 2 and 3, ...: row `from` of each pair in the place `into`,
---0 in the other place. (nn.preference)
---@param args { [1]: perilune.Value, axis: "batch", from: 0|1, into: 0|1 }
---@return perilune.Value
function ops.of_pairs(args) end

---The same numbers, of which one axis, `over`, is two, `to`, or two side by side are one. Sizes are
---those that the axes of `to` have; a sequence and the batch stay as they are.
---@param args { [1]: perilune.Value, over: string|string[], to: string|string[], count?: integer }
---@return perilune.Value
function ops.regroup(args) end

---The same numbers; axis `axis` is called `to`, which has its size. (Keys beside queries.)
---@param args { [1]: perilune.Value, axis: string, to: string }
---@return perilune.Value
function ops.rename(args) end

---scores f32[batch, heads, seq, keys], table f32[buckets, heads] -> scores plus the table at the
---bucket of the key's distance from the query; with causal later keys get -1e30.
---@param args {[integer]: any, seq: string, keys: string, causal: boolean, distance: integer}
---@return perilune.Value
function ops.relative_bias(args) end

---x, gain, bias -> (x - mean) / sqrt(var + eps) * gain + bias
---@param args { [integer]: perilune.Value, axis: string, eps: number } three values
---@return perilune.Value
function ops.layernorm(args) end

---x, gain -> x / sqrt(mean(x^2) + eps) * gain
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string, eps: number }
---@return perilune.Value
function ops.rmsnorm(args) end

---@class perilune.RotaryAttributes: { [integer]: perilune.Value }
---@field seq string
---@field head string
---@field base number
---@field factor? number
---@field few? number
---@field many? number
---@field context? number
---@field direction integer
---@field ramp? 0|1
---@field turned? integer
---@field factors? string numbers with commas between, one for each pair
---@field scale? number of what has turned

---Rotary positions: seq, head and base; perhaps factor, few, many, context, ramp, turned,
--- factors, scale; direction is 1.
---@param args perilune.RotaryAttributes
---@return perilune.Value
function ops.rotary(args) end

---tokens, table -> rows of the table
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string }
---@return perilune.Value
function ops.embedding(args) end

---@class perilune.AttentionAttributes: { [integer]: perilune.Value }
---@field seq string
---@field head string
---@field causal boolean
---@field window? integer positions that each one attends to; all if absent
---@field scale number of scores
---@field softcap? number c: scaled scores x become c tanh(x / c)
---@field largest? integer 1: there is a third result
---@field p? number probabilities are dropped so, as by ops.dropout
---@field key? integer of that

---tokens i32[..., axis] -> where each position's document begins along the axis, alike; its second
---result is how far the position is from there. A document's last token is `separator` (2147483647:
---no token's number; the second result counts positions); with apart = 1 it ends before one, and
---each of them is a document by itself.
---@param args { [1]: perilune.Value, axis: string, separator: integer, apart?: integer }
---@return perilune.Value
function ops.documents(args) end

---tokens i32[..., axis] -> the position after the last of each position's document, alike; as
---ops.documents has them, with apart = 1, too
---@param args { [1]: perilune.Value, axis: string, separator: integer, apart?: integer }
---@return perilune.Value
function ops.document_ends(args) end

---q [batch, seq, kv_heads, group, head], k and v [batch, seq, kv_heads, head], perhaps the result
---of ops.documents and, where not causal, that of ops.document_ends: a position sees its own only;
---perhaps sinks [kv_heads, group]: each softmax has its head's as one more score, of no value ->
---like q; with largest = 1 the third result is the largest score of each row.
---Attributes first and count are for what the planner makes of lanes, and refused in models.
---The key is numbered by itself, as that of ops.dropout.
---@param args perilune.AttentionAttributes seq, head, causal, scale; perhaps window, softcap, p
---@return perilune.Value
function ops.attention(args) end

---q, k [batch, seq, groups, head], v [batch, seq, groups, heads, values], logarithms of decays
---f32[batch, seq, groups, heads], perhaps how much of a value is written, alike -> like v.
---Of each head a state S [head, values], zero at first: S = decay S + k v', result scale S' q;
---where it is said how much is written (the delta rule), that times v - S' k in place of v.
---Decays with `head` behind their axes are of each row of S, not of all of it. groups or heads may
---be absent.
---@param args { [integer]: perilune.Value, seq: string, head: string, scale: number }
---@return perilune.Value
function ops.linear_attention(args) end

---x [batch, seq, channels...], w [axis, channels...], perhaps the second result of ops.documents: a
---document sees nothing before it -> like x: at each position the sum of w's last row times it, the
---row before times the position before, and so on
---@param args { [integer]: perilune.Value, seq: string, axis: string }
---@return perilune.Value
function ops.convolve(args) end

---logits, labels -> -log softmax(logits)[label] of each row; 0, without a gradient, where the label
---is below 0
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string }
---@return perilune.Value
function ops.cross_entropy(args) end

---How far the softmax of the first operand, p, is from the second's, q, in each row: KL(q || p)
---where beta is 0, KL(p || q) where it is 1, between them that from their mixture
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string, beta: number }
---@return perilune.Value
function ops.divergence(args) end

---How far the softmax of the first operand, p, is from what is stored of q, in each row: words,
---i32, and their log-probabilities, with one more axis; all other words are one outcome. KL(q || p)
---@param args { [1]: perilune.Value, [2]: perilune.Value, [3]: perilune.Value, axis: string }
---@return perilune.Value
function ops.stored_divergence(args) end

---log(sum(exp(x))) along the axis
---@param args { [1]: perilune.Value, axis: string }
---@return perilune.Value
function ops.logsumexp(args) end

---@class perilune.TopAttributes: { [integer]: perilune.Value }
---@field axis string
---@field to string
---@field count? integer
---@field groups? integer equal runs that the numbers lie in, at most 32: all chosen lie in
---@field kept? integer so many groups, those whose
---@field best? 1|2 greatest numbers sum to most

---x [..., axis] -> the numbers of the greatest along the axis, the greater first, as many as axis
---`to` has, or count says: i32[..., to]. Of equal ones the lesser number; not-a-number comes
---last. With groups, only of the kept groups whose best sum to most. Has no gradient.
---@param args perilune.TopAttributes
---@return perilune.Value
function ops.top(args) end

---x f32[..., axis], index i32[..., choice] -> x at each index, like index; 0 beyond the axis
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string }
---@return perilune.Value
function ops.take(args) end

---Its opposite: y f32[..., choice], index -> [..., axis], the sum of what has that index
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string, count?: integer }
---@return perilune.Value
function ops.put(args) end

---chosen i32[batch, seq, choice], to = {experts, slot, routes} -> slots i32[batch, seq, choice]
---(-1: dropped); its second result tokens i32[experts, batch, slot] (-1: empty), its third counts
---f32[batch, routes] of choices that fell on each expert. With first and count (integers), slots
---is a run of all that an expert has: those from first on, of count.
---@param args { [1]: perilune.Value, to: string[], experts?: integer, slots?: integer }
---@return perilune.Value
function ops.route(args) end

---x [batch, seq, model], slots, tokens and perhaps gates f32[batch, seq, choice] -> each slot's row
---of x (times its gate), [experts, batch, slot, model]; zeros where a slot is empty
---@param args { [integer]: perilune.Value }
---@return perilune.Value
function ops.dispatch(args) end

---h [experts, batch, slot, model], slots, tokens and perhaps gates -> [batch, seq, model], the sum
---of its choices' rows (times their gates)
---@param args { [integer]: perilune.Value }
---@return perilune.Value
function ops.combine(args) end

---x, index -> x[index] of each row; has no gradient
---@param args { [1]: perilune.Value, [2]: perilune.Value, axis: string }
---@return perilune.Value
function ops.pick(args) end
