#include "ir/op.h"

#include "ir/ops/parts.h"
#include "ir/ops/route.h"

#include <pthread.h>
#include <string.h>

#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    bool infer_##infer(Graph *, Node *, Diag *);                                                   \
    void grad_##grad(GradContext *, const Node *, const Value *, Value *);                         \
    double flops_##flops(const Node *, const Type *, const Type *);
#include "ir/ops.def"
#undef OP

const OpInfo OPS[N_OPS] = {
#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    {#lower, min, max, outs, attrs, flags, infer_##infer, grad_##grad, flops_##flops},
#include "ir/ops.def"
#undef OP
};

const AttrInfo ATTRS[N_ATTRS] = {
#define ATTR(name, kind, help) {#name, ATTR_##kind, help},
#include "ir/attrs.def"
#undef ATTR
};

static bool name_is(const char *known, const char *name, int length) {
    return *known == *name && strncmp(known, name, (size_t)length) == 0 && known[length] == '\0';
}

int op_find(const char *name, int length) {
    for (int op = 0; op < N_OPS; op++) {
        if (name_is(OPS[op].name, name, length)) return op;
    }
    return -1;
}

int attr_find(const char *name, int length) {
    for (int key = 0; key < N_ATTRS; key++) {
        if (name_is(ATTRS[key].name, name, length)) return key;
    }
    return -1;
}

/* OPS' lists of attributes, taken apart once: every node of every graph is checked against them. */
enum { MOST_USES = 40 };
static struct {
    AttrUse items[MOST_USES];
    int count;
} attr_uses[N_OPS];

static void add_use(OpKind op, AttrKey key, bool required) {
    int n = attr_uses[op].count++;
    if (n == MOST_USES) BUG("%s has more than %d attributes", OPS[op].name, MOST_USES);
    AttrUse *items = attr_uses[op].items;
    for (; n > 0 && items[n - 1].key > key; n--) items[n] = items[n - 1];
    items[n] = (AttrUse){key, required};
}

static void find_attr_uses(void) {
    for (int op = 0; op < N_OPS; op++) {
        for (const char *word = OPS[op].attrs; *word;) {
            bool optional = *word == '?';
            if (optional) word++;
            int size = (int)strcspn(word, " ");
            int key = attr_find(word, size);
            if (key >= 0) add_use((OpKind)op, (AttrKey)key, !optional);
            word += size + (word[size] == ' ');
        }
    }
}

const AttrUse *op_attrs(OpKind op, int *out_n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_attr_uses);
    *out_n = attr_uses[op].count;
    return attr_uses[op].items;
}

bool op_has_attr(OpKind op, AttrKey key, bool *out_required) {
    int n;
    const AttrUse *uses = op_attrs(op, &n);
    for (int i = 0; i < n; i++) {
        if (uses[i].key != key) continue;
        *out_required = uses[i].required;
        return true;
    }
    return false;
}

int op_rule_states(OpKind op) {
    return op >= OP_RULE0 && op <= OP_RULE3 ? (int)op - OP_RULE0 : -1;
}

/* p, states, copy */
static int rule_alias(const Node *node, int output) {
    if (output == 0) return 0;
    return output <= op_rule_states(node->op) ? output + 1 : node->n_inputs - 1;
}

