/* Attention without a softmax, as a state that each position changes and reads.
 *
 * Of each head the state S is [keys, values], zero before a sequence. A position with decay g (its
 * logarithm is the operand), query q, key k and value v does
 *
 *     S <- g S                                     S <- S + k u'                    o = scale S' q
 *
 * with u = v (Katharopoulos et al. 2020; with g Mamba-2's state space duality: Dao & Gu 2024, arXiv
 * 2405.21060, section 4), or with a share b of v that is written, the delta rule, u = b (v - S' k),
 * S as it has decayed (Schlag et al. 2021; Yang et al. 2024, Gated DeltaNet, arXiv 2412.06464,
 * equation 10).
 *
 * g is a number for each head; or, where the decays have the keys' axis behind the others, one for
 * each key, by which that row of S decays: gated linear attention (Yang et al. 2024, arXiv
 * 2312.06635, equation 3) and, with the delta rule, Kimi Delta Attention (Kimi Team 2025, arXiv
 * 2510.26692, equation 1).
 *
 * Queries and keys have the axes [batch, seq, (groups,) head], values [batch, seq, (groups,)
 * (heads,) values]: the heads of a group share queries and keys, as B and C of Mamba-2, or key
 * heads of Gated DeltaNet. v - S' k, the error, is kept for the gradient, which then needs no
 * state: u is b times it.
 */
#include "ir/op.h"

#include "ir/ops/decode.h"

#include <inttypes.h>
#include <string.h>

enum { QUERIES, KEYS, VALUES, GRADIENT, STATES = GRADIENT, ROWS, PLACES };

static bool fail_operand(const Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

int linear_attention_decay(OpKind op) {
    if (op == OP_CACHE_LINEAR_ATTENTION) return PLACES + 1;
    return op == OP_LINEAR_ATTENTION        ? VALUES + 1
           : op == OP_LINEAR_ATTENTION_GRAD ? GRADIENT + 1
                                            : -1;
}

int linear_attention_write(const Node *node) {
    int decay = linear_attention_decay(node->op);
    return decay >= 0 && node->n_inputs > decay + 1 ? decay + 1 : -1;
}

bool linear_attention_by_keys(const Node *node, const Type *inputs) {
    int decay = linear_attention_decay(node->op);
    return decay >= 0 && inputs[decay].rank == inputs[VALUES].rank;
}

bool linear_attention_by_chunks(const Node *node, const Type *inputs) {
    const Type *q = &inputs[QUERIES], *v = &inputs[VALUES];
    int64_t keys = q->dims[q->rank - 1], values = v->dims[v->rank - 1];
    if (node->op != OP_LINEAR_ATTENTION && node->op != OP_LINEAR_ATTENTION_GRAD) return false;
    if (!dtype_is_low(q->dtype) || keys % 8 != 0 || values % 8 != 0) return false;
    if (linear_attention_by_keys(node, inputs)) return false;
    return linear_attention_write(node) < 0 || keys <= LINEAR_ATTENTION_CHUNK_DELTA_KEYS;
}

ChunkDivision linear_attention_divide(const Node *node, const Type *inputs, int64_t most_bytes) {
    enum { CHUNK = LINEAR_ATTENTION_CHUNK, ENOUGH_BLOCKS = 1024 };
    const Type *q = &inputs[QUERIES], *v = &inputs[VALUES];
    const bool gradient = node->op == OP_LINEAR_ATTENTION_GRAD;
    const bool delta = linear_attention_write(node) >= 0;
    int64_t keys = q->dims[q->rank - 1], values = v->dims[v->rank - 1], batch = q->dims[0];
    int64_t groups = q->rank == 4 ? q->dims[2] : 1;
    int64_t heads = v->rank > q->rank ? v->dims[v->rank - 2] : 1; /* of a group */
    int64_t chunks = (q->dims[1] + CHUNK - 1) / CHUNK;
    /* 16 bits: states, and with the delta rule a square of a chunk's positions; f32: sums. */
    int64_t each = 2 * groups * heads * chunks * (keys * values + (delta ? CHUNK * CHUNK : 0));
    int64_t sums = 4 * (delta ? 4 : 2) * q->dims[1] * groups * keys;
    int64_t bytes = gradient ? 2 * each + sums : each;
    ChunkDivision out = {bytes > 0 ? most_bytes / bytes : 1, 1};
    if (out.sequences > batch) out.sequences = batch;
    if (out.sequences < 1) out.sequences = 1;
    int64_t blocks = out.sequences * groups * chunks;
    if (blocks > 0) out.runs = (ENOUGH_BLOCKS + blocks - 1) / blocks;
    if (out.runs > heads) out.runs = heads;
    return out;
}

/* A side of the state: what kernels have room for. */
static bool check_length(const Graph *graph, const Node *node, const Type *type, Diag *diag) {
    int last = type->rank - 1;
    if (type->dims[last] <= ATTENTION_LONGEST_HEAD) return true;
    diag_error(diag, node->loc, "%s: axis '%s' is %" PRId64 "; it can be at most %d",
               OPS[node->op].name, graph->axes.names[type->axes[last]], type->dims[last],
               ATTENTION_LONGEST_HEAD);
    return false;
}

/* [batch, seq, (groups,) head] */
static bool check_queries(const Graph *graph, const Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[QUERIES]);
    int seq = node_axis(node, ATTR_seq), head = node_axis(node, ATTR_head), last = q->rank - 1;
    if (dtype_is_float(q->dtype) && (q->rank == 3 || q->rank == 4) && q->axes[1] == seq &&
        q->axes[last] == head) {
        return check_length(graph, node, q, diag);
    }
    const char *seq_name = seq >= 0 ? graph->axes.names[seq] : "?";
    const char *head_name = head >= 0 ? graph->axes.names[head] : "?";
    diag_error(diag, node->loc,
               "%s: queries must be f32, bf16 or f16[batch, %s, groups, %s] or without groups",
               OPS[node->op].name, seq_name, head_name);
    diag_note(diag, node->inputs[QUERIES].node->loc, "queries made here");
    return false;
}

