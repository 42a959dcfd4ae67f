/* The pass fuse on random graphs of elementwise nodes and products in three phases: everything else
 * must read the very numbers that it read before (in float64 the order of operations is all there
 * is), and no fused node may have a result that nothing reads. Catches a group that runs too early
 * or too late, and a copy of other operands than its original's; tests/golden/passes/fuse*.ir say
 * what joins. */
#include "planner/planner.h"
#include "tests/support/reference_eval.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_VALUES = 64, N_LEAVES = 5, N_SHAPES = 2 };

typedef struct Maker {
    Graph *graph;
    Diag *diag;
    unsigned seed;
    Phase phase;
    int block;
    int n_values[N_SHAPES];
    Value values[N_SHAPES][MOST_VALUES]; /* [rows, cols] and [rows, to] */
    Value weights[N_SHAPES];             /* from one to the other */
    int axes[3];                         /* rows, cols, to */
} Maker;

static int pick(Maker *m, int below) {
    return rand_r(&m->seed) % below;
}

static Value add(Maker *m, OpKind op, const Value *inputs, int n_inputs, const Attr *attrs,
                 int n_attrs, const Type *type) {
    Node *node = graph_add(m->graph,
                           &(NodeSpec){.op = op,
                                       .inputs = inputs,
                                       .n_inputs = n_inputs,
                                       .attrs = attrs,
                                       .n_attrs = n_attrs,
                                       .type = type,
                                       .phase = m->phase,
                                       .block = m->block},
                           m->diag);
    if (!node) BUG("%s", diag_text(m->diag));
    return node_value(node, 0);
}

static Value add_leaf(Maker *m, int number, int first, int last) {
    static const int64_t SIZES[] = {3, 4, 5};
    Attr attrs[3] = {attr_string(ATTR_name, arena_printf(m->graph->arena, "leaf%d", number)),
                     attr_string(ATTR_init, "normal"), attr_float(ATTR_decay, 1)};
    Type type = {.dtype = DTYPE_F32, .rank = 2};
    int axes[2] = {first, last};
    for (int i = 0; i < 2; i++) {
        type.axes[i] = m->axes[axes[i]];
        type.dims[i] = SIZES[axes[i]];
    }
    return add(m, OP_PARAM, NULL, 0, attrs, 3, &type);
}

/* Of the last few more often: long chains. */
static Value pick_value(Maker *m, int shape) {
    int n = m->n_values[shape], few = pick(m, 2) && n > 6 ? 6 : n;
    return m->values[shape][n - 1 - pick(m, few)];
}

static void add_elementwise(Maker *m, int shape) {
    static const OpKind OPERATIONS[] = {OP_ADD,  OP_MUL,     OP_SUB,       OP_SILU,
                                        OP_TANH, OP_SIGMOID, OP_SILU_GRAD, OP_MAXIMUM_GRAD,
                                        OP_NEG,  OP_GELU,    OP_GELU_GRAD, OP_DROPOUT};
    OpKind op = OPERATIONS[pick(m, sizeof(OPERATIONS) / sizeof(OPERATIONS[0]))];
    Value inputs[3];
    Attr attrs[2] = {attr_float(ATTR_p, 0.25), attr_int(ATTR_key, pick(m, 100))};
    for (int i = 0; i < OPS[op].min_inputs; i++) inputs[i] = pick_value(m, shape);
    m->values[shape][m->n_values[shape]++] =
        add(m, op, inputs, OPS[op].min_inputs, attrs, op == OP_DROPOUT ? 2 : 0, NULL);
}

static void add_product(Maker *m, int shape) {
    Attr over = attr_axes(ATTR_over, &m->axes[1 + shape], 1);
    Value inputs[2] = {pick_value(m, shape), m->weights[shape]};
    m->values[1 - shape][m->n_values[1 - shape]++] = add(m, OP_MATMUL, inputs, 2, &over, 1, NULL);
}

/* What nothing reads is summed, in the last phase. */
static void add_sums(Maker *m) {
    int *uses = graph_count_uses(m->graph, m->graph->arena);
    int count = m->graph->n_nodes;
    for (int n = 0; n < count; n++) {
        Node *node = m->graph->nodes[n];
        if (uses[n * MAX_OUTPUTS]) continue;
        Attr over = attr_axes(ATTR_over, node->types[0].axes, 2);
        Value input = node_value(node, 0);
        add(m, OP_REDUCE_SUM, &input, 1, &over, 1, NULL);
    }
}

static Graph *make_graph(Arena *arena, unsigned seed, Diag *diag) {
    static const char *const AXES[] = {"rows", "cols", "to"};
    Maker m = {.graph = graph_create(arena, "random"), .diag = diag, .seed = seed};
    m.block = NO_BLOCK;
    for (int i = 0; i < 3; i++) m.axes[i] = graph_axis(m.graph, AXES[i], (int)strlen(AXES[i]));
    for (int i = 0; i < N_LEAVES; i++) {
        int shape = i % N_SHAPES;
        m.values[shape][m.n_values[shape]++] = add_leaf(&m, i, 0, 1 + shape);
    }
    m.weights[0] = add_leaf(&m, N_LEAVES, 1, 2);
    m.weights[1] = add_leaf(&m, N_LEAVES + 1, 2, 1);
    for (Phase phase = PHASE_FORWARD; phase <= PHASE_WEIGHTS; phase++) {
        m.phase = phase;
        for (int i = 4 + pick(&m, 14); i > 0; i--) {
            int shape = pick(&m, 4) == 0;
            if (pick(&m, 6) == 0)
                add_product(&m, shape);
            else
                add_elementwise(&m, shape);
        }
    }
    add_sums(&m);
    return m.graph;
}

