---@meta
-- Types of what a model script can use, for the Lua language server (completion, hover, checks).
-- In .luarc.json: { "workspace.library": ["frontend/lua"] }

---An axis name, or several.
---@alias perilune.Axes string|string[]

---A value of the graph. It has no other operators, and cannot be compared: it has no numbers yet.
---@class perilune.Value
---@field axes string[] names of its axes, in order
---@field input? string "tokens", "labels" or "source" of these, else nil
---@field dtype "f32"|"i32"
---@operator add(perilune.Value|number): perilune.Value
---@operator sub(perilune.Value|number): perilune.Value
---@operator mul(perilune.Value|number): perilune.Value
---@operator div(perilune.Value|number): perilune.Value
---@operator unm: perilune.Value
local Value = {}

---The size of an axis.
---@param axis string
---@return integer
function Value:dim(axis) end

---Another result of the op that made it, from 1: ops.layernorm also gives mean and 1 / deviation.
---@param k integer
---@return perilune.Value
function Value:result(k) end

---What the loss function builds with. Also has each axis size and setting as a field.
---@class perilune.Model
---@field batch integer sequences in a micro-batch on all d ranks together: --micro-batch x d
---@field seq integer
---@field vocab integer
---@field layers integer
---@field model integer
---@field heads integer
---@field kv_heads integer
---@field group integer heads / kv_heads
---@field head integer
---@field ffn integer
---@field [string] any
local Model = {}

---@class perilune.ParamOptions
---@field init? "normal"|"uniform"|"range"|"zeros"|"ones" range: even steps from low to high
---@field low? number the least of a uniform init, the first of a range
---@field high? number what all of it is below, or the last of a range
---@field std? number of a normal init; 0.02 if absent
---@field decay? number|boolean factor on weight decay; 1 for a normal init if absent, else 0
---@field lr_scale? number factor on its learning rate
---@field frozen? 0|1|boolean it stays as it is made or loaded: no gradient, no update
---@field muon? 0|1|boolean where the optimizer is Muon: 0: AdamW updates it; 1: Muon must
---@field balance? number it has no gradient: a step moves it by so much against Model:tally

---A parameter that the loss depends on; it cannot have the axis `batch`. Within a block its name
---begins with "blocks.#."; outside, the same name gives the same parameter, and options, where
---given again, must be the same.
---@param name string
---@param axes perilune.Axes
---@param options? perilune.ParamOptions
---@return perilune.Value
function Model:param(name, axes, options) end

---Block i (1, 2, 3, ... in order): the unit of pipeline cuts and of recomputation. Returns what f
---returns: something, computed in it. With weights, a block before this one, its parameters are
---that one's where it has any of their names, and its own elsewhere.
---@generic T
---@param i integer
---@param f fun(): T
---@param options? { weights?: integer }
---@return T
function Model:block(i, f, options) end

---What a parameter made with `balance` moves against, in place of a gradient: after a step each of
---its elements has `balance` added if its sum of numbers, over all other axes and the global batch,
---is less than the elements' mean, and taken from it if it is more.
---@param parameter perilune.Value
---@param numbers perilune.Value f32 with the parameter's axes, and perhaps others
function Model:tally(parameter, numbers) end

---f32[batch]: what the output "row_scores" was for each row before training, as the data have it.
---@return perilune.Value
function Model:reference() end

---@alias perilune.Numbers
---| "centered_rewards"|"advantages"|"old_scores"|"reference_scores"|"desirable"|"divergence"
---| "weights"|"extra_weights"

---f32[batch, seq], numbers of each label, as the data have them: by how much the reward of its
---answer is more than the mean of those to its prompt, the same divided by their spread, the
---label's log-probability when the answer was written (0: as it is now), what a reference gives it,
---and what its loss is multiplied by. Of rows, at their first position and 0 behind: 1 over the
---share of answers of its kind, below 0 where it is not desirable, the divergence from the
---reference in the global batch, and (of pairs) by how much more than once one counts.
---@param name perilune.Numbers
---@return perilune.Value
function Model:numbers(name) end