int op_alias(const Node *node, int output) {
    switch (node->op) {
    case OP_ACCUMULATE:
    case OP_LARGEST:
    case OP_CACHE_APPEND: return 0;
    case OP_CACHE_LINEAR_ATTENTION: return output == 1 ? 3 : -1; /* states */
    case OP_CACHE_CONVOLVE: return output == 1 ? 1 : -1;
    case OP_ROUND_BLOCKS:
    case OP_ALL_GATHER: return node->n_inputs == 2 ? 1 : -1;
    case OP_MATMUL: return matmul_accumulator(node);
    case OP_EMBEDDING_GRAD: return node->n_inputs == 4 ? 3 : -1;
    case OP_ADAMW: /* p, m, v, copy */
        return output == 0 ? 0 : output == 3 ? node->n_inputs - 1 : output + 1;
    case OP_LOSS_SCALE: return output + 1;
    case OP_RULE0:
    case OP_RULE1:
    case OP_RULE2:
    case OP_RULE3: return rule_alias(node, output);
    case OP_SGD:
    case OP_LION: /* p, momentum, copy */
        return output == 0 ? 0 : output == 2 ? node->n_inputs - 1 : 2;
    case OP_LAMB_MOMENTS: return output < 2 ? output + 1 : -1; /* m, v */
    case OP_LAMB: return output == 0 ? 0 : node->n_inputs - 1; /* p, copy */
    case OP_MUON_MOMENTUM: return output == 0 ? 0 : -1;
    case OP_MUON: return output == 0 ? 0 : node->n_inputs - 1; /* p, copy */
    case OP_BALANCE:
    case OP_EMA: return 0;
    default: return -1;
    }
}

bool op_may_reuse(const Node *node, int input) {
    if (OPS[node->op].flags & ELEMENTWISE_BIT || node->op == OP_FUSED) return true;
    switch (node->op) {
    case OP_CROSS_ENTROPY_GRAD:
    case OP_STORED_GRAD: return input == 0;
    case OP_DIVERGENCE_GRAD: return input < 2;
    case OP_RELATIVE_BIAS:
    case OP_ROTARY:
    case OP_ADD_N:
    case OP_ALL_REDUCE:
    case OP_STAGE_REDUCE: return input == 0;
    default: return false;
    }
}

/* Where a dtype of 16 or 8 bits has no product of its own, blocks of the operands are widened. */
static int64_t matmul_workspace_bytes(const Node *node, const Type *inputs) {
    enum { BLOCK_MN = 512, BLOCK_K = 256 };
    MatmulLayout layout;
    if (!dtype_is_low(inputs[0].dtype) && inputs[0].dtype != DTYPE_FP8) return 0;
    if (!matmul_layout(node, &inputs[0], &inputs[1], &layout)) return 0;
    int64_t m = layout.m < BLOCK_MN ? layout.m : BLOCK_MN;
    int64_t n = layout.n < BLOCK_MN ? layout.n : BLOCK_MN;
    int64_t k = layout.k < BLOCK_K ? layout.k : BLOCK_K;
    int64_t sums = dtype_is_low(node->types[0].dtype) ? m * n : 0;
    return (m * k + k * n + sums) * dtype_bytes(DTYPE_F32);
}

/* Norms sum gain and bias gradients over groups of at least 16 rows, at most 64 groups, so that the
 * sums do not depend on the number of threads. */
static int64_t norm_workspace_bytes(const Type *inputs) {
    enum { GROUP_ROWS = 16, MOST_GROUPS = 64 };
    int64_t width = inputs[0].dims[inputs[0].rank - 1];
    int64_t rows = type_elements(&inputs[0]) / width;
    int64_t groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
    if (groups > MOST_GROUPS) groups = MOST_GROUPS;
    return groups * 2 * width * dtype_bytes(DTYPE_F32);
}

/* Sums, largest scores and results of each block of keys; of many queries, nothing. */
static int64_t cache_workspace_bytes(const Type *inputs) {
    const Type *q = &inputs[0], *v = &inputs[2];
    int64_t rows = type_elements(q) / q->dims[q->rank - 1], values = v->dims[v->rank - 1];
    int64_t blocks = (inputs[1].dims[1] + CACHE_BLOCK_KEYS - 1) / CACHE_BLOCK_KEYS;
    int64_t group = inputs[1].rank == 3 ? q->dims[2] : q->rank == 5 ? q->dims[3] : 1;
    if (!cache_in_blocks(q->dims[1], group)) blocks = 0;
    return rows * blocks * (values + 2) * dtype_bytes(DTYPE_F32);
}

/* Of each run of heads the gradients of queries and keys, and a double for each position's decay.
 */
