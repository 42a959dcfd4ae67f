/* The evaluator itself, and the ops that work element by element or move data. */
#include "tests/support/reference_eval.h"

#include "ir/rule.h"

#include <math.h>
#include <string.h>

static RefOp *const REFERENCE[N_OPS] = {
#define OP(upper, lower, ...) reference_##lower,
#include "ir/ops.def"
#undef OP
};

bool point_next(Point *point, const Type *type) {
    for (int i = type->rank - 1; i >= 0; i--) {
        if (++point->at[type->axes[i]] < type->dims[i]) return true;
        point->at[type->axes[i]] = 0;
    }
    return false;
}

int64_t point_offset(const Point *point, const Type *type) {
    int64_t offset = 0;
    for (int i = 0; i < type->rank; i++) {
        offset = offset * type->dims[i] + point->at[type->axes[i]];
    }
    return offset;
}

Type ref_without(const Type *type, int axis) {
    Type rest = {.dtype = type->dtype};
    for (int i = 0; i < type->rank; i++) {
        if (type->axes[i] == axis) continue;
        rest.axes[rest.rank] = type->axes[i];
        rest.dims[rest.rank++] = type->dims[i];
    }
    return rest;
}

Type ref_only(const Type *type, int axis) {
    Type only = {.dtype = type->dtype, .rank = 1, .axes = {axis}};
    only.dims[0] = type->dims[type_find_axis(type, axis)];
    return only;
}

Reference *reference_create(Arena *arena, const Graph *graph) {
    Reference *ref = ARENA_NEW(arena, Reference);
    *ref = (Reference){
        .graph = graph, .arena = arena, .train = true, .n_micro = 1, .label_share = 0.625};
    ref->values = ARENA_ARRAY(arena, double *, graph->n_nodes *MAX_OUTPUTS + 1);
    ref->exact = ARENA_ARRAY(arena, double *, graph->n_nodes *MAX_OUTPUTS + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_outputs; i++) {
            ref->values[n * MAX_OUTPUTS + i] =
                ARENA_ARRAY(arena, double, type_elements(&node->types[i]));
            if (!dtype_is_low(node->types[i].dtype) || OPS[node->op].flags & LEAF) continue;
            ref->exact[n * MAX_OUTPUTS + i] =
                ARENA_ARRAY(arena, double, type_elements(&node->types[i]));
        }
    }
    return ref;
}

double *reference_value(const Reference *ref, Value value) {
    return ref->values[value.node->id * MAX_OUTPUTS + value.output];
}

const double *reference_exact(const Reference *ref, Value value) {
    const double *exact = ref->exact[value.node->id * MAX_OUTPUTS + value.output];
    return exact ? exact : reference_value(ref, value);
}

int reference_exponent(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (int)(bits >> 52 & 0x7ff) - 1022;
}

double reference_round_to(double x, int last) {
    const uint64_t up = (uint64_t)(1023 - last) << 52, down = (uint64_t)(1023 + last) << 52;
    double times, of;
    if (last < -1000 || last > 1000) return ldexp(nearbyint(ldexp(x, -last)), last);
    memcpy(&times, &up, sizeof(times));
    memcpy(&of, &down, sizeof(of));
    return nearbyint(x * times) * of; /* nearbyint: ties to even */
}

double reference_rounded(DType dtype, double x) {
    const bool half = dtype == DTYPE_F16;
    if (!dtype_is_low(dtype) || !isfinite(x) || x == 0) return x;
    /* of the last bit; f16's smallest number is 2^-24 */
    int last = reference_exponent(x) - (half ? 11 : 8);
    if (half && last < -24) last = -24;
    double rounded = reference_round_to(x, last);
    return half && fabs(rounded) >= 65536 ? copysign(INFINITY, x) : rounded;
}

double reference_round_bf16(double x) {
    return reference_rounded(DTYPE_BF16, x);
}

double reference_rounding(DType dtype, double x) {
    switch (dtype) {
    case DTYPE_BF16: return ldexp(fabs(x), -8);
    case DTYPE_F16: return ldexp(fabs(x), -11) + ldexp(1, -25);
    default: return 0;
    }
}