---f32[batch, seq, vocab]: what another model, --teacher's, says of the same tokens.
---@return perilune.Value
function Model:teacher() end

---i32[batch, seq, stored] and f32[batch, seq, stored]: a teacher's likeliest words of each label,
---as a file (--teacher-logits) has them, and their log-probabilities.
---@param count integer how many
---@return perilune.Value words
---@return perilune.Value logprobs
function Model:stored(count) end

---f32[batch, seq, class]: what the data say of each class of a text, at its label (nn.classify).
---@return perilune.Value
function Model:targets() end

---A setting, or nil where the model has none of that name.
---@param name string
---@return number|string|boolean|nil
function Model:setting(name) end

---An axis whose size the model works out; the same again is no mistake.
---@param name string
---@param size integer
function Model:axis(name, size) end

---Names a value as an output of the model; `generate` reads "logits". A number (f32, without axes)
---is told of every training step: its mean over the micro-batches.
---@param name string
---@param value perilune.Value
function Model:output(name, value) end

---Freezes the parameters whose names fit: "wte, blocks.*.attn.*, !blocks.3.*"; `*` is any text, `?`
---one character, `!` trains again. The last pattern that fits a name counts.
---@param patterns string
function Model:freeze(patterns) end

---@class perilune.Optimizer
---@field kind? "adamw"|"lamb"|"lion"|"muon"|"sgd"|string lamb: of what decays, muon: of matrices
---but the head; AdamW of all else; or a formula of the library `optim`, such as "ademamix"
---@field update? perilune.Update a formula of its own, without `kind`; other numbers of the table
---are the formula's
---@field states? string[] of the formula: names of up to three numbers for each element, 0 at first
---@field squares? string[] those that are never below 0, as means of squares: in bf16 they are
---rounded as AdamW's second moment
---@field lr? number
---@field beta1? number
---@field beta2? number
---@field eps? number
---@field momentum? number of sgd and muon (0.95)
---@field muon_rms? number size of the elements of muon's step at lr 1 (0.2); 0: Jordan's scale
---@field trust_max? number of lamb: most that a trust ratio may be; 0: no bound
---@field adam_lr? number with muon: the rate of what AdamW updates
---@field table_lr_scale? number factor on the rate of what is looked up
---@field matrix_lr_scale? number of what products read
---@field vector_lr_scale? number of everything else
---@field lr_schedule? "cosine"|"linear"|"constant"|"inverse-sqrt"|"wsd"|"wsd-linear"
---@field decay_steps? number of wsd and inverse-sqrt: steps, or a share of all
---@field weight_decay? number
---@field freeze? string patterns of parameters, as for m:freeze
---@field max_norm? number gradients are scaled down to this norm; 0: never

---Scalar loss of tokens and labels, each i32[batch, seq]; a label is the token that follows. A step
---takes the mean of its micro-batches' losses: what is not a mean over tokens, such as a product of
---two means, depends on how the batch is divided into them. Where the axes have `source`, a fourth
---argument is what an encoder reads, i32[batch, source].
---@alias perilune.Loss fun(m: perilune.Model, tokens, labels, source): perilune.Value

---@class perilune.Description
---@field name string
---@field axes table<string, integer> sizes; head, kv_heads and ffn are derived where absent
---@field sizes? table<string, table> values of axes and settings, picked by --set size=NAME
---@field size? string the size that is picked by default
---@field optimizer? perilune.Optimizer
---@field loss perilune.Loss
---@field layers? integer
---@field dropout? number
---@field tied? boolean
---@field norm? "layernorm"|"rmsnorm"
---@field norm_eps? number
---@field act? perilune.Activation
---@field rotary_base? number
---@field [string] any every other number, truth value or text is a setting, for --set

---Describes a model; a script ends in `return model { ... }`.
---@param description perilune.Description
---@return perilune.Description
function model(description) end

---relu2 is the square of relu; gelu the tanh approximation.
---@alias perilune.Activation "gelu"|"gelu_erf"|"relu"|"relu2"|"silu"