static int64_t linear_attention_workspace_bytes(const Node *node, const Type *inputs) {
    const Type *q = &inputs[0], *v = &inputs[2];
    int64_t keys = q->dims[q->rank - 1], rows = type_elements(q) / keys;
    int64_t runs = type_elements(v) / v->dims[v->rank - 1] / rows;
    if (runs > LINEAR_ATTENTION_MOST_RUNS) runs = LINEAR_ATTENTION_MOST_RUNS;
    int64_t decays = linear_attention_by_keys(node, inputs) ? keys : 1;
    return rows * runs * (2 * keys * dtype_bytes(DTYPE_F32) + decays * (int64_t)sizeof(double));
}

static bool is_state(OpKind op, int input) {
    switch (op) {
    case OP_ADAMW: return input == 2 || input == 3;
    case OP_LAMB_MOMENTS:
    case OP_LAMB: return input == 1 || input == 2;
    case OP_SGD:
    case OP_LION: return input == 2;
    case OP_MUON_MOMENTUM: return input == 0;
    default: return input >= 2 && input < 2 + op_rule_states(op);
    }
}

OperandPrecision op_operand_precision(OpKind op, int input) {
    switch (op) {
    case OP_ACCUMULATE: return input == 0 ? OPERAND_GRADIENT : OPERAND_EITHER;
    case OP_MATMUL: /* a, b, scales of both in fp8, what it is added to */
        return input < 2                  ? OPERAND_FOLLOWS
               : input == 2 || input == 4 ? OPERAND_GRADIENT
                                          : OPERAND_F32;
    case OP_LAYERNORM:
    case OP_RMSNORM: return input == 0 ? OPERAND_FOLLOWS : OPERAND_F32;
    case OP_LAYERNORM_GRAD: return input == 0 || input == 4 ? OPERAND_FOLLOWS : OPERAND_F32;
    case OP_RMSNORM_GRAD: return input == 0 || input == 3 ? OPERAND_FOLLOWS : OPERAND_F32;
    case OP_ATTENTION: return input >= 3 ? OPERAND_F32 : OPERAND_FOLLOWS;
    case OP_LINEAR_ATTENTION:
    case OP_LINEAR_ATTENTION_GRAD:
        return input >= linear_attention_decay(op) ? OPERAND_F32 : OPERAND_FOLLOWS;
    case OP_CONVOLVE:
        return input == 0 ? OPERAND_FOLLOWS : input == 1 ? OPERAND_F32 : OPERAND_EITHER;
    case OP_CONVOLVE_GRAD:
        return input == 1 ? OPERAND_F32 : input == 3 ? OPERAND_EITHER : OPERAND_FOLLOWS;
    case OP_CACHE_APPEND: return input < 2 ? OPERAND_FOLLOWS : OPERAND_EITHER;
    case OP_CACHE_READ: return input < 1 ? OPERAND_FOLLOWS : OPERAND_EITHER;
    case OP_CACHE_ATTENTION: return input < 3 ? OPERAND_FOLLOWS : OPERAND_EITHER;
    case OP_CACHE_LINEAR_ATTENTION:
        return input < 3                  ? OPERAND_FOLLOWS
               : input == 4 || input == 5 ? OPERAND_EITHER
                                          : OPERAND_F32;
    case OP_CACHE_CONVOLVE:
        return input < 2 ? OPERAND_FOLLOWS : input == 2 ? OPERAND_F32 : OPERAND_EITHER;
    case OP_SELECT_ROW:
    case OP_ROTARY: return input == 0 ? OPERAND_FOLLOWS : OPERAND_EITHER;
    case OP_ATTENTION_GRAD:
        return input >= 6 ? OPERAND_EITHER : input == 4 ? OPERAND_F32 : OPERAND_FOLLOWS;
    case OP_STORED_DIVERGENCE:
    case OP_STORED_ROWS:
    case OP_STORED_GRAD:
    case OP_CROSS_ENTROPY_GRAD: return input == 0 ? OPERAND_FOLLOWS : OPERAND_F32;
    case OP_DIVERGENCE_ROWS:
    case OP_DIVERGENCE_GRAD: return input < 2 ? OPERAND_FOLLOWS : OPERAND_F32;
    case OP_EMBEDDING_GRAD:
        return input == 1 ? OPERAND_EITHER : input == 2 ? OPERAND_UNREAD : OPERAND_F32;
    case OP_RELATIVE_BIAS:
    case OP_RELATIVE_BIAS_GRAD:
    case OP_OF_PAIRS:
    case OP_TOP:
    case OP_TAKE:
    case OP_PUT:
    case OP_ROUTE:
    case OP_DOCUMENTS:
    case OP_DOCUMENT_ENDS:
    case OP_NGRAM:
    case OP_OCCURRENCE: return OPERAND_F32; /* or a number */
    case OP_DISPATCH:
    case OP_COMBINE:
        return input == 0 ? OPERAND_FOLLOWS : input < ROUTE_TABLES ? OPERAND_EITHER : OPERAND_F32;
    case OP_OUTPUT:
    case OP_LESS:
    case OP_EQUAL:
    case OP_NUMBER:
    case OP_TO_BF16:
    case OP_TO_UPPER:
    case OP_TO_F16:
    case OP_TO_F32: return OPERAND_EITHER;
    case OP_ROUND_BLOCKS: return input == 0 ? OPERAND_F32 : OPERAND_EITHER;
    /* But for their last operand, a copy. */
    case OP_ADAMW:
    case OP_LAMB_MOMENTS:
    case OP_LAMB:
    case OP_SGD:
    case OP_LION:
    case OP_RULE0:
    case OP_RULE1:
    case OP_RULE2:
    case OP_RULE3:
    case OP_MUON_MOMENTUM:
        if (input == op_gradient_operand(op)) return OPERAND_GRADIENT;
        return is_state(op, input) ? OPERAND_STATE : OPERAND_F32;
    case OP_SUMSQ: return OPERAND_GRADIENT;
    case OP_LARGEST:
    case OP_MAX_N:
    case OP_CLIP_SCALE:
    case OP_LOSS_SCALE:
    case OP_SKIP_SPIKE:
    case OP_TALLY:
    case OP_EMA:
    case OP_BALANCE: return OPERAND_F32;
    case OP_MUON: return input == 1 ? OPERAND_EITHER : OPERAND_F32;
    default: return OPERAND_FOLLOWS;
    }
}