static void round_results(Reference *ref, const Node *node) {
    for (int o = 0; o < node->n_outputs; o++) {
        double *exact = ref->exact[node->id * MAX_OUTPUTS + o];
        double *value = ref->values[node->id * MAX_OUTPUTS + o];
        int64_t count = exact ? type_elements(&node->types[o]) : 0;
        for (int64_t i = 0; i < count; i++) {
            exact[i] = value[i];
            value[i] = reference_rounded(node->types[o].dtype, value[i]);
        }
    }
}

void reference_run_node(Reference *ref, const Node *node) {
    enum { MOST = 64 };
    const double *in[MOST];
    RefCall call = {.ref = ref, .node = node, .in = in};
    if (node->n_inputs > MOST) BUG("%s: too many operands", OPS[node->op].name);
    for (int i = 0; i < node->n_inputs; i++) in[i] = reference_value(ref, node->inputs[i]);
    for (int i = 0; i < node->n_outputs; i++) {
        call.out[i] = reference_value(ref, node_value((Node *)node, i));
    }
    REFERENCE[node->op](&call);
    round_results(ref, node);
}

void reference_run(Reference *ref) {
    for (int n = 0; n < ref->graph->n_nodes; n++) reference_run_node(ref, ref->graph->nodes[n]);
}

/* Leaves hold what the caller put there; effects have no result. */
static void nothing(const RefCall *call) {
    (void)call;
}
#define NOTHING(name)                                                                              \
    void reference_##name(const RefCall *call) {                                                   \
        nothing(call);                                                                             \
    }
NOTHING(input)
NOTHING(param)
NOTHING(state)
NOTHING(accumulator)
NOTHING(scalar)
NOTHING(variable)
NOTHING(recv)
NOTHING(output)
NOTHING(send)

void reference_label_share(const RefCall *call) {
    call->out[0][0] = call->ref->label_share;
}

void reference_const(const RefCall *call) {
    call->out[0][0] = node_float(call->node, ATTR_value, 0);
}

/* Element by element, operands found by axis name. */
static void spread(const RefCall *call, int input) {
    const Type *type = &call->node->types[0];
    Point point = {{0}};
    do {
        call->out[0][point_offset(&point, type)] = ref_read(call, input, &point);
    } while (point_next(&point, type));
}

/* On one rank every message hands its operand on; so do ops that only move data. */
#define SPREAD(name)                                                                               \
    void reference_##name(const RefCall *call) {                                                   \
        spread(call, 0);                                                                           \
    }
SPREAD(all_reduce)
SPREAD(all_gather)
SPREAD(reduce_scatter)
SPREAD(all_to_all)
SPREAD(slice)
SPREAD(stage_reduce)
SPREAD(offload)
SPREAD(fetch)
SPREAD(broadcast)
SPREAD(transpose)

void reference_accumulate(const RefCall *call) {
    int64_t n = type_elements(&call->node->types[0]);
    for (int64_t i = 0; i < n; i++) {
        call->out[0][i] = (call->ref->overwrite ? 0 : call->in[0][i]) + call->in[1][i];
    }
}

void reference_add_n(const RefCall *call) {
    int64_t n = type_elements(&call->node->types[0]);
    for (int64_t i = 0; i < n; i++) {
        call->out[0][i] = 0;
        for (int k = 0; k < call->node->n_inputs; k++) call->out[0][i] += call->in[k][i];
    }
}

/* Scalar functions of the elementwise ops: operands x, y, z and immediate c. */
static const double SQRT_2_OVER_PI = 0.79788456080286535588;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* The tanh form of Hendrycks & Gimelshein 2016. */
static double gelu_inner(double x) {
    return SQRT_2_OVER_PI * (x + 0.044715 * x * x * x);
}

double reference_gelu_value(double x) {
    return 0.5 * x * (1 + tanh(gelu_inner(x)));
}