---Of a table that several layers may share; the first that makes it says.
---@class perilune.TableOptions
---@field std? number of its normal init; 0.02 if absent
---@field decay? number|boolean factor on weight decay; 1 if absent
---@field lr_scale? number
---@field muon? 0|1|boolean
---@field frozen? 0|1|boolean

---@class perilune.PositionOptions: perilune.TableOptions
---@field places? perilune.Value nn.documents' second value: positions are counted in each document
---@field rows? integer of the table then, where documents are shorter than seq

---Of a layer whose last weight adds to the residual stream.
---@class perilune.BranchOptions
---@field name? string begins its parameters' names
---@field std? number of its weights' normal init; 0.02 if absent
---@field out_std? number of the last weight's; std / sqrt(2 layers) if absent
---@field decay? number|boolean factor on its weights' decay; 1 if absent
---@field lr_scale? number of its weights
---@field muon? 0|1|boolean of its weights
---@field frozen? 0|1|boolean of its weights
---@field lora? perilune.LoraOptions adapters of its products; none if absent

---Adapters of low rank: y = x W + (alpha / rank) (x A) B.
---@class perilune.LoraOptions
---@field rank? integer 8 if absent
---@field alpha? number rank if absent
---@field dropout? number of x
---@field targets? string|string[] of q, k, v, o, attn.gate, gate, up, down, experts.gate, .up,
---.down, shared.gate, .up, .down, state.q, .k, .v, .z, .x, .b, .c, .dt, .beta, .a, .f, .g, .o,
---short.b, .c, .x, .o, experts, shared, state, state.in, short, short.in, all; all if absent.
---"a+b": they share an A
---@field rslora? boolean alpha / sqrt(rank) instead
---@field plus? number B's learning rate is so many times A's; 1 if absent

---@class perilune.LinearOptions
---@field weight? string its name
---@field bias? string its name; none if absent
---@field std? number of the weight's normal init; 0.02 if absent
---@field decay? number|boolean factor on the weight's decay; 1 if absent
---@field lr_scale? number of the weight
---@field muon? 0|1|boolean of the weight
---@field frozen? 0|1|boolean of the weight
---@field lora? perilune.LoraOptions an adapter of the weight, which is frozen then

---@class perilune.RotaryOptions
---@field base? number 10000 if absent
---@field seq? string
---@field head? string
---@field factor? number frequencies are divided by it; 1 if absent
---@field few? number with many and context: pairs that turn less often in `context` are divided
---@field many? number pairs that turn more often are not; between the two they are mixed
---@field context? number of the training without factor
---@field ramp? boolean mixed by logarithms, as in YaRN
---@field share? number of a head's numbers, the first ones, turn; 1 if absent
---@field factors? number[]|string of each pair, in place of factor: "1,1.05"
---@field scale? number what has turned is multiplied by it; 1 if absent

---@class perilune.AttentionOptions: perilune.BranchOptions
---@field bias? boolean
---@field out_bias? boolean of the last product; as bias if absent
---@field causal? boolean
---@field window? integer positions that each one attends to, itself included; all if absent
---@field rotary? number|perilune.RotaryOptions base of rotary positions; none if absent
---@field scale? number of scores; 1 / sqrt(head) if absent
---@field softcap? number c: scaled scores x become c tanh(x / c); none if absent
---@field sinks? boolean each head's softmax has one more score, learned, of no value
---@field qk_norm? boolean rmsnorm of q and k, with learned gains
---@field qk_norm_over? "head"|"all" of each head, or of all together; head if absent
---@field qk_norm_plus_one? boolean of each head: the parameters are what gains are more than 1
---@field qk_norm_gains? boolean of each head: are there any? true
---@field qk_norm_last? boolean of each head: behind positions
---@field norm_eps? number of qk_norm
---@field gate? boolean the results are times a sigmoid of a product of x
---@field alibi? perilune.Value nn.places': scores less the distance times a slope of each head
---@field forget? boolean forget gates: scores and the logarithms of gates between key and query
---@field score_bias? perilune.Value [batch, seq, kv_heads, group], c: scores and c_query - c_key
---@field temperature? perilune.Value [batch, seq], nn.temperature's: queries are times it
---@field documents? perilune.Value nn.documents' first value: a position sees its own only
---@field document_ends? perilune.Value its third: needed with documents where not causal
---@field dropout? number of probabilities, behind the softmax