DType node_state_dtype(const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (op_operand_precision(node->op, i) != OPERAND_STATE) continue;
        DType dtype = value_type(node->inputs[i])->dtype;
        if (dtype_is_moment(dtype)) return DTYPE_DYN8;
        return dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    }
    return DTYPE_F32;
}

DType op_moment_dtype(OpKind op, int input) {
    switch (op) {
    case OP_ADAMW: return input == 3 ? DTYPE_DYN8U : input == 2 ? DTYPE_DYN8 : DTYPE_F32;
    case OP_SGD:
    case OP_LION: return input == 2 ? DTYPE_DYN8 : DTYPE_F32;
    default: return DTYPE_F32;
    }
}

DType node_gradient_dtype(const Node *node) {
    int at = op_gradient_operand(node->op);
    bool low = at >= 0 && value_type(node->inputs[at])->dtype == DTYPE_BF16;
    return low ? DTYPE_BF16 : DTYPE_F32;
}

bool matmul_is_dots(const MatmulLayout *layout) {
    enum { LONGEST = 1 << 16 }; /* for a warp, one number after the other */
    return layout->m == 1 && layout->n == 1 && layout->k <= LONGEST;
}

bool matmul_sum_is_one(const MatmulLayout *layout, DType dtype) {
    enum { SMALL_BYTES = 1 << 20 };
    return layout->k <= 2 * layout->m || layout->n * layout->k * dtype_bytes(dtype) <= SMALL_BYTES;
}

bool matmul_is_large(const MatmulLayout *layout) {
    enum { TILE = 128, MOST_TILES = 2048 };
    return (layout->m + TILE - 1) / TILE * ((layout->n + TILE - 1) / TILE) > MOST_TILES;
}

OpKind op_cast_to(DType dtype) {
    switch (dtype) {
    case DTYPE_BF16: return OP_TO_BF16;
    case DTYPE_F16: return OP_TO_F16;
    default: return OP_TO_F32;
    }
}

