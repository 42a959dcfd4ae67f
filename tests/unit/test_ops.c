/* Every op of the table: gradients against central differences, kernels against
 * float64, in f32, in bf16 and in f16.
 *
 * Would catch: a gradient with a wrong factor, sign, axis order or missing sum
 * over a broadcast; a kernel bound with a wrong stride, size, operand or
 * attribute; a result left unwritten; memory taken over from an operand that is
 * still read; an op without any of these tests.
 */
#include "planner/planner.h"
#include "tests/support/kernel_run.h"
#include "tests/support/op_cases.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Differences of fourth order with h = 1e-4: the formula's error is h^4 =
 * 1e-16, rounding gives 1e-16 / 1e-4 times the size of the loss (up to 100). */
static const double GRADIENT_TOLERANCE = 1e-8;
/* A few f32 roundings of 6e-8, in sums of up to 100 terms; functions of vmath
 * are good to 3e-7. */
static const double KERNEL_TOLERANCE = 2e-6;
/* A whole backward graph's values, most of size 1: errors of the forward's
 * results carry over, and what cancels in a sum is relative to its terms. */
static const double GRAPH_FLOOR = 0.2;

/* In bf16 a value may be rounded the other way than the reference's, 2^-8 =
 * 0.004 of it off, where f32 arithmetic takes the other side of a tie;
 * gradients sum tens of such values. In f16 it is 2^-11. */
static const double GRAPH_TOLERANCE[N_DTYPES] = {
    [DTYPE_F32] = 2e-5, [DTYPE_BF16] = 0.02, [DTYPE_F16] = 0.0025};

typedef void GradFunction(GradContext *, const Node *, const Value *, Value *);
GradFunction grad_none, grad_never, grad_pick;

/* With an accumulator as its third operand a product is backward only. */
/* Hidden scores, 1e30, would hide all differences of a loss: test_t5 compares those gradients. */
static bool hides_scores(const OpCase *op_case) {
    return op_case->op == OP_RELATIVE_BIAS && strstr(op_case->attrs, "causal=1");
}

/* Products that are for backward and update graphs only. */
static bool is_late_product(const OpCase *op_case) {
    return op_case->op == OP_MATMUL &&
           (strchr(strchr(op_case->operands, ';') + 1, ';') || strstr(op_case->attrs, " to="));
}

static bool has_gradient(OpKind op) {
    GradFunction *grad = OPS[op].grad;
    return grad != grad_none && grad != grad_never && grad != grad_pick;
}

static bool gradient_tested[N_OPS], kernel_tested[N_OPS], tested_in[N_DTYPES][N_OPS];

/* Gradients */

static double loss_of(Reference *ref) {
    const Graph *graph = ref->graph;
    reference_run(ref);
    return *reference_value(ref, graph->nodes[graph->n_nodes - 1]->inputs[0]);
}

static double central_difference(Reference *ref, double *x) {
    static const double WEIGHTS[4] = {1, -8, 8, -1}, STEPS[4] = {-2, -1, 1, 2};
    const double h = 1e-4, at = *x;
    double slope = 0;
    for (int i = 0; i < 4; i++) {
        *x = at + h * STEPS[i];
        slope += WEIGHTS[i] * loss_of(ref) / (12 * h);
    }
    *x = at;
    return slope;
}

/* The last value of the accumulator of parameter `name`, or NULL. */
static const double *gradient_of(const Reference *ref, const char *name) {
    const double *last = NULL;
    for (int n = 0; n < ref->graph->n_nodes; n++) {
        Node *node = ref->graph->nodes[n];
        const Node *leaf = node;
        if (node->op != OP_ACCUMULATE) continue;
        while (leaf->op == OP_ACCUMULATE) leaf = leaf->inputs[0].node;
        if (strcmp(node_string(leaf, ATTR_of), name) != 0) continue;
        last = reference_value(ref, node_value(node, 0));
    }
    return last;
}

static void check_gradients(const OpCase *op_case, const Graph *graph, const Graph *backward) {
    Reference *forward = reference_create(graph->arena, graph);
    Reference *analytic = reference_create(graph->arena, backward);
    op_case_fill(op_case, graph, forward);
    op_case_fill(op_case, backward, analytic);
    reference_run(analytic);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *leaf = graph->nodes[n];
        if (leaf->op != OP_PARAM) continue;
        double *x = reference_value(forward, node_value(leaf, 0));
        const double *gradient = gradient_of(analytic, node_string(leaf, ATTR_name));
        /* With a sanitizer the numbers are in memory as they are without. */
        int64_t n_elements = type_elements(&leaf->types[0]);
        int64_t step = VARIANT_STEP > 1 && n_elements > 10 ? n_elements / 10 : 1;
        for (int64_t i = 0; i < n_elements; i += step) {
            double expected = central_difference(forward, &x[i]);
            double got = gradient ? gradient[i] : 0;
            double error = fabs(got - expected) / fmax(1, fabs(expected));
            CHECK(error <= GRADIENT_TOLERANCE, "operand %s element %d: %.12g, by differences %.12g",
                  node_string(leaf, ATTR_name), (int)i, got, expected);
        }
    }
    gradient_tested[op_case->op] = true;
}