static Reference *evaluate(Arena *arena, const Graph *graph) {
    Reference *ref = reference_create(arena, graph);
    unsigned seed = 7;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        double *x = reference_value(ref, node_value((Node *)node, 0));
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            x[i] = rand_r(&seed) / (double)RAND_MAX - 0.5;
        }
    }
    reference_run(ref);
    return ref;
}

/* The next node from *at on that is a product or a sum; NULL: none. */
static Node *next_reader(const Graph *graph, int *at) {
    while (*at < graph->n_nodes) {
        Node *node = graph->nodes[(*at)++];
        if (node->op == OP_MATMUL || node->op == OP_REDUCE_SUM) return node;
    }
    return NULL;
}

static int count_unread(const Graph *graph, Arena *arena) {
    int *uses = graph_count_uses(graph, arena), count = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int o = 0; node->op == OP_FUSED && o < node->n_outputs; o++) {
            count += uses[n * MAX_OUTPUTS + o] == 0;
        }
    }
    return count;
}

static bool has_copies(const Graph *before, const Graph *after) {
    int n[2] = {0};
    const Graph *both[] = {before, after};
    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < both[g]->n_nodes; i++) {
            const Node *node = both[g]->nodes[i];
            n[g] += OPS[node->op].flags & ELEMENTWISE_BIT ? 1 : 0;
            const char *text = node->op == OP_FUSED ? node_string(node, ATTR_program) : "";
            while ((text = strchr(text, '='))) text++, n[g]++;
        }
    }
    return n[1] > n[0];
}

static bool try_graph(unsigned seed) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *before = make_graph(arena, seed, diag);
    const Graph *after = planner_run_pass(arena, before, "fuse", diag);
    CHECK(after, "seed %u: %s", seed, diag_text(diag));
    bool copies = after && has_copies(before, after);
    if (after) {
        Reference *expected = evaluate(arena, before), *got = evaluate(arena, after);
        int i = 0, k = 0;
        for (Node *a, *b; (a = next_reader(before, &i));) {
            b = next_reader(after, &k);
            size_t bytes = (size_t)type_elements(&a->types[0]) * sizeof(double);
            CHECK(b && !memcmp(reference_value(expected, node_value(a, 0)),
                               reference_value(got, node_value(b, 0)), bytes),
                  "seed %u: %%%d reads other numbers than before", seed, a->id);
            if (!b) break;
        }
        CHECK(count_unread(after, arena) == 0, "seed %u: results that nothing reads", seed);
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return copies;
}

/* x + w + w + ... */
static Graph *make_sum(Arena *arena, int n, Diag *diag) {
    Maker m = {.graph = graph_create(arena, "sum"), .diag = diag, .block = NO_BLOCK};
    m.axes[0] = graph_axis(m.graph, "rows", 4);
    m.axes[1] = graph_axis(m.graph, "cols", 4);
    Value sum = add_leaf(&m, 0, 0, 1), term = add_leaf(&m, 1, 0, 1);
    for (int i = 0; i < n; i++) sum = add(&m, OP_ADD, (Value[]){sum, term}, 2, NULL, 0, NULL);
    m.values[0][m.n_values[0]++] = sum;
    add_sums(&m);
    return m.graph;
}

/* Each of them reads what all others read: looking at all readers from each is a square, which
 * takes half a minute of the processor. */
static void test_many_readers(void) {
    enum { N = 40000 / VARIANT_STEP };
    check_begin("a value that tens of thousands of nodes read");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const Graph *before = make_sum(arena, N, diag);
    clock_t begun = clock();
    const Graph *after = planner_run_pass(arena, before, "fuse", diag);
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    CHECK(after, "%s", diag_text(diag));
    CHECK(after && after->n_nodes < N / 4, "%d nodes", after ? after->n_nodes : 0);
    CHECK(seconds < 8, "%.1f s of the processor", seconds);
    if (getenv("SHOW_TIMES")) printf("# %.2f s of the processor\n", seconds);
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    int n_rounds = (getenv("TEST_LONG") ? 30000 : 2000) / VARIANT_STEP, n_copied = 0;
    check_begin("random graphs give the same numbers, fused");
    for (int i = 0; i < n_rounds; i++) n_copied += try_graph(1000 + (unsigned)i);
    CHECK(n_copied > n_rounds / 50, "%d of %d have copies", n_copied, n_rounds);
    printf("note: %d of %d graphs compute something again\n", n_copied, n_rounds);
    test_many_readers();
    return check_report();
}