DType op_cast_dtype(OpKind op) {
    switch (op) {
    case OP_TO_BF16:
    case OP_TO_UPPER: return DTYPE_BF16;
    case OP_TO_F16: return DTYPE_F16;
    default: return DTYPE_F32;
    }
}

bool op_is_cast(OpKind op) {
    return op == OP_TO_F32 || op == OP_TO_BF16 || op == OP_TO_UPPER || op == OP_TO_F16;
}

bool output_is_reported(const Node *node) {
    if (node->op != OP_OUTPUT) return false;
    const Type *type = value_type(node->inputs[0]);
    return type->rank == 0 && type->dtype == DTYPE_F32;
}

const char *const TOKEN_NUMBER_NAMES[N_TOKEN_NUMBERS] = {
    [TOKEN_CENTERED_REWARDS] = "centered_rewards",
    [TOKEN_ADVANTAGES] = "advantages",
    [TOKEN_OLD_SCORES] = "old_scores",
    [TOKEN_REFERENCE_SCORES] = "reference_scores",
    [TOKEN_DESIRABLE] = "desirable",
    [TOKEN_DIVERGENCE] = "divergence",
    [TOKEN_WEIGHTS] = "weights",
    [TOKEN_EXTRA_WEIGHTS] = "extra_weights",
    [TOKEN_STORED_WORDS] = "stored_words",
    [TOKEN_STORED_LOGPROBS] = "stored_logprobs",
    [TOKEN_TARGETS] = "targets",
};

TokenNumbers token_numbers_find(const char *name) {
    int i = 0;
    while (i < N_TOKEN_NUMBERS && strcmp(TOKEN_NUMBER_NAMES[i], name) != 0) i++;
    return (TokenNumbers)i;
}

bool token_numbers_are_stored(TokenNumbers which) {
    return which == TOKEN_STORED_WORDS || which == TOKEN_STORED_LOGPROBS;
}

const char *token_numbers_axis(TokenNumbers which) {
    if (which == TOKEN_TARGETS) return AXIS_CLASS;
    return token_numbers_are_stored(which) ? AXIS_STORED : NULL;
}

bool node_diffuses(const Node *node) {
    return node->op == OP_LABEL_SHARE && node_attr(node, ATTR_by) != NULL;
}

bool op_is_number(OpKind op) {
    return op == OP_CONST || op == OP_LABEL_SHARE;
}

bool op_multiplies(OpKind op) {
    return op == OP_MATMUL || op == OP_ATTENTION || op == OP_ATTENTION_GRAD ||
           op == OP_LINEAR_ATTENTION || op == OP_LINEAR_ATTENTION_GRAD;
}

/* A gradient counts as twice its forward, whose operands are among its own. */
double op_model_flops(const Node *node, const Type *inputs, const Type *outputs) {
    switch (node->op) {
    case OP_ATTENTION_GRAD: return 2 * OPS[OP_ATTENTION].flops(node, inputs, outputs);
    case OP_LINEAR_ATTENTION_GRAD: return 2 * OPS[OP_LINEAR_ATTENTION].flops(node, inputs, outputs);
    default: return op_multiplies(node->op) ? OPS[node->op].flops(node, inputs, outputs) : 0;
    }
}

bool op_reads_tokens(OpKind op) {
    return op == OP_DOCUMENTS || op == OP_DOCUMENT_ENDS || op == OP_NGRAM || op == OP_OCCURRENCE;
}

bool node_tells_documents(const Node *node) {
    return node->op == OP_DOCUMENTS && node_int(node, ATTR_separator, 0) != INT32_MAX;
}

bool op_reads_integers(OpKind op) {
    return op == OP_LESS || op == OP_EQUAL || op == OP_NUMBER;
}

bool op_ends_product(OpKind op) {
    return op == OP_ADD || op == OP_COPY || op_is_cast(op) || op == OP_GELU || op == OP_GELU_GRAD;
}

bool op_moves_parts(OpKind op) {
    return op == OP_NARROW || op == OP_PAD || op == OP_CONCAT || op == OP_SHIFT || op == OP_STACK ||
           op == OP_RENAME || op == OP_REGROUP;
}