---@class perilune.SwigluOptions: perilune.BranchOptions
---@field act? perilune.Activation
---@field dropout? number of what the last product reads

---@class perilune.MlpOptions: perilune.SwigluOptions
---@field bias? boolean

---Layers: local nn = require "nn"
---@class perilune.nn
local nn = {}

---x W + b over `from`, giving `to`.
---@param m perilune.Model
---@param x perilune.Value
---@param from perilune.Axes
---@param to perilune.Axes
---@param options? perilune.LinearOptions
---@return perilune.Value
function nn.linear(m, x, from, to, options) end

---The model's settings lora, lora_alpha, lora_rslora, lora_plus, lora_dropout and lora_targets as
---layers' option `lora`, all other parameters frozen; nil where lora is 0.
---@param m perilune.Model
---@return perilune.LoraOptions?
function nn.lora(m) end

---@class perilune.MupOptions of a layer's weights
---@field std number
---@field decay? number
---@field lr_scale? number

---How weights begin and learn, as the model's settings init_std and mup say, the width that this
---and the recipe are for (maximal update parametrization): options of layers.
---@param m perilune.Model
---@return { table: perilune.MupOptions, hidden: perilune.MupOptions, head: perilune.MupOptions }
function nn.mup(m) end

---Rows of the table `name` [vocab, model], or of one that is there.
---@param m perilune.Model
---@param name string|perilune.Value
---@param tokens perilune.Value
---@param vocab? string
---@param model? string
---@param options? perilune.TableOptions
---@return perilune.Value
function nn.embedding(m, name, tokens, vocab, model, options) end

---@class perilune.DocumentsOptions
---@field apart? boolean a separator belongs to no document: each is one by itself
---@field ends? boolean there is a third value, for attention that is not causal

---Of packed sequences: where each position's document begins, for nn.attention, and how far it is
---from there, for nn.position; nothing where separator, the token that ends a document, is -1.
---@param m perilune.Model
---@param tokens perilune.Value
---@param separator integer
---@param options? perilune.DocumentsOptions
---@return perilune.Value? documents
---@return perilune.Value? places
---@return perilune.Value? ends the position after each one's document's last
function nn.documents(m, tokens, separator, options) end

---Learned positions [seq, model]; with places [batch, seq, model].
---@param m perilune.Model
---@param name string
---@param seq? string
---@param model? string
---@param options? perilune.PositionOptions
---@return perilune.Value
function nn.position(m, name, seq, model, options) end

---x times the table `name` [vocab, model]; with an embedding's name the two are tied.
---@param m perilune.Model
---@param name string
---@param x perilune.Value
---@param vocab? string
---@param model? string
---@param options? perilune.TableOptions
---@return perilune.Value
function nn.logits(m, name, x, vocab, model, options) end

---@param m perilune.Model
---@param x perilune.Value
---@param axis? string
---@param options? { name?: string, eps?: number, bias?: boolean, plus_one?: boolean }
---@return perilune.Value
function nn.layernorm(m, x, axis, options) end

---@param m perilune.Model
---@param x perilune.Value
---@param axis? string
---@param options? { name?: string, eps?: number, plus_one?: boolean }
---@return perilune.Value
function nn.rmsnorm(m, x, axis, options) end

---@class perilune.NormOptions
---@field kind? "layernorm"|"rmsnorm"
---@field name? string
---@field eps? number
---@field bias? boolean layernorm's
---@field plus_one? boolean the parameter is what the gain is more than 1

---@param m perilune.Model
---@param x perilune.Value
---@param axis? string
---@param options? perilune.NormOptions
---@return perilune.Value
function nn.norm(m, x, axis, options) end

