/* reference_eval: a plain, slow evaluator of IR graphs in float64, as if on one rank.
 *
 * What the tests compare gradients and kernels with. It reads whole logical values by named axes,
 * shares no code with the kernels, and ignores shardings: messages among ranks are the identity.
 * Results in bf16 or f16 are rounded when a node is done, and nothing else is.
 * Integers are held as doubles. Updates do not happen in place: the new value is the node's result,
 * the old one stays in its leaf.
 *
 *     Reference *ref = reference_create(arena, graph);
 *     fill(reference_value(ref, leaf));      // every leaf: input, param, state, scalar, ...
 *     reference_run(ref);
 *     double *y = reference_value(ref, result);
 */
#ifndef TESTS_SUPPORT_REFERENCE_EVAL_H
#define TESTS_SUPPORT_REFERENCE_EVAL_H

#include "ir/op.h"

/* A place in a value's named axes. */
typedef struct Point {
    int64_t at[MAX_AXES];
} Point;

/* Steps to the next element in row-major order; false after the last, back at the first. */
bool point_next(Point *point, const Type *type);
/* Where the element at `point` lies in a value of that type. */
int64_t point_offset(const Point *point, const Type *type);

typedef struct Reference {
    const Graph *graph;
    Arena *arena;
    double **values;     /* [n_nodes * MAX_OUTPUTS], whole logical values */
    double **exact;      /* the same, of results in 16 bits only: before rounding */
    uint64_t seed, step; /* of dropout */
    double label_share;
    bool train, overwrite;
    int micro, n_micro;
} Reference;

/* All values zero; seed 0, step 0, training, first of one micro-batch, adding to accumulators. */
Reference *reference_create(Arena *arena, const Graph *graph);
double *reference_value(const Reference *ref, Value value);
/* Before it was rounded where it was stored in 16 bits; elsewhere the same numbers. */
const double *reference_exact(const Reference *ref, Value value);
/* |x| lies in [2^(n - 1), 2^n): frexp's n, of normal numbers, in a fraction of its time. */
int reference_exponent(double x);
/* To a multiple of 2^last, ties to even. */
double reference_round_to(double x, int last);
/* To the nearest number of that dtype, ties to even; the same number where it is not of 16 bits. */
double reference_rounded(DType dtype, double x);
double reference_round_bf16(double x);
/* The most by which that moves x, if it is finite after. */
double reference_rounding(DType dtype, double x);
/* Evaluates all nodes but the leaves, in order. */
void reference_run(Reference *ref);
void reference_run_node(Reference *ref, const Node *node);

/* For the functions of the ops: in[i] and out[i] are values of the node, types its operands'. */
typedef struct RefCall {
    Reference *ref;
    const Node *node;
    const double **in;
    double *out[MAX_OUTPUTS];
} RefCall;
/* What dropout makes of the probability of a row of attention, of `rows`, and a key of n_keys: 0,
 * or what others are times (runtime/attention_drop.h). */
double ref_probability_factor(const RefCall *call, const Type *rows, const Point *row,
                              int64_t n_keys, int64_t key);
typedef void RefOp(const RefCall *call);

static inline const Type *ref_type(const RefCall *call, int input) {
    return value_type(call->node->inputs[input]);
}
static inline double ref_read(const RefCall *call, int input, const Point *point) {
    return call->in[input][point_offset(point, ref_type(call, input))];
}
/* The numbers that fp8 operand `values` and its scales stand for (reference_quantize.c). */
/* What an optimizer with a formula does around it, where `out` has what the formula gives. */
void reference_finish_rule(const RefCall *call, int n_states);
void reference_widened(const RefCall *call, int values, int scales, double *out);
/* The operand's type without its axis `axis`, and one with nothing but it. */
Type ref_without(const Type *type, int axis);
Type ref_only(const Type *type, int axis);

/* The tanh form, and its derivative. */
double reference_gelu_value(double x);
double reference_gelu_slope(double x);

/* One entry per op of the table; a missing one does not link. */
#define OP(upper, lower, ...) RefOp reference_##lower;
#include "ir/ops.def"
#undef OP

#endif