bool node_draws(const Node *node) {
    return node->op == OP_DROPOUT || attention_drops(node);
}

bool op_decodes(OpKind op) {
    return op == OP_CACHE_APPEND || op == OP_CACHE_READ || op == OP_CACHE_ATTENTION ||
           op == OP_SELECT_ROW || op == OP_CACHE_LINEAR_ATTENTION || op == OP_CACHE_CONVOLVE;
}

bool op_is_optimizer(OpKind op) {
    return op == OP_ADAMW || op == OP_SGD || op == OP_LION || op == OP_LAMB || op == OP_MUON ||
           op == OP_BALANCE || op_rule_states(op) >= 0;
}

bool op_updates_elements(OpKind op) {
    return op == OP_ADAMW || op == OP_SGD || op == OP_LION || op == OP_EMA ||
           op_rule_states(op) >= 0;
}

/* Operands of an optimizer that it always has. */
static int update_operands(OpKind op) {
    switch (op) {
    case OP_ADAMW: return 7;
    case OP_SGD:
    case OP_LION: return 5;
    case OP_LAMB: return 8;
    case OP_MUON: return 4;
    default: return op_rule_states(op) < 0 ? -1 : 5 + op_rule_states(op);
    }
}

int op_rescale_operand(const Node *node) {
    int at = update_operands(node->op);
    bool any = at >= 0 && at < node->n_inputs;
    return any && value_type(node->inputs[at])->dtype == DTYPE_F32 ? at : -1;
}

bool op_rescale_place(const Type *param, const Type *factors, int *out_at) {
    int at = factors->rank ? type_find_axis(param, factors->axes[0]) : -1;
    if (at < 0 || at + factors->rank > param->rank) return false;
    for (int i = 0; i < factors->rank; i++) {
        if (param->axes[at + i] != factors->axes[i]) return false;
        if (param->dims[at + i] != factors->dims[i]) return false;
    }
    *out_at = at;
    return true;
}

int op_gradient_operand(OpKind op) {
    switch (op) {
    case OP_ADAMW:
    case OP_SGD:
    case OP_LION:
    case OP_RULE0:
    case OP_RULE1:
    case OP_RULE2:
    case OP_RULE3:
    case OP_BALANCE: return 1;
    case OP_MUON_MOMENTUM: return 2;
    case OP_LAMB_MOMENTS: return 5;
    default: return -1;
    }
}

bool op_reads_weights(OpKind op) {
    return op == OP_MATMUL || op == OP_EMBEDDING;
}

bool node_is_copy(const Node *node) {
    const char *name = node_string(node, ATTR_name), *of = node_string(node, ATTR_of);
    size_t length = strlen(of);
    DType dtype = node->types[0].dtype;
    bool may = dtype_is_low(dtype) || (dtype == DTYPE_F32 && node_attr(node, ATTR_blocks));
    return node->op == OP_STATE && may && length > 0 && strncmp(name, of, length) == 0 &&
           name[length] == '.' && strcmp(name + length + 1, dtype_name(dtype)) == 0;
}

bool node_is_upper(const Node *node) {
    return node->op == OP_STATE && node_int(node, ATTR_upper, 0) != 0;
}

bool node_is_once(const Node *node) {
    return node_int(node, ATTR_once, 0) != 0;
}

bool node_is_frozen(const Node *param) {
    return node_int(param, ATTR_frozen, 0) != 0;
}

bool node_is_balanced(const Node *param) {
    return param->op == OP_PARAM && node_attr(param, ATTR_balance);
}

bool graph_has_frozen(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_PARAM && node_is_frozen(graph->nodes[n])) return true;
    }
    return false;
}

bool *graph_find_learning(const Graph *forward, Arena *arena) {
    bool *learns = ARENA_ARRAY(arena, bool, forward->n_nodes + 1);
    for (int n = 0; n < forward->n_nodes; n++) {
        const Node *node = forward->nodes[n];
        learns[n] = node->op == OP_PARAM && !node_is_frozen(node) && !node_is_balanced(node);
        for (int i = 0; i < node->n_inputs; i++) learns[n] |= learns[node->inputs[i].node->id];
        learns[n] &= !op_stops_gradient(node->op);
    }
    return learns;
}

