/* The op table as data, and what each row names. */
#ifndef IR_OP_H
#define IR_OP_H

#include "ir/graph.h"

enum OpFlags {
    KERNEL = 1 << 0,     /* a backend has code for it */
    LEAF = 1 << 1,       /* no inputs: data that something else provides */
    TYPED = 1 << 2,      /* the type is stated, not inferred */
    PERSISTENT = 1 << 3, /* lives across steps */
    EFFECT = 1 << 4,     /* kept though nothing reads it */
    COLLECTIVE = 1 << 5, /* a message among ranks */
    ELEMENTWISE_BIT = 1 << 6,
    ELEMENTWISE = KERNEL | ELEMENTWISE_BIT, /* may become part of a fused node */
    LINEAR = 1 << 7,                        /* a sum: partial operands give a partial result */
    COMPOSITE = 1 << 8,                     /* replaced by pass `expand` before sharding */
    VARIADIC_OUT = 1 << 9, /* n_out is the most; the node or its operands say how many */
    /* Padding of a sharded axis is exact only if the pad stays zero. Without a flag the result's
     * pad is zero when all operands' pads are. */
    ZERO_ANY = 1 << 10,      /* one zero operand is enough */
    ZERO_LAST = 1 << 11,     /* so is the last one, and no other: the gradient; attention's v */
    MAKES_NONZERO = 1 << 12, /* f(0) != 0 */
    MAKES_NONFINITE_BIT = 1 << 13,
    /* f(0) is not even finite, so that 0 f(0) != 0 */
    MAKES_NONFINITE = MAKES_NONZERO | MAKES_NONFINITE_BIT,
};

typedef struct GradContext {
    Graph *graph;
    Diag *diag;
    const Node *origin; /* the forward node being differentiated: gives block and Lua line */
    bool failed;
} GradContext;

typedef struct OpInfo {
    const char *name;
    int min_inputs, max_inputs, n_outputs;
    const char *attrs; /* "axis eps ?std" */
    unsigned flags;
    /* Sets node->types (and n_outputs) from inputs and attributes; reports mistakes. */
    bool (*infer)(Graph *graph, Node *node, Diag *diag);
    /* Given gradients of the outputs (NO_VALUE: none), makes those of the inputs. */
    void (*grad)(GradContext *ctx, const Node *node, const Value *douts, Value *dins);
    /* Floating-point operations for the given (local) shapes. */
    double (*flops)(const Node *node, const Type *inputs, const Type *outputs);
} OpInfo;

extern const OpInfo OPS[N_OPS];
int op_find(const char *name, int length); /* -1: none */

typedef enum AttrKind { ATTR_INT, ATTR_FLOAT, ATTR_STRING, ATTR_AXIS, ATTR_AXES } AttrKind;
typedef struct AttrInfo {
    const char *name;
    AttrKind kind;
    const char *help;
} AttrInfo;
extern const AttrInfo ATTRS[N_ATTRS];
int attr_find(const char *name, int length); /* -1: none */
/* The attributes that the op's row lists, in the order of attrs.def. */
typedef struct AttrUse {
    AttrKey key;
    bool required;
} AttrUse;
const AttrUse *op_attrs(OpKind op, int *out_n);
/* Does the op's row list the attribute? *out_required says how. */
bool op_has_attr(OpKind op, AttrKey key, bool *out_required);

/* Input whose memory output `output` must share (updates in place), or -1. */
int op_alias(const Node *node, int output);
/* May a result take over the memory of input `input` where that input dies? One may. */
bool op_may_reuse(const Node *node, int input);

/* Memory that the op's kernel needs for the length of one call, for operands of local shapes. */
int64_t op_workspace_bytes(const Node *node, const Type *inputs);
/* The same for the CUDA kernels of ops that are neither products nor messages. Declared here
 * because plans reserve it; defined where the kernels are, in runtime/cuda/workspace.c. */
int64_t op_cuda_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs);

/* Keys that a query of `seq` positions sees in the mean, as FLOPs count them: half of all if
 * causal, without the half that the diagonal is more. window: 0 is none. */
double attention_mean_keys(bool causal, int64_t seq, int64_t window);

/* Numbers of a head, of queries or of values, at most; and of a cached one that all heads share. */
enum { ATTENTION_LONGEST_HEAD = 256, ATTENTION_LONGEST_SHARED = 640 };
/* The last axis of attention's, or linear attention's, values and result: its attribute `head`, or
 * another. */
int attention_value_axis(const Node *node);
/* An all-to-all of experts' rows. */
bool node_is_exchange(const Node *node);
/* A message among the ranks that divide a layer: on GPUs it travels beside work that does not need
 * it. Those over d, of gradients and weights, have passes of their own. */