/* [batch, seq, (groups,) (heads,) values], the first of which are the queries' and the last is none
 * of theirs. */
static bool check_values(const Graph *graph, const Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[QUERIES]);
    const Type *v = value_type(node->inputs[VALUES]);
    bool fits = v->dtype == q->dtype && (v->rank == q->rank || v->rank == q->rank + 1);
    for (int i = 0; fits && i < q->rank - 1; i++) {
        fits = v->axes[i] == q->axes[i] && v->dims[i] == q->dims[i];
    }
    for (int i = q->rank - 1; fits && i < v->rank; i++) fits = type_find_axis(q, v->axes[i]) < 0;
    if (fits) return check_length(graph, node, v, diag);
    return fail_operand(
        node, VALUES, diag,
        "must be values, with the queries' dtype and axes but for the last, perhaps "
        "heads, and an axis of their own");
}

/* Numbers for each position and head. */
static Type heads_of(const Type *values) {
    Type heads = type_with_dtype(values, DTYPE_F32);
    heads.rank--;
    return heads;
}

/* The same for each of the head's keys. */
static Type keys_of(const Type *heads, const Type *queries) {
    Type keys = *heads;
    keys.axes[keys.rank] = queries->axes[queries->rank - 1];
    keys.dims[keys.rank++] = queries->dims[queries->rank - 1];
    return keys;
}

static bool check_all(const Graph *graph, const Node *node, Diag *diag) {
    int decay = linear_attention_decay(node->op);
    if (!check_queries(graph, node, diag) || !check_values(graph, node, diag)) return false;
    if (!type_equal(value_type(node->inputs[KEYS]), value_type(node->inputs[QUERIES]))) {
        return fail_operand(node, KEYS, diag, "must be keys, as the queries are");
    }
    Type heads = heads_of(value_type(node->inputs[VALUES]));
    Type by_keys = keys_of(&heads, value_type(node->inputs[QUERIES]));
    for (int i = decay; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        if (type_equal(type, &heads) || (i == decay && type_equal(type, &by_keys))) continue;
        return fail_operand(node, i, diag,
                            i == decay ? "must be logarithms of decays, f32 with the values' axes "
                                         "but for the last, and perhaps the keys' behind them"
                                       : "must say how much is written, f32 with the values' axes "
                                         "but for the last");
    }
    return true;
}

/* q, k, v, decay, perhaps what is written -> o, and with the latter the errors */
bool infer_linear_attention(Graph *graph, Node *node, Diag *diag) {
    if (!check_all(graph, node, diag)) return false;
    node->n_outputs = linear_attention_write(node) >= 0 ? 2 : 1;
    for (int i = 0; i < node->n_outputs; i++) node->types[i] = *value_type(node->inputs[VALUES]);
    return true;
}