int64_t op_workspace_bytes(const Node *node, const Type *inputs) {
    switch (node->op) {
    case OP_MATMUL: return matmul_workspace_bytes(node, inputs);
    case OP_LAYERNORM_GRAD:
    case OP_RMSNORM_GRAD: return norm_workspace_bytes(inputs);
    case OP_CACHE_ATTENTION: return cache_workspace_bytes(inputs);
    case OP_LINEAR_ATTENTION_GRAD: return linear_attention_workspace_bytes(node, inputs);
    case OP_ATTENTION_GRAD: /* gradients of keys and values, added up in f32 */
        if (!dtype_is_low(inputs[1].dtype)) return 0;
        return (type_elements(&inputs[1]) + type_elements(&inputs[2])) * dtype_bytes(DTYPE_F32);
    default: return 0;
    }
}

/* Under `to`, does the name stand for another axis in an operand than in the result? */
static bool product_renames(const Node *node, int axis) {
    const Attr *shared = node_attr(node, ATTR_shared);
    int free = shared ? shared->axes.count : 0;
    if (!node_attr(node, ATTR_to) || node_over(node, ATTR_shared, axis)) return false;
    if (node_over(node, ATTR_over, axis)) return type_find_axis(&node->types[0], axis) >= 0;
    for (int i = 0; i < 2; i++) {
        const Type *type = value_type(node->inputs[i]);
        for (int k = 0; k < type->rank; k++) {
            if (node_over(node, ATTR_over, type->axes[k])) continue;
            if (node_over(node, ATTR_shared, type->axes[k])) continue;
            int from = type->axes[k], to = node->types[0].axes[free++];
            if (from != to && (axis == from || axis == to)) return true;
        }
    }
    return false;
}

/* Of a relative bias's table, or of the gradient of one. */
static int relative_bucket_axis(const Node *node) {
    bool forward = node->op == OP_RELATIVE_BIAS;
    return forward ? value_type(node->inputs[1])->axes[0] : node->types[0].axes[0];
}

static int last_axis(const Type *type) {
    return type->axes[type->rank - 1];
}

bool op_needs_whole(const Node *node, int axis) {
    switch (node->op) {
    case OP_MATMUL: return product_renames(node, axis);
    case OP_LAYERNORM:
    case OP_LAYERNORM_GRAD:
    case OP_RMSNORM:
    case OP_RMSNORM_GRAD: return axis == node_axis(node, ATTR_axis);
    case OP_DOCUMENTS:
    case OP_DOCUMENT_ENDS:
    case OP_NGRAM:
    case OP_OCCURRENCE: return axis == node_axis(node, ATTR_axis);
    case OP_BALANCE: return type_find_axis(&node->types[0], axis) >= 0;
    case OP_STORED_DIVERGENCE:
    case OP_STORED_ROWS:
    case OP_STORED_GRAD: return axis == last_axis(value_type(node->inputs[1]));
    case OP_ROTARY: return axis == node_axis(node, ATTR_head);
    case OP_LINEAR_ATTENTION:
    case OP_LINEAR_ATTENTION_GRAD:
        return axis == node_axis(node, ATTR_head) || axis == node_axis(node, ATTR_seq) ||
               axis == attention_value_axis(node);
    case OP_CONVOLVE:
    case OP_CONVOLVE_GRAD:
        return axis == node_axis(node, ATTR_axis) || axis == node_axis(node, ATTR_seq);
    case OP_RELATIVE_BIAS:
    case OP_RELATIVE_BIAS_GRAD:
        return axis == node_axis(node, ATTR_keys) || axis == relative_bucket_axis(node);
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
        return axis == node_axis(node, ATTR_head) || axis == node_axis(node, ATTR_seq) ||
               axis == attention_value_axis(node);
    default:
        if (op_routes(node->op)) return route_needs_whole(node, axis);
        return op_moves_parts(node->op) && parts_has_axis(node, axis);
    }
}