bool node_overlaps(const Node *node);
/* Does the op look at whole sequences of tokens: for documents, or for what stands before each? */
bool op_reads_tokens(OpKind op);
/* Has the data to have documents' ends for it? With the greatest separator, which is no token, it
 * counts positions alone. */
bool node_tells_documents(const Node *node);
/* The operand of attention and its gradient that says where documents begin, or -1: it has none;
 * and that which says where they end, which there is where not causal. */
int attention_documents(const Node *node);
int attention_document_ends(const Node *node);
/* Likewise of attention's sinks (Xiao et al. 2023, arXiv 2309.17453; a number for each head, as in
 * gpt-oss), which its denominators have beside the keys. */
int attention_sinks(const Node *node);
/* Does attention, or its gradient, drop probabilities? And its attributes but for those that say so
 * (`out` may be its own); returns how many. */
bool attention_drops(const Node *node);
int attention_undropped(const Node *node, Attr *out);
/* Does the node draw random numbers in each micro-batch, for rows of the batch by their numbers? */
bool node_draws(const Node *node);

/* The operand of linear attention or its gradient that decays are, -1 of other ops; and that which
 * says how much of a value is written, or -1. Of convolutions the operand of places, or -1. */
int linear_attention_decay(OpKind op);
/* Weights of a convolution for each channel, at most; and in its backends. */
enum { CONVOLVE_MOST_TAPS = 8 };
/* On a CPU the heads of a group are so many runs at most, whose shares of the gradients of queries
 * and keys are added up apart, so that sums do not depend on the number of threads. */
enum { LINEAR_ATTENTION_MOST_RUNS = 8 };
int linear_attention_write(const Node *node);
/* Does each key decay by a number of its own, not all of a head by one? */
bool linear_attention_by_keys(const Node *node, const Type *inputs);
/* Whether CUDA's kernels do linear attention of these local operands, or its gradient, chunk by
 * chunk on tensor cores: in 16 bits, with rows of whole 16 bytes and decays of heads; with the
 * delta rule up to a number of keys. Others go position by position. */
enum { LINEAR_ATTENTION_CHUNK = 64, LINEAR_ATTENTION_CHUNK_DELTA_KEYS = 128 };
bool linear_attention_by_chunks(const Node *node, const Type *inputs);
/* How they cut their work, by sizes alone: sequences that go at a time, whose states and sums take
 * `most_bytes` where one's do; and runs of a group's heads, each with sums of its own, that make
 * blocks enough to fill a device a few times (an H100 has place for two to three on each of 132
 * processors). */
typedef struct ChunkDivision {
    int64_t sequences, runs;
} ChunkDivision;
static const int64_t LINEAR_ATTENTION_PART_BYTES = INT64_C(512) << 20;
ChunkDivision linear_attention_divide(const Node *node, const Type *inputs, int64_t most_bytes);
int convolve_places(const Node *node);
/* Model FLOPs of products and attention of either kind, 0 of others: what a gradient computes again
 * does not count. */
double op_model_flops(const Node *node, const Type *inputs, const Type *outputs);
/* Does the op do products: those, and what computes them again? */
bool op_multiplies(OpKind op);

/* What an operand of floating point may be. Operands that FOLLOW have one dtype, and
 * floating results that are not statistics have it too. */
typedef enum OperandPrecision {
    OPERAND_FOLLOWS,
    OPERAND_F32,   /* always f32: statistics, gains, gradients of numbers per row, the update's */
    OPERAND_STATE, /* an optimizer's: f32, bf16 or 8 bits, as the other states of the op */
    OPERAND_GRADIENT, /* of a parameter, and where it is kept: f32 or bf16, whatever the others are
                       */
    OPERAND_EITHER,   /* any, whatever the others are */
    OPERAND_UNREAD    /* only its shape counts */
} OperandPrecision;
OperandPrecision op_operand_precision(OpKind op, int input);
/* What an optimizer's op keeps its states in, by the first: f32 (also where it has none), bf16, or
 * dyn8, which stands for 8 bits. */
DType node_state_dtype(const Node *node);
/* An operand that is a state, in 8 bits (ir/moments.h): dyn8, of squares dyn8u; f32: the op takes
 * none. */
DType op_moment_dtype(OpKind op, int input);
/* And what the gradient that it reads is: f32 (also where it reads none) or bf16. */
DType node_gradient_dtype(const Node *node);
/* The op that casts to a dtype of floating point, and back. */
OpKind op_cast_to(DType dtype);
DType op_cast_dtype(OpKind op);
bool op_is_cast(OpKind op);
/* Does the op compute something that has no gradient anywhere, or hold it back? */
bool op_stops_gradient(OpKind op);
/* Is it an output that training tells of each step, its mean over the global batch: the loss, or
 * another single number? */