---@param x perilune.Value
---@param options? perilune.RotaryOptions
---@return perilune.Value
function nn.rotary(x, options) end

---YaRN as the model's settings rotary_scaling, _factor, _few, _many, _context, _mscale say: options
---of nn.rotary for an axis of `rope` numbers, and what scores are multiplied by. options: axis, in
---place of rope; truncate = false: the ramp is not between whole numbers of pairs
---@param m perilune.Model
---@param options? table
---@return perilune.RotaryOptions
---@return number
function nn.yarn(m, options) end

---Options of nn.rotary as the model's settings rotary_base, _share, _scaling (none, linear, llama3,
---yarn or longrope), _factor, _few, _many, _context, _short, _long and _mscale say.
---@param m perilune.Model
---@return perilune.RotaryOptions
function nn.scaled_rotary(m) end

---@class perilune.MlaOptions: perilune.BranchOptions
---@field q_rank? integer of the latent that queries are made of; 0, if absent: of x
---@field rotary? number|false|perilune.RotaryOptions of positions; 10000 if absent, false: none
---@field scale? number of scores; 1 / sqrt(head) if absent
---@field norm_eps? number
---@field causal? boolean
---@field documents? perilune.Value nn.documents' first value: a position sees its own only; causal
---@field dropout? number of probabilities, behind the softmax

---Multi-head latent attention (DeepSeek V2): axes heads, nope, rope, value, kv_rank are the
---model's.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.MlaOptions
---@return perilune.Value
function nn.mla(m, x, options) end

---Self-attention, multi-head or grouped-query.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.AttentionOptions
---@return perilune.Value
function nn.attention(m, x, options) end

---@class perilune.TemperatureOptions
---@field every integer so many tokens before add a step
---@field scale number of the logarithm of how many steps there are
---@field first? 0|1 what the first token counts as; 1
---@field places? perilune.Value nn.documents' second value: tokens are counted in each document

---What queries are times, [batch, seq]; nil where all are 1.
---@param m perilune.Model
---@param tokens perilune.Value
---@param options perilune.TemperatureOptions
---@return perilune.Value?
function nn.temperature(m, tokens, options) end

---@class perilune.RelativeOptions
---@field buckets? integer of distances; 32
---@field distance? integer positions apart from which on they share one; 128
---@field causal? boolean are keys after the query hidden? false
---@field std? number
---@field decay? number|boolean
---@field lr_scale? number
---@field frozen? 0|1|boolean

---@class perilune.RelativePositions
---@field table perilune.Value [relative, heads]
---@field distance integer
---@field causal boolean

---T5's biases of scores by how far a key is from its query, one table for a stack.
---@param m perilune.Model
---@param name string
---@param options? perilune.RelativeOptions
---@return perilune.RelativePositions
function nn.relative_positions(m, name, options) end

---@class perilune.RelativeAttentionOptions: perilune.BranchOptions
---@field relative? perilune.RelativePositions of x itself only
---@field padding? { [1]: perilune.Value, [2]: integer } tokens of the context, and no one's
---@field scale? number of scores; 1 / sqrt(head) if absent
---@field dropout? number of attention's weights
---@field q_std? number of wq; std if absent

---Multi-head attention of its scores, of x itself or of another sequence: [batch, source, model].
---@param m perilune.Model
---@param x perilune.Value
---@param context? perilune.Value
---@param options? perilune.RelativeAttentionOptions
---@return perilune.Value
function nn.relative_attention(m, x, context, options) end

---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.MlpOptions
---@return perilune.Value
function nn.mlp(m, x, options) end

---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.SwigluOptions
---@return perilune.Value
function nn.swiglu(m, x, options) end