/* f32[sequences, (groups,) (heads,) head, values] */
static bool check_states(const Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[QUERIES]), *v = value_type(node->inputs[VALUES]);
    const Type *states = value_type(node->inputs[STATES]);
    const int last = v->rank - 1;
    bool fits = states->dtype == DTYPE_F32 && states->rank == v->rank &&
                states->axes[last - 1] == q->axes[q->rank - 1] &&
                states->dims[last - 1] == q->dims[q->rank - 1] &&
                states->axes[last] == v->axes[last] && states->dims[last] == v->dims[last];
    for (int i = 2; fits && i < last; i++) {
        fits = states->axes[i - 1] == v->axes[i] && states->dims[i - 1] == v->dims[i];
    }
    return fits || fail_operand(node, STATES, diag,
                                "must be states, f32[sequences, heads, head, "
                                "values] as the operands are");
}

bool infer_cache_linear_attention(Graph *graph, Node *node, Diag *diag) {
    if (!check_all(graph, node, diag) || !check_states(node, diag)) return false;
    const Type *v = value_type(node->inputs[VALUES]);
    if (!decode_check_numbers(node, ROWS, v, 1, diag)) return false;
    if (!decode_check_numbers(node, PLACES, v, 2, diag)) return false;
    node->types[0] = *v;
    node->types[1] = *value_type(node->inputs[STATES]);
    return true;
}

/* q, k, v or the errors, do, decay, perhaps what is written -> dq, dk, du, ddecay; du is the
 * values' gradient, or times what is written it is */
bool infer_linear_attention_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_all(graph, node, diag)) return false;
    if (!type_equal(value_type(node->inputs[GRADIENT]), value_type(node->inputs[VALUES]))) {
        return fail_operand(node, GRADIENT, diag, "must be the result's gradient");
    }
    for (int i = 0; i <= VALUES; i++) node->types[i] = *value_type(node->inputs[i]);
    node->types[GRADIENT] = *value_type(node->inputs[linear_attention_decay(node->op)]);
    return true;
}

void grad_linear_attention(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Node *self = (Node *)node;
    int decay = linear_attention_decay(node->op), write = linear_attention_write(node);
    Value inputs[6] = {node->inputs[QUERIES], node->inputs[KEYS],
                       write >= 0 ? node_value(self, 1) : node->inputs[VALUES], douts[0],
                       node->inputs[decay]};
    if (write >= 0) inputs[5] = node->inputs[write];
    Value grad = grad_build(ctx, OP_LINEAR_ATTENTION_GRAD, inputs, write >= 0 ? 6 : 5, node->attrs,
                            node->n_attrs);
    for (int i = 0; i <= VALUES; i++) dins[i] = node_value(grad.node, i);
    dins[decay] = node_value(grad.node, GRADIENT);
    if (write < 0 || !grad.node) return;
    Value du = dins[VALUES], errors = inputs[VALUES], share = node->inputs[write];
    int last = value_type(du)->axes[value_type(du)->rank - 1];
    Attr over[2] = {attr_axes(ATTR_over, &last, 1), attr_string(ATTR_dtype, dtype_name(DTYPE_F32))};
    Value along = GRAD_NODE(ctx, OP_MUL, du, errors);
    dins[write] = along.node ? grad_build(ctx, OP_REDUCE_SUM, &along, 1, over, 2) : NO_VALUE;
    dins[VALUES] = GRAD_NODE(ctx, OP_MUL, du, grad_to_dtype(ctx, share, value_type(du)->dtype));
}

/* A state's multiplications and additions, once. */
static double count_states(const Type *inputs) {
    const Type *q = &inputs[QUERIES];
    return 2 * (double)type_elements(&inputs[VALUES]) * (double)q->dims[q->rank - 1];
}

/* What is written and what is read; with the delta rule also what was there. Decays do not count,
 * as in the papers. */
double flops_linear_attention(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    return (linear_attention_write(node) >= 0 ? 3 : 2) * count_states(inputs);
}

/* The state again, and the gradients of states, queries, keys and values; with the delta rule of
 * states and keys twice. */
double flops_linear_attention_grad(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    return (linear_attention_write(node) >= 0 ? 7 : 5) * count_states(inputs);
}