/* Kernels */

static void note_dtypes(const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        tested_in[value_type(node->inputs[i])->dtype][node->op] = true;
    }
}

static void compare_all(const KernelRun *run, double tolerance, double floor_abs) {
    const Graph *graph = run->reference->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (OPS[node->op].flags & LEAF) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            if (run->overwritten[n * MAX_OUTPUTS + o]) continue;
            double error = kernel_run_error(run, node_value(node, o), floor_abs, false);
            CHECK(error <= tolerance, "%s, result %d: error %.3g", OPS[node->op].name, o, error);
        }
        kernel_tested[node->op] = true;
        note_dtypes(node);
    }
}

/* The reference's leaves become what the update made of them; `step` counts on.
 */
static void advance(Reference *ref, KernelRun *run, const Node *node) {
    ref->overwrite = false;
    for (int o = 0; o < node->n_outputs; o++) {
        int operand = op_alias(node, o);
        if (operand < 0) continue;
        size_t bytes = sizeof(double) * (size_t)type_elements(&node->types[o]);
        memcpy(reference_value(ref, node->inputs[operand]),
               reference_value(ref, node_value((Node *)node, o)), bytes);
    }
    int step = node->op == OP_ADAMW ? 6 : 4 + op_rule_states(node->op);
    if (step < 4) return;
    *reference_value(ref, node->inputs[step]) += 1;
    kernel_run_set_leaf(run, node->inputs[step]);
}

static void run_kernels(Reference *ref, int in_place, int n_steps, double tolerance,
                        double floor_abs) {
    KernelRun run;
    const Graph *graph = ref->graph;
    Diag *diag = diag_create();
    bool bound = kernel_run_create(&run, ref, in_place, diag);
    CHECK(bound, "%s", diag_text(diag));
    for (int step = 0; bound && step < n_steps; step++) {
        if (step) advance(ref, &run, graph->nodes[graph->n_nodes - 1]);
        reference_run(ref);
        CHECK(kernel_run_step(&run), "step %d: %s", step, comm_world_reason(run.world));
        compare_all(&run, tolerance, floor_abs);
    }
    kernel_run_destroy(&run);
    diag_destroy(diag);
}

/* The op alone: with memory of its own and in its operands', adding and
 * setting, training and not, later steps, another micro-batch. */
static void check_kernel(const OpCase *op_case, DType precision, Arena *arena, Diag *diag) {
    const Graph *graph = op_case_build(arena, op_case, precision, false, diag);
    CHECK(graph && graph_verify(graph, diag), "%s", diag_text(diag));
    if (!graph) return;
    const Node *node = graph->nodes[graph->n_nodes - 1];
    bool updates = op_alias(node, 0) >= 0 && !(OPS[node->op].flags & LINEAR);
    for (int in_place = -1; in_place < node->n_inputs && in_place < 8; in_place++) {
        if (in_place >= 0 && !op_may_reuse(node, in_place)) continue;
        for (int variant = 0; variant < 4; variant += VARIANT_STEP) {
            Reference *ref = reference_create(arena, graph);
            op_case_fill(op_case, graph, ref);
            ref->overwrite = variant & 1;
            ref->train = variant < 3;
            ref->seed = 0x123456789abcdef0u;
            ref->step = 3 + (uint64_t)variant;
            ref->micro = variant;
            ref->n_micro = 4;
            bool adds = node->op == OP_MATMUL || node->op == OP_EMBEDDING_GRAD;
            run_kernels(ref, in_place, updates && !adds ? 3 : 1, KERNEL_TOLERANCE, 0);
        }
    }
}

/* Every kernel of the backward graph, on operands as they come. */
static void check_graph_kernels(const OpCase *op_case, const Graph *graph, DType precision,
                                Diag *diag) {
    const Graph *expanded = planner_run_pass(graph->arena, graph, "expand", diag);
    CHECK(expanded, "%s", diag_text(diag));
    if (!expanded) return;
    Reference *ref = reference_create(graph->arena, expanded);
    op_case_fill(op_case, expanded, ref);
    run_kernels(ref, -1, 1, GRAPH_TOLERANCE[precision], GRAPH_FLOOR);
}