---@class perilune.MoeOptions: perilune.BranchOptions
---@field top_k? integer experts that a token goes to; 2
---@field capacity? number tokens an expert takes of a sequence, of its even share; 1.25; 0: all
---@field scores? "softmax"|"sigmoid" of all experts, or of each
---@field groups? integer that experts lie in; 1
---@field kept_groups? integer a token's experts are in so many of them, those whose
---@field group_best? 1|2 greatest scores sum to most
---@field bias_rate? number biases for choosing change by it in a step, to balance; none if absent
---@field normalize? boolean do gates of a token sum to 1? true
---@field sum_plus? number they are divided by their sum and this; 0
---@field scale? number of gates; 1
---@field act? perilune.Activation|"clamped" clamped: gpt-oss's SwiGLU
---@field limit? number of clamped: what halves are cut off at; 7
---@field alpha? number of clamped: what gates are multiplied by in the sigmoid; 1.702
---@field biases? boolean of the router and of each expert
---@field gate_input? boolean of one expert a token: gates are times what it reads
---@field shared? boolean one more expert, of axis shared_ffn, that all tokens meet
---@field shared_gate? boolean its result is times a sigmoid of the token
---@field balance? number weight of the load-balancing loss of each sequence; 0
---@field z? number weight of the router's z-loss; 0

---A sparse mixture of experts, each a SwiGLU: axes experts and expert_ffn are the model's. Gives
---the result; with balance or z, a loss of each sequence, [batch], for cross_entropy's `beside`;
---and the share of each sequence's choices that found no room, [batch].
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.MoeOptions
---@return perilune.Value
---@return perilune.Value?
---@return perilune.Value
function nn.moe(m, x, options) end

---@class perilune.ExpertDecoderOptions
---@field attention fun(x: perilune.Value, layer: integer): perilune.Value
---@field moe perilune.MoeOptions
---@field dense? fun(layer: integer): boolean has it a SwiGLU, as the first dense_layers have?
---@field lora? perilune.LoraOptions of the dense layers; experts' is in `moe`
---@field mtp? number weight of the loss of the second next token; none if absent
---@field norms_after? boolean of what branches add, too
---@field embedding_scale? number embeddings are times it; 1
---@field residual_scale? number what branches add is times it; 1
---@field logit_divisor? number logits are divided by it; 1

---A decoder of attention and experts, as m's settings say; gives the loss.
---@param m perilune.Model
---@param tokens perilune.Value
---@param labels perilune.Value
---@param options perilune.ExpertDecoderOptions
---@return perilune.Value
function nn.expert_decoder(m, tokens, labels, options) end

---@param x perilune.Value
---@param p number
---@return perilune.Value
function nn.dropout(x, p) end

---exp(x) / its sum along the axis.
---@param x perilune.Value
---@param axis string
---@return perilune.Value
function nn.softmax(x, axis) end

---x between lo and hi.
---@param x perilune.Value
---@param lo number
---@param hi number
---@return perilune.Value
function nn.clamp(x, lo, hi) end

---act(x), by the name that layers' options have: gelu, gelu_erf, relu, relu2 or silu.
---@param x perilune.Value
---@param act string
---@return perilune.Value
function nn.activation(x, act) end

---x + dropout(branch)
---@param x perilune.Value
---@param branch perilune.Value
---@param p? number
---@return perilune.Value
function nn.residual(x, branch, p) end