bool output_is_reported(const Node *node);
/* How many of them a model may have beside its loss, how long their names may be, and the names of
 * the planner's own outputs of the update. */
enum { OUTPUT_MOST_REPORTED = 12, OUTPUT_MOST_NAME = 100 };
/* With --max-logit, and the number that people watch. */
#define OUTPUT_MAX_LOGIT "max_logit"
#define OUTPUT_OWN_NAMES                                                                           \
    { "loss", "grad_norm_squared", "loss_scale" }
/* A number for each row, which preferences compare: their output, and another model's of the same
 * rows as an input. */
#define OUTPUT_ROW_SCORES "row_scores"
#define INPUT_REFERENCE   "reference"
/* i32[batch, patches, pixel]: images of rows (ir/image_rule.h). */
#define INPUT_PIXELS "pixels"
/* The same, of which training knows how good answers are. */
#define OUTPUT_REWARDS "rewards"
/* f32[batch, texts, model]: of each text of a row the vector, as nn.embed puts it out. */
#define OUTPUT_VECTORS "vectors"
/* Log-probabilities of labels, f32[batch, seq], 0 where there is none: an output, and numbers of
 * the same shape that come with the labels as inputs: by how much the reward of an answer is more
 * than the mean of those to its prompt, the same divided by their spread, what a label's
 * log-probability was when the answer was written (0: as it is now), and what a reference gives it.
 * Numbers of a row are at its first position, with zeros behind: of an answer that is wanted or not
 * 1 / (share of its kind in the global batch), below 0 where it is not wanted; and how far the
 * model is from its reference in the global batch; and of a pair, in its chosen row, by how much
 * more than once it counts (-1: not at all). And what a label's loss is multiplied by. Several of
 * each label have a third axis: stored ones, [batch, seq, stored], a teacher's likeliest words
 * there, in i32, and their log-probabilities; and targets, [batch, seq, class], what a text's
 * logits are compared with at its label, of anything elsewhere (nn.classify). */
#define OUTPUT_TOKEN_SCORES "token_scores"
typedef enum TokenNumbers {
    TOKEN_CENTERED_REWARDS,
    TOKEN_ADVANTAGES,
    TOKEN_OLD_SCORES,
    TOKEN_REFERENCE_SCORES,
    TOKEN_DESIRABLE,
    TOKEN_DIVERGENCE,
    TOKEN_WEIGHTS,
    TOKEN_EXTRA_WEIGHTS,
    TOKEN_STORED_WORDS,
    TOKEN_STORED_LOGPROBS,
    TOKEN_TARGETS,
    N_TOKEN_NUMBERS
} TokenNumbers;
extern const char *const TOKEN_NUMBER_NAMES[N_TOKEN_NUMBERS];
/* N_TOKEN_NUMBERS: no input is called so. */
TokenNumbers token_numbers_find(const char *name);
bool token_numbers_are_stored(TokenNumbers which);
/* The third axis of the numbers; NULL: there is one of each label. */
const char *token_numbers_axis(TokenNumbers which);
#define AXIS_STORED "stored"
#define AXIS_CLASS  "class"
/* A label_share of a model that learns by diffusion: what the data hide, and how (`mask`, `by`,
 * `each`). */
bool node_diffuses(const Node *node);
/* A number that is there on every rank, made wherever it is read. */
bool op_is_number(OpKind op);
/* Does the op read its operands as numbers, of whatever dtypes, i32 among them? */
bool op_reads_integers(OpKind op);
/* A sum, gelu or its gradient: where an operand is a product, or a norm's gradient, that may do it
 * as it stores its result (runtime/cuda/epilogue.h, norm_addend.h). */
bool op_ends_product(OpKind op);
/* Does the op move parts of an axis (ir/ops/parts.h)? */
bool op_moves_parts(OpKind op);
/* Does the op go on with what earlier positions left? Only graphs of planner/decode have such. */
bool op_decodes(OpKind op);
/* How a cached attention divides its work: blocks of so many keys, each with sums of its own, for
 * at most so many query rows of a key/value head; else tiles of rows. So many positions are tiles
 * by themselves, as more are: they have the same bits in pieces and together. */
enum { CACHE_BLOCK_KEYS = 128, CACHE_MOST_ROWS = 16 };
static inline bool cache_in_blocks(int64_t seq, int64_t group) {
    return seq * group <= CACHE_MOST_ROWS && seq < CACHE_MOST_ROWS;
}
/* Does the op write a parameter, its first operand? */
bool op_is_optimizer(OpKind op);
/* States of an optimizer that is a formula (OP_RULE0 to OP_RULE3); -1 of other ops. */
int op_rule_states(OpKind op);
/* Does it update each element by itself, so that ranks can each have a part of a parameter, and one
 * launch many parameters? */