/* The coarsest dtype of a case's values. */
static DType coarsest(const OpCase *op_case, DType precision) {
    if (op_case->op == OP_TO_BF16 || op_case->op == OP_TO_UPPER ||
        (precision == DTYPE_F32 && op_case_says_low(op_case))) {
        return DTYPE_BF16;
    }
    return op_case->op == OP_TO_F16 && precision == DTYPE_F32 ? DTYPE_F16 : precision;
}

/* Attention with them has no kernel: `expand` replaces it. */
static bool has_sinks(const OpCase *op_case) {
    const char *last = strrchr(op_case->operands ? op_case->operands : "", ';');
    return op_case->op == OP_ATTENTION && last && strncmp(last, "; kv=2", 6) == 0 &&
           !strstr(last, "seq");
}

static void test_case(const OpCase *op_case, DType precision) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    if (has_gradient(op_case->op) && !is_late_product(op_case) && !op_case_is_integer(op_case) &&
        !hides_scores(op_case)) {
        check_begin(op_case_name(arena, op_case,
                                 arena_printf(arena, "%s gradients", dtype_name(precision))));
        const Graph *graph = op_case_build(arena, op_case, precision, true, diag);
        CHECK(graph, "%s", diag_text(diag));
        const Graph *backward =
            graph ? planner_run_pass(arena, graph, "differentiate", diag) : NULL;
        CHECK(backward, "%s", diag_text(diag));
        if (backward) {
            DType dtype = coarsest(op_case, precision);
            /* What is rounded has no slope to measure. */
            if (dtype == DTYPE_F32) check_gradients(op_case, graph, backward);
            check_begin(op_case_name(arena, op_case, "kernels of the gradients"));
            check_graph_kernels(op_case, backward, dtype, diag);
        }
    }
    if (OPS[op_case->op].flags & KERNEL && !has_sinks(op_case)) {
        check_begin(
            op_case_name(arena, op_case, arena_printf(arena, "%s kernel", dtype_name(precision))));
        check_kernel(op_case, precision, arena, diag);
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Messages are tested by test_ops_sharded. */
static void test_coverage(void) {
    for (int op = 0; op < N_OPS; op++) {
        char name[64];
        snprintf(name, sizeof(name), "%s has cases", OPS[op].name);
        check_begin(name);
        bool message = OPS[op].flags & COLLECTIVE || op == OP_SLICE;
        bool takes_low = OPS[op].flags & KERNEL && OPS[op].min_inputs > 0 && !message &&
                         op != OP_SUMSQ && op != OP_CLIP_SCALE && op != OP_LOSS_SCALE &&
                         op != OP_MUON_MOMENTUM && op != OP_LAMB_MOMENTS && op != OP_BALANCE &&
                         op != OP_LARGEST && op != OP_MAX_N && op != OP_SKIP_SPIKE &&
                         op != OP_EMA && op != OP_TOP && op != OP_TAKE && op != OP_PUT &&
                         op != OP_ROUTE && !op_reads_tokens((OpKind)op) && op != OP_NUMBER &&
                         op != OP_DEQUANTIZE && op != OP_WIDEN && op != OP_ROUND_BLOCKS &&
                         op != OP_RELATIVE_BIAS && op != OP_RELATIVE_BIAS_GRAD && op != OP_OF_PAIRS;
        CHECK(!has_gradient((OpKind)op) || gradient_tested[op] || op_is_cast((OpKind)op),
              "none for its gradient");
        CHECK(!(OPS[op].flags & KERNEL) || message || kernel_tested[op], "none for its kernel");
        CHECK(!takes_low || tested_in[DTYPE_BF16][op], "none of its kernel in bf16");
        CHECK(!takes_low || tested_in[DTYPE_F16][op], "none of its kernel in f16");
        CHECK(OPS[op].flags & (KERNEL | COMPOSITE | LEAF | EFFECT), "neither kernel nor leaf");
        check_end();
    }
}

/* Results without a gradient must say so, not drop it. */
static void test_no_gradient(void) {
    static const struct {
        OpCase op_case;
        int output;
        const char *expected;
    } CASES[] = {
        {{OP_PICK, "rows=3 vocab=7; #7 rows=3", "axis=vocab", 0, 0},
         0,
         "pick: has no gradient; use cross_entropy\n"},
        {{OP_LAYERNORM, "rows=3 cols=7; cols=7; cols=7", "axis=cols eps=1e-5", 0, 0},
         1,
         "layernorm: only its first result has a gradient\n"},
        {{OP_RMSNORM, "rows=3 cols=7; cols=7", "axis=cols eps=1e-5", 0, 0},
         1,
         "rmsnorm: only its first result has a gradient\n"},
        {{OP_ATTENTION,
          "batch=1 seq=4 kv=2 head=3; batch=1 seq=4 kv=2 head=3; "
          "batch=1 seq=4 kv=2 head=3",
          "seq=seq head=head causal=1 scale=1", 0, 0},
         1,
         "attention: only its first result has a gradient\n"},
        {{OP_MATMUL, "m=3 k=5; k=5 n=4; m=3 n=4", "over=k", 0, 0},
         0,
         "matmul: has no gradient with an accumulator or 'to': these forms belong to "
         "backward and update graphs\n"},
        {{OP_GELU_GRAD, "rows=3; rows=3", "", 0, 0},
         0,
         "gelu_grad: has no gradient: it belongs to backward and update "
         "graphs\n"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        check_begin(op_case_name(arena, &CASES[i].op_case, "has no gradient and says so"));
        Graph *graph = op_case_build(arena, &CASES[i].op_case, DTYPE_F32, false, diag);
        Value value = node_value(graph->nodes[graph->n_nodes - 1], CASES[i].output);
        const Type *type = value_type(value);
        Attr over = attr_axes(ATTR_over, type->axes, type->rank);
        Attr name = attr_string(ATTR_name, "loss");
        NodeSpec sum = {OP_REDUCE_SUM, &value, 1, &over, 1, .block = NO_BLOCK};
        Value total = node_value(graph_add(graph, &sum, diag), 0);
        NodeSpec output = {OP_OUTPUT, &total, 1, &name, 1, .block = NO_BLOCK};
        graph_add(graph, &output, diag);
        const Graph *backward = planner_run_pass(arena, graph, "differentiate", diag);
        CHECK(!backward, "differentiated");
        CHECK(strcmp(diag_text(diag), CASES[i].expected) == 0, "it says: %s", diag_text(diag));
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* A window: what it costs is what is seen, but for half of the longest row where causal (seq^2 / 2,
 * not seq (seq + 1) / 2, are counted without one); all positions or more are no window; none at all
 * is refused. */
static void check_window(int causal, int window) {
    enum { SEQ = 12, REST = 4 * 2 * 3 }; /* FLOPs of a pair and head, heads, numbers of a head */
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const OpCase op_case = {
        OP_ATTENTION,
        "batch=1 seq=12 kv=2 head=3; batch=1 seq=12 kv=2 head=3; "
        "batch=1 seq=12 kv=2 head=3",
        arena_printf(arena, "seq=seq head=head causal=%d window=%d scale=1", causal, window), 0, 0};
    int seen = 0;
    for (int i = 0; i < SEQ; i++) {
        for (int j = 0; j < SEQ; j++) seen += abs(i - j) < window && (!causal || j <= i);
    }
    check_begin(arena_printf(arena, "attention, window %d%s", window, causal ? ", causal" : ""));
    Graph *graph = op_case_build(arena, &op_case, DTYPE_F32, false, diag);
    if (window < 1) {
        CHECK(!graph &&
                  strcmp(diag_text(diag), "attention: a window of 0; it is at least 1\n") == 0,
              "it says: %s", diag_text(diag));
    } else {
        const Node *node = graph->nodes[graph->n_nodes - 1];
        Type inputs[3];
        for (int i = 0; i < 3; i++) inputs[i] = *value_type(node->inputs[i]);
        double flops = OPS[node->op].flops(node, inputs, node->types) / REST;
        double most = window < SEQ ? window : SEQ, counted = causal ? seen - most / 2 : seen;
        CHECK(fabs(flops - counted) < 1e-9, "counts %g pairs, not %g", flops, counted);
        CHECK(!node_attr(node, ATTR_window) == (window >= SEQ), "the attribute");
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_window(void) {
    static const int WINDOWS[] = {0, 1, 5, 11, 12, 100};
    for (int i = 0; i < 12; i++) check_window(i % 2, WINDOWS[i / 2]);
}

int main(void) {
    for (int i = 0; i < N_OP_CASES; i++) {
        const OpCase *op_case = &OP_CASES[i];
        test_case(op_case, DTYPE_F32);
        if (op_case_takes_low(op_case)) test_case(op_case, DTYPE_BF16);
        if (op_case_takes_low(op_case) || op_case_says_low(op_case)) test_case(op_case, DTYPE_F16);
    }
    test_no_gradient();
    test_window();
    test_coverage();
    return check_report();
}