bool op_counts_along(const Node *node, int axis) {
    switch (node->op) {
    case OP_LOGSUMEXP:
    case OP_PICK:
    case OP_CROSS_ENTROPY:
    case OP_CROSS_ENTROPY_GRAD:
    case OP_DIVERGENCE:
    case OP_DIVERGENCE_ROWS:
    case OP_DIVERGENCE_GRAD:
    case OP_STORED_DIVERGENCE:
    case OP_STORED_ROWS:
    case OP_STORED_GRAD:
    case OP_EMBEDDING:
    case OP_EMBEDDING_GRAD: return axis == node_axis(node, ATTR_axis);
    case OP_ROUTE:
    case OP_DISPATCH:
    case OP_COMBINE:
    case OP_SLOT_DOT: return true;
    default: return false;
    }
}

bool node_is_exchange(const Node *node) {
    return node->op == OP_ALL_TO_ALL &&
           strcmp(node_string(node, ATTR_mesh), mesh_axis_name(MESH_C)) != 0;
}

bool node_overlaps(const Node *node) {
    const char *mesh = node_string(node, ATTR_mesh);
    if (!(OPS[node->op].flags & COLLECTIVE) || node->phase == PHASE_UPDATE) return false;
    return mesh[0] && !mesh_is_data(mesh_axis_find(mesh, (int)strlen(mesh)));
}

ReduceKind op_partial_kind(const Node *node) {
    if (node->op == OP_LARGEST || node->op == OP_MAX_N) return REDUCE_MAX;
    return node->op == OP_LOGSUMEXP ? REDUCE_LSE : REDUCE_SUM;
}

void grad_none(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    (void)ctx, (void)node, (void)douts, (void)dins;
}

bool op_stops_gradient(OpKind op) {
    return OPS[op].flags & KERNEL && OPS[op].grad == grad_none;
}

void grad_never(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    (void)douts, (void)dins;
    diag_error(ctx->diag, node->loc,
               "%s: has no gradient: it belongs to backward and update graphs", OPS[node->op].name);
    ctx->failed = true;
}

Value grad_build(GradContext *ctx, OpKind op, const Value *inputs, int n_inputs, const Attr *attrs,
                 int n_attrs) {
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].node) return NO_VALUE; /* an earlier failure, already reported */
    }
    Node *node = graph_add(ctx->graph,
                           &(NodeSpec){.op = op,
                                       .inputs = inputs,
                                       .n_inputs = n_inputs,
                                       .attrs = attrs,
                                       .n_attrs = n_attrs,
                                       .phase = PHASE_BACKWARD,
                                       .block = ctx->origin->block,
                                       .chunk = ctx->origin->chunk,
                                       .loc = ctx->origin->loc},
                           ctx->diag);
    if (!node) ctx->failed = true;
    return node_value(node, 0);
}

Value grad_reduce_to(GradContext *ctx, Value value, const Type *like) {
    if (!value.node) return NO_VALUE;
    const Type *type = value_type(value);
    int extra[MAX_RANK], n_extra = 0;
    for (int i = 0; i < type->rank; i++) {
        if (type_find_axis(like, type->axes[i]) < 0) extra[n_extra++] = type->axes[i];
    }
    if (n_extra) {
        Attr over = attr_axes(ATTR_over, extra, n_extra);
        value = grad_build(ctx, OP_REDUCE_SUM, &value, 1, &over, 1);
        if (!value.node) return NO_VALUE;
    }
    if (!type_same_shape(value_type(value), like)) {
        Attr to = attr_axes(ATTR_to, like->axes, like->rank);
        value = grad_build(ctx, OP_TRANSPOSE, &value, 1, &to, 1);
    }
    return grad_to_dtype(ctx, value, like->dtype);
}

Value grad_to_dtype(GradContext *ctx, Value value, DType dtype) {
    if (!value.node || value_type(value)->dtype == dtype) return value;
    return grad_build(ctx, op_cast_to(dtype), &value, 1, NULL, 0);
}