double reference_gelu_slope(double x) {
    double t = tanh(gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
}

static double normal_cdf(double x) {
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double normal_density(double x) {
    return exp(-0.5 * x * x) * 0.39894228040143267794;
}

#define SCALARS(X)                                                                                 \
    X(add, x + y)                                                                                  \
    X(sub, x - y)                                                                                  \
    X(mul, x *y)                                                                                   \
    X(div, x / y)                                                                                  \
    X(neg, -x)                                                                                     \
    X(scale, x *c)                                                                                 \
    X(offset, x + c)                                                                               \
    X(copy, x)                                                                                     \
    X(square, x *x)                                                                                \
    X(sqrt, sqrt(x))                                                                               \
    X(rsqrt, 1 / sqrt(x))                                                                          \
    X(reciprocal, 1 / x)                                                                           \
    X(exp, exp(x))                                                                                 \
    X(log, log(x))                                                                                 \
    X(tanh, tanh(x))                                                                               \
    X(sigmoid, sigmoid(x))                                                                         \
    X(gelu, reference_gelu_value(x))                                                               \
    X(gelu_grad, y *reference_gelu_slope(x))                                                       \
    X(gelu_erf, x *normal_cdf(x))                                                                  \
    X(gelu_erf_grad, y *(normal_cdf(x) + x * normal_density(x)))                                   \
    X(softplus, log1p(exp(x)))                                                                     \
    X(silu, x *sigmoid(x))                                                                         \
    X(silu_grad, y *sigmoid(x) * (1 + x * (1 - sigmoid(x))))                                       \
    X(relu, x > 0 ? x : 0)                                                                         \
    X(relu_grad, x > 0 ? y : 0)                                                                    \
    X(maximum, x > y ? x : y)                                                                      \
    X(maximum_grad, x > y ? z : x < y ? 0 : z / 2)                                                 \
    X(minimum, x < y ? x : y)                                                                      \
    X(abs, fabs(x))                                                                                \
    X(sign, (x > 0) - (x < 0))                                                                     \
    X(round, nearbyint(x))                                                                         \
    X(less, x < y)                                                                                 \
    X(equal, x == y)                                                                               \
    X(stop_gradient, x)                                                                            \
    X(number, x)                                                                                   \
    X(to_bf16, x)                                                                                  \
    X(to_upper, x)                                                                                 \
    X(to_f16, x)                                                                                   \
    X(to_f32, x)

typedef double Scalar(double x, double y, double z, double c);
#define X(name, formula)                                                                           \
    static double scalar_##name(double x, double y, double z, double c) {                          \
        (void)y, (void)z, (void)c;                                                                 \
        return formula;                                                                            \
    }
SCALARS(X)
#undef X

static Scalar *find_scalar(OpKind op) {
    static const struct {
        const char *name;
        Scalar *function;
    } TABLE[] = {
#define X(name, formula) {#name, scalar_##name},
        SCALARS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
        if (strcmp(TABLE[i].name, OPS[op].name) == 0) return TABLE[i].function;
    }
    BUG("%s: no scalar function", OPS[op].name);
}

/* Philox4x32-10 (Salmon et al. 2011), word `word` of a block. */
static uint32_t philox_word(uint64_t seed, uint64_t step, uint32_t stream, uint64_t block,
                            int word) {
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), stream, (uint32_t)step};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof(c));
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return c[word];
}

/* Lane `element % 4` of block `element / 4`, as 24 bits. */
static double philox_uniform(uint64_t seed, uint64_t step, uint32_t stream, uint64_t element) {
    return (double)(philox_word(seed, step, stream, element / 4, (int)(element % 4)) >> 8) /
           16777216.0;
}

/* FNV-1a over block and key, 8 little-endian bytes each: a dropout's stream. */
static uint32_t dropout_stream(int64_t block, int64_t key) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 16; i++) {
        uint64_t word = (uint64_t)(i < 8 ? block : key);
        hash = (hash ^ (uint32_t)(word >> (8 * (i % 8)) & 0xff)) * 16777619u;
    }
    return hash;
}

/* The element's number in the tensor of the whole global batch. */
static uint64_t element_number(const Reference *ref, const Type *type, const Point *point) {
    int batch = axis_find(&ref->graph->axes, "batch", 5);
    uint64_t number = 0;
    for (int i = 0; i < type->rank; i++) {
        bool is_batch = type->axes[i] == batch;
        int64_t at = point->at[type->axes[i]] + (is_batch ? ref->micro * type->dims[i] : 0);
        number = number * (uint64_t)(type->dims[i] * (is_batch ? ref->n_micro : 1)) + (uint64_t)at;
    }
    return number;
}

static double dropout_factor(const RefCall *call, const Point *point, double p, int64_t key) {
    const Reference *ref = call->ref;
    if (!ref->train) return 1;
    uint64_t element = element_number(ref, &call->node->types[0], point);
    double u =
        philox_uniform(ref->seed, ref->step, dropout_stream(call->node->block, key), element);
    /* Kernels hold p in f32; on which side of it a uniform lies must not differ here. */
    return u >= (double)(float)p ? 1 / (1 - p) : 0;
}