---Mean loss over all positions; also makes an output of the logits, "logits" unless `output` is
---another name or false. Labels below 0 have no loss; `weight` multiplies that of each position;
---`z` times the square of log-sum-exp is added to it (PaLM's z-loss). With `ignore`, a label,
---positions that have it are left out (-1: those that the data's masks leave out); the mean is over
---the others of the whole global batch. With `masked_lm` the data hide a share of the tokens, which
---are to be said. The mean of `beside`, losses of sequences, is added.
---@class perilune.FromSource
---@field start integer the token that the decoder begins with
---@field eos integer the token that ends either text
---@field pad? integer the token that fills up what the encoder reads; start if absent
---@field rate? number share of a text that is hidden in spans; prompts and completions if absent
---@field span? number mean length of one
---@field sentinel? integer the token for the first one; the next one's is one less

---@class perilune.CrossEntropyOptions
---@field output? string|false
---@field weight? perilune.Value
---@field ignore? integer
---@field masked_lm? { rate: number, mask: integer }
---@field from_source? perilune.FromSource what an encoder reads, and labels are made of
---@field diffusion? { mask: integer, shifted?: boolean, by_row?: boolean } what rows are hidden by
---@field images? perilune.ImageData what images rows have: nn.vision's data
---@field z? number
---@field beside? perilune.Value

---@param m perilune.Model
---@param logits perilune.Value
---@param labels perilune.Value
---@param vocab? string
---@param options? perilune.CrossEntropyOptions
---@return perilune.Value
function nn.cross_entropy(m, logits, labels, vocab, options) end

---@alias perilune.PreferenceKind
---| "dpo"|"robust"|"ipo"|"hinge"|"sigmoid_norm"|"apo_zero"|"apo_down"|"nca_pair"|"sppo_hard"
---| "simpo"|"orpo"|"kto"|"apo_zero_unpaired"

---@class perilune.PreferenceOptions
---@field kind? perilune.PreferenceKind
---@field beta? number
---@field label_smoothing? number of dpo, robust, simpo: the share of pairs the wrong way round
---@field gamma? number simpo's margin
---@field rpo_alpha? number of pairs: this times -log p by the token of chosen answers is added
---@field desirable_weight? number of kto and apo_zero_unpaired: of answers that are desirable
---@field undesirable_weight? number and of those that are not
---@field online? boolean pairs are answers that the model writes while it trains
---@field output? string|false
---@field beside? perilune.Value

---The mean of x over each position's own document. starts: nn.documents' first value.
---@param m perilune.Model
---@param x perilune.Value
---@param starts perilune.Value
---@return perilune.Value
function nn.document_mean(m, x, starts) end

---Mean over pairs of rows, a chosen answer and a rejected one, of a loss that prefers the chosen;
---or (kto, apo_zero_unpaired) over rows, each an answer that is desirable or not. Labels below 0
---are no answer's. Makes outputs "logits", "row_scores" [batch], reward_margin,
---reward_accuracy, chosen_reward and rejected_reward; of kto and online pairs kl.
---@param m perilune.Model
---@param logits perilune.Value
---@param labels perilune.Value
---@param vocab? string
---@param options? perilune.PreferenceOptions
---@return perilune.Value
function nn.preference(m, logits, labels, vocab, options) end

---@class perilune.PolicyOptions
---@field kind? "grpo"|"dapo"|"dr_grpo"|"gspo"
---@field clip? number ratios count from 1 - clip (0.2)
---@field clip_high? number to 1 + clip_high; 0: as clip
---@field kl? number weight of the distance from the reference; 0: none is read
---@field output? string|false
---@field beside? perilune.Value

---Mean of a loss of answers that the model wrote itself, by their advantages, with ratios that are
---clipped. Labels, the data's, below 0 are no answer's. Makes outputs "logits", "token_scores"
---[batch, seq], entropy, clipped and, with kl, kl.
---@param m perilune.Model
---@param logits perilune.Value
---@param labels perilune.Value
---@param vocab? string
---@param options? perilune.PolicyOptions
---@return perilune.Value
function nn.policy(m, logits, labels, vocab, options) end

---@class perilune.DistillOptions
---@field kind? "forward"|"reverse"|"jsd"
---@field alpha? number the teacher's share of the loss (0.5)
---@field temperature? number (1)
---@field beta? number of jsd: the teacher's share of the mixture (0.5)
---@field ignore? integer a label whose positions are left out, as nn.cross_entropy's
---@field share? perilune.Value that of labels which count, as ops.label_share's of `ignore`
---@field stored? integer so many words of each label are in a file, m:stored, instead of m:teacher

---A loss mixed with how far the model's words are from its teacher's, m:teacher(). Makes outputs kl
---and ce.
---@param m perilune.Model
---@param loss perilune.Value
---@param logits perilune.Value [batch, seq, vocab]
---@param labels perilune.Value
---@param vocab? string
---@param options? perilune.DistillOptions
---@return perilune.Value
function nn.distill(m, loss, logits, labels, vocab, options) end

---@class perilune.ConvolveOptions
---@field weight? string
---@field bias? string
---@field taps? integer
---@field act? string
---@field places? perilune.Value nn.documents' second value
---@field lr_scale? number
---@field frozen? integer

---A short causal convolution of each channel by itself: x [batch, seq, channels...] -> like x.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.ConvolveOptions
---@return perilune.Value
function nn.convolve(m, x, options) end

---@class perilune.ClassifyOptions
---@field classes string their names with commas between them, or how many there are
---@field kind? "one"|"sets"|"mse"|"mae"|"huber" what a text has: a class, a set, or numbers
---@field weights? string of one: "1,3.5", what each class counts, or "balanced"
---@field smoothing? number of one: how much of a class's share all of them have
---@field first? boolean a text is told of at its first token; else at its last
---@field pad? integer the token behind each text
---@field between? integer how many ends are between the two texts of a pair
---@field eos? integer the token that ends texts
---@field pooled? boolean through a layer of its own and tanh, as in BERT
---@field pooler_act? string the other activation of that layer
---@field bias? boolean
---@field dropout? number
---@field std? number
---@field beside? perilune.Value

---Mean over texts of the loss of their classes, sets of classes or numbers; what kind, weights and
---smoothing do not say, m.class_kind, m.class_weights and m.class_smoothing do.
---x [batch, seq, model]; labels are -1 but where a text is told of. Makes parameters score, perhaps
---score.b, pooler.w and pooler.b, and outputs, "logits" [batch, seq, class] and accuracy; of sets
---label_accuracy, too, of numbers mae.
---@param m perilune.Model
---@param x perilune.Value
---@param labels perilune.Value
---@param options perilune.ClassifyOptions
---@return perilune.Value
function nn.classify(m, x, labels, options) end

---@class perilune.EmbedOptions
---@field pooling? "mean"|"cls"|"last" what of a text counts: its tokens' mean, its first or last
---@field starts? perilune.Value nn.documents' first value, for mean
---@field pad? integer the token behind each text
---@field group? integer pairs in a row
---@field negatives? integer texts that are no answers, of each
---@field temperature? number cosines are divided by it
---@field symmetric? boolean answers look for their queries, too
---@field dims? string "256,128": losses of so many leading numbers besides
---@field length? integer tokens of a text at most; 0: as many as fit
---@field beside? perilune.Value

---Mean over queries of -log softmax(cosine / temperature) at their own answers, over all answers of
---the row. x [batch, seq, model]; labels are -1 but where a text has its number. Makes the outputs
---"vectors" [batch, texts, model] and accuracy.
---@param m perilune.Model
---@param x perilune.Value
---@param labels perilune.Value
---@param options? perilune.EmbedOptions
---@return perilune.Value
function nn.embed(m, x, labels, options) end

---@class perilune.EmbedAsSetOptions
---@field starts? perilune.Value
---@field pad? integer
---@field beside? perilune.Value
---@field longest? integer tokens that the model has positions for in a text; 0: any number

---nn.embed by m.embedding and the settings embed_group, embed_negatives, embed_temperature,
---embed_symmetric, embed_dims and embed_length, as far as m has them.
---@param m perilune.Model
---@param x perilune.Value
---@param labels perilune.Value
---@param options? perilune.EmbedAsSetOptions
---@return perilune.Value
function nn.embed_as_set(m, x, labels, options) end

---Mean over pairs of rows, a chosen answer and a rejected one, of -log sigmoid of how much more the
---chosen one's reward is, which is read at an answer's last token: there labels are 0, else -1.
---Makes the parameter score, and outputs "rewards" [batch] and those of nn.preference for the log.
---@param m perilune.Model
---@param x perilune.Value
---@param labels perilune.Value
---@param options? { bias?: boolean, dropout?: number, std?: number, beside?: perilune.Value }
---@return perilune.Value
function nn.reward(m, x, labels, options) end