bool op_updates_elements(OpKind op);
/* The operand of an optimizer that says what its parameter is multiplied by after the step, or -1;
 * and from which of the parameter's axes on it has its own, which follow one another there. */
int op_rescale_operand(const Node *node);
bool op_rescale_place(const Type *param, const Type *factors, int *out_at);
/* The operand of an update that is its parameter's gradient, or -1. */
int op_gradient_operand(OpKind op);
/* Does the op multiply by or look up its weights, so that in 16 bits it reads a kept copy of them?
 */
bool op_reads_weights(OpKind op);
/* A state that holds its parameter rounded to 16 bits, refreshed by the update: "<of>.bf16" or
 * "<of>.f16"; or rounded to blocks (ir/ops/round_blocks.h), then also in f32: "<of>.f32". */
bool node_is_copy(const Node *node);
/* A copy in bf16 that is the upper half of its parameter's memory (ir/masters.h). */
bool node_is_upper(const Node *node);
/* Does the node run once a step, with its chunk's first forward? Of a weight that the last update
 * left divided: its cast, and the gather that writes it over its copy. */
bool node_is_once(const Node *node);
/* A parameter that has no gradient and no update. */
bool node_is_frozen(const Node *param);
/* A parameter that moves by tallies (OP_TALLY), and has no gradient. */
bool node_is_balanced(const Node *param);
bool graph_has_frozen(const Graph *graph);
/* By id of a forward graph's nodes: does a parameter that trains change it, and get a gradient by
 * it? */
bool *graph_find_learning(const Graph *forward, Arena *arena);

/* Axes that must be whole on a rank for this op: true if `axis` is one. */
bool op_needs_whole(const Node *node, int axis);
/* Does the op number the elements of this axis, from a shard's first one on? Then what c deals out,
 * which lies in two runs, will not do. */
bool op_counts_along(const Node *node, int axis);
/* ReduceKind of the output when a sharded axis disappears in the op. */
ReduceKind op_partial_kind(const Node *node);

/* Builders for gradients and passes: inherit block and line from ctx->origin. */
Value grad_build(GradContext *ctx, OpKind op, const Value *inputs, int n_inputs, const Attr *attrs,
                 int n_attrs);
#define GRAD_NODE(ctx, op, ...)                                                                    \
    grad_build((ctx), (op), (Value[]){__VA_ARGS__},                                                \
               sizeof((Value[]){__VA_ARGS__}) / sizeof(Value), NULL, 0)
/* Sums `value` down to the axes of `like`, in its order, and casts it to its dtype. */
Value grad_reduce_to(GradContext *ctx, Value value, const Type *like);
/* `value` in that dtype; itself where it is that already. */
Value grad_to_dtype(GradContext *ctx, Value value, DType dtype);

/* The operand that a product is added to, or -1; does it read two of fp8 and their scales, operands
 * 2 and 3? */
static inline int matmul_accumulator(const Node *node) {
    return node->n_inputs % 2 ? node->n_inputs - 1 : -1;
}
static inline bool matmul_is_scaled(const Node *node) {
    return node->op == OP_MATMUL && node->n_inputs >= 4;
}
/* How a matmul's operands lie in memory: out[batch, m, n] = a x b. */
typedef struct MatmulLayout {
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b; /* a is [k, m]; b is [n, k] */
} MatmulLayout;
/* False when an operand's axes are not grouped so that one (batched) product can read them. */
bool matmul_layout(const Node *node, const Type *a, const Type *b, MatmulLayout *out);
/* May labels be below 0, so that their rows have neither loss nor gradient? Those of the data are
 * within the vocabulary; those that a model makes of them may not be. */
bool cross_entropy_has_mask(const Node *node);
/* Is it a number for each of `batch` pairs of rows, which no tile of a product would fill? */
bool matmul_is_dots(const MatmulLayout *layout);
/* More than 2,048 tiles of 128 x 128: fills any device many times over, so that nothing is gained
 * by running several such products at once. */
bool matmul_is_large(const MatmulLayout *layout);
/* Of products with weights that are added up: is it worth copying the weights one below the other,
 * so that the sum is one product, `layout`, with all of their k? Two results less are written and
 * read, and the weights once more each; what is small stays in a device's cache, and saves a
 * launch.
 */
bool matmul_sum_is_one(const MatmulLayout *layout, DType dtype);

#endif