double ref_probability_factor(const RefCall *call, const Type *rows, const Point *row,
                              int64_t n_keys, int64_t key) {
    const Reference *ref = call->ref;
    double p = node_float(call->node, ATTR_p, 0), dropped = fmin(round(p * 65536), 65535);
    if (!ref->train || p == 0) return 1;
    uint64_t blocks = 4 * (uint64_t)((n_keys + 31) / 32), number = element_number(ref, rows, row);
    uint64_t block = number * blocks + (uint64_t)(key / 32 * 4 + key / 2 % 4);
    uint32_t stream = dropout_stream(call->node->block, node_int(call->node, ATTR_key, 0));
    uint32_t word = philox_word(ref->seed, ref->step, stream, block, (int)(key / 8 % 4));
    return (word >> (16 * (key % 2)) & 0xffff) >= dropped ? 65536 / (65536 - dropped) : 0;
}

/* All elementwise nodes are programs, most of one instruction. */
static void run_program(const RefCall *call, const Expr *expr) {
    const Type *type = &call->node->types[0];
    Point point = {{0}};
    do {
        double results[EXPR_MAX_INSTRUCTIONS] = {0};
        for (int n = 0; n < expr->n_instructions; n++) {
            const ExprInstruction *ins = &expr->instructions[n];
            double x[EXPR_MAX_OPERANDS] = {0};
            for (int k = 0; k < OPS[ins->op].min_inputs; k++) {
                int from = ins->operands[k];
                x[k] = from < 0 ? ref_read(call, ~from, &point) : results[from];
            }
            results[n] = ins->op == OP_DROPOUT
                             ? x[0] * dropout_factor(call, &point, ins->imm, ins->key)
                         : ins->op == OP_CONST ? ins->imm
                                               : find_scalar(ins->op)(x[0], x[1], x[2], ins->imm);
        }
        for (int k = 0; k < expr->n_outputs; k++) {
            call->out[k][point_offset(&point, type)] = results[expr->outputs[k]];
        }
    } while (point_next(&point, type));
}

static void elementwise(const RefCall *call) {
    Expr expr = {.n_inputs = call->node->n_inputs, .n_instructions = 1, .n_outputs = 1};
    expr.instructions[0] = (ExprInstruction){
        .op = call->node->op,
        .operands = {~0, ~1, ~2},
        .imm = node_float(call->node, ATTR_value, node_float(call->node, ATTR_p, 0)),
        .key = node_int(call->node, ATTR_key, 0)};
    run_program(call, &expr);
}

#define X(name, formula)                                                                           \
    void reference_##name(const RefCall *call) {                                                   \
        elementwise(call);                                                                         \
    }
SCALARS(X)
X(dropout, )
#undef X

void reference_fused(const RefCall *call) {
    Expr expr;
    const char *error;
    if (!expr_parse(node_string(call->node, ATTR_program), call->node->n_inputs, &expr, &error)) {
        BUG("fused: %s", error);
    }
    run_program(call, &expr);
}

/* The formula of every element, with the numbers as kernels have them; what is around it is
 * reference_update.c's. */
static void rule(const RefCall *call) {
    const Node *node = call->node;
    Rule formula = rule_of_node(node);
    const int first = 2 + formula.n_states;
    const double given[RULE_N_GIVEN] = {
        call->in[first][0], call->in[first + 1][0] * node_float(node, ATTR_lr_scale, 1),
        call->in[first + 2][0], node_float(node, ATTR_weight_decay, 0)};
    float numbers[RULE_MOST_NUMBERS];
    rule_compute_numbers(formula.numbers, formula.n_numbers, given, numbers);
    for (int n = 0; n < formula.expr.n_instructions; n++) {
        ExprInstruction *ins = &formula.expr.instructions[n];
        if (ins->number) ins->imm = (double)numbers[ins->number - 1];
    }
    run_program(call, &formula.expr);
    reference_finish_rule(call, formula.n_states);
}

#define X(n_states)                                                                                \
    void reference_rule##n_states(const RefCall *call) {                                           \
        rule(call);                                                                                \
    }
X(0) X(1) X(2) X(3)
#undef X
