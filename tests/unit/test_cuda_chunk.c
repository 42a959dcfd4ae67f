/* CUDA kernels of linear attention by chunks, on tensor cores, through their binder and the
 * emulator, against float64, in bf16 and f16, both rules.
 *
 * Would catch: positions of the wrong chunk, tile or head; a state before or behind a chunk that is
 * not its neighbour's; pairs masked wrong, of one's own position above all; decays of another
 * position, or a document's that counts in the next; errors of positions that are not solved for;
 * sums over heads that miss a run; states too large for f16; results that depend on the order of
 * threads; a barrier too few.
 */
#include "runtime/cuda/bind_chunk.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/unit/cuda_check.h"

#include <math.h>

static bool launched[N_KERNELS];

typedef struct Shape {
    int batch, seq, groups, heads, keys, values;
    const char *decay; /* op_cases.h: what they are like */
    double size;       /* of keys and values; not 1: queries and gradients make up for it */
} Shape;

/* Of numbers that are rounded to 2^-9 before they are multiplied, two to four times one after the
 * other: the root of the mean squared error to that of the result, and the worst of them. A
 * position's decay is one sum of products that mostly cancel. */
typedef struct Tolerance {
    double mean, most;
} Tolerance;

static Tolerance tolerance(DType dtype, bool decay) {
    double finer = dtype == DTYPE_F16 ? 0.16 : 1;
    return decay ? (Tolerance){finer * 8e-3, finer * 4e-2}
                 : (Tolerance){finer * 5e-3, finer * 4e-2};
}

static const char *make_nodes(Arena *arena, const Shape *s, DType dtype, bool delta) {
    const char *in = "%%%d = input() {name=\"%s\"} : %s\n", *low = dtype_name(dtype);
    const char *rows = arena_printf(arena, "[batch=%d, seq=%d, kv=%d", s->batch, s->seq, s->groups);
    const char *q = arena_printf(arena, "%s%s, head=%d]", low, rows, s->keys);
    const char *v =
        arena_printf(arena, "%s%s, group=%d, value=%d]", low, rows, s->heads, s->values);
    const char *numbers = arena_printf(arena, "f32%s, group=%d]", rows, s->heads);
    const char *attrs = "{seq=seq, head=head, scale=0.5}", *text = "";
    const char *types[6] = {q, q, v, numbers, v, numbers};
    for (int i = 0; i < (delta ? 6 : 5); i++) {
        const char *like = i == 3 ? s->decay : i == 5 ? "+" : "";
        text = arena_printf(arena, "%s%s", text, arena_printf(arena, in, i, like, types[i]));
    }
    const char *write = delta ? ", %5" : "";
    int n = delta ? 6 : 5;
    text =
        arena_printf(arena, "%s%%%d%s = linear_attention(%%0, %%1, %%2, %%3%s) %s : %s%s%s\n", text,
                     n, delta ? ":2" : "", write, attrs, v, delta ? ", " : "", delta ? v : "");
    return arena_printf(arena,
                        "%s%%%d:4 = linear_attention_grad(%%0, %%1, %%2, %%4, %%3%s) %s : %s, %s, "
                        "%s, %s\n",
                        text, n + 1, write, attrs, q, q, v, numbers);
}

/* Keys as short as the models have them with the delta rule; a share to write below 1. */
static void scale_operands(const CudaFixture *f, const Shape *s, bool delta) {
    for (int n = 0; n < (delta ? 6 : 5); n++) {
        Node *leaf = f->graph->nodes[n];
        double *x = reference_value(f->reference, node_value(leaf, 0));
        double by = n == 3 ? 1 : n == 5 ? 0.5 : n == 1 && delta ? 1 / sqrt(s->keys) : 1;
        if (s->size != 1 && n != 3) by *= n == 1 || n == 2 ? s->size : 0.5 / s->size;
        for (int64_t i = 0; i < type_elements(&leaf->types[0]); i++) {
            x[i] = reference_rounded(leaf->types[0].dtype, x[i] * by);
        }
    }
}

/* Is number i of the decays one to nothing? */
static bool begins(const CudaKernelRun *run, int64_t i) {
    enum { DECAY = 3 };
    const Reference *ref = run->base.reference;
    return expf((float)reference_value(ref, node_value(ref->graph->nodes[DECAY], 0))[i]) == 0;
}

static void compare_result(const CudaKernelRun *run, Node *node, int result, DType dtype) {
    static const char *const NAMES[2][4] = {{"o", "errors"}, {"dq", "dk", "du", "ddecay"}};
    bool gradient = node->op == OP_LINEAR_ATTENTION_GRAD;
    Value value = node_value(node, result);
    CudaError error = cuda_result_error(run, value, 1e-30);
    Tolerance allowed = tolerance(dtype, result == 3);
    if (getenv("TEST_SHOW"))
        printf("  %-6s %.2g %.2g\n", NAMES[gradient][result], error.mean, error.most);
    CHECK(error.mean <= allowed.mean && error.most <= allowed.most, "%s: error %.3g, at most %.3g",
          NAMES[gradient][result], error.mean, error.most);
    const float *x = run->base.ranks[0].buffers[node->id * MAX_OUTPUTS + result];
    for (int64_t i = 0; result == 3 && i < type_elements(value_type(value)); i++)
        CHECK(!begins(run, i) || x[i] == 0, "a decay to nothing has gradient %g", (double)x[i]);
}

static void check_shape(const Shape *s, DType dtype, bool delta) {
    enum { ORDERS = 2 };
    CudaFixture f;
    CudaKernelRun runs[ORDERS];
    Arena *arena = arena_create();
    int n = 0;
    check_begin(arena_printf(arena, "%s%s, %d x %d, %d x %d, %d x %d, decays %s, operands %g",
                             dtype_name(dtype), delta ? ", the delta rule" : "", s->batch, s->seq,
                             s->groups, s->heads, s->keys, s->values, s->decay, s->size));
    if (getenv("TEST_SHOW")) printf("%s\n", check_case_name);
    bool bound = cuda_fixture_create(&f, NULL, make_nodes(arena, s, dtype, delta));
    if (bound) {
        scale_operands(&f, s, delta);
        reference_run(f.reference);
    }
    for (; bound && n < (VARIANT_STEP > 1 ? 1 : ORDERS); n++) {
        bound = cuda_kernel_run_create(&runs[n], f.reference, -1, NULL, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        if (!bound) continue;
        runs[n].order = n ? 3 : 0;
        bool good = cuda_kernel_run_step(&runs[n]);
        CHECK(good, "%s", cuda_kernel_run_reason(&runs[n]));
        cuda_note_launches(&runs[n], launched);
        for (int i = 0; good && n == 0 && i < f.graph->n_nodes; i++) {
            Node *node = f.graph->nodes[i];
            if (OPS[node->op].flags & LEAF) continue;
            for (int o = 0; o < node->n_outputs; o++) compare_result(&runs[0], node, o, dtype);
        }
        if (good && n > 0) CHECK(cuda_same_bits(&runs[0], &runs[n]), "depends on threads' order");
    }
    for (int i = 0; i < n; i++) cuda_kernel_run_destroy(&runs[i]);
    check_end();
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
}

/* Decays "-" have documents of about 16 positions, with boundaries anywhere in a chunk. */
static void test_shapes(void) {
    static const Shape SHAPES[] = {
        /* less than a chunk, less than a fragment; a chunk and one; several, and the last short */
        {2, 9, 2, 3, 24, 16, "-", 1},
        {1, 65, 1, 2, 64, 72, "-", 1},
        {1, 130, 1, 1, 72, 8, ":-0.01", 1},
    };
    /* In f16, whose tolerance is closer. */
    static const Shape DECAYS[] = {
        {1, 1, 1, 1, 16, 8, "-", 1},
        {2, 150, 1, 1, 16, 16, ":-0.03", 1},
        /* nothing decays; strong decays; every position a document; and decays that grow */
        {1, 130, 1, 1, 16, 16, ":0", 1},
        {1, 130, 1, 1, 16, 16, ":-20", 1},
        {1, 70, 1, 1, 16, 16, ":-1000", 1},
        {1, 70, 1, 1, 16, 16, ":0.02", 1},
        /* states beyond f16's numbers, and far below 1, without the delta rule */
        {1, 200, 1, 1, 16, 16, ":0", 100},
        {1, 130, 1, 1, 16, 16, ":-0.01", 0.0005},
        /* more keys than the delta rule's */
        {1, 66, 1, 1, 256, 16, "-", 1},
    };
    for (int i = 0; i < (int)(sizeof(SHAPES) / sizeof(*SHAPES)); i++) {
        for (int delta = 0; delta < 2; delta++) {
            check_shape(&SHAPES[i], DTYPE_BF16, delta);
            check_shape(&SHAPES[i], DTYPE_F16, delta);
        }
    }
    /* Decays are the same arithmetic in PTX, which takes three times as long. */
    int first = getenv("PERILUNE_TEST_PTX") ? 6 : 0;
    for (int i = first; i < (int)(sizeof(DECAYS) / sizeof(*DECAYS)); i++) {
        const Shape *s = &DECAYS[i];
        check_shape(s, DTYPE_F16, false);
        if (s->size == 1 && s->keys <= LINEAR_ATTENTION_CHUNK_DELTA_KEYS)
            check_shape(s, DTYPE_F16, true);
    }
    check_shape(&DECAYS[sizeof(DECAYS) / sizeof(*DECAYS) - 1], DTYPE_BF16, false);
}

/* Sequences that come in parts: two and one, and where more is kept of each, each alone. */
static void test_parts(void) {
    const Shape s = {3, 66, 1, 2, 16, 8, "-", 1};
    int64_t all = cuda_chunk_part_bytes, sequence = 2L * 2 * 2 * 16 * 8;
    for (int delta = 0; delta < 2; delta++) {
        cuda_chunk_part_bytes = 2 * sequence;
        check_shape(&s, DTYPE_F16, delta);
    }
    cuda_chunk_part_bytes = all;
}

/* However many sequences a batch has, what a part has of them fills the device, and stays within
 * its bytes: Mamba-2 2.7B's gradient, and a delta rule whose sums outweigh its states. */
static void test_division(void) {
    enum { DECAY = 4, SEQ = 4096 };
    check_begin("parts of batches fill a device and stay within their bytes");
    for (int64_t batch = 1; batch <= 64; batch *= 4) {
        Node node = {.op = OP_LINEAR_ATTENTION_GRAD, .n_inputs = DECAY + 1};
        Type mamba[6] = {[0] = {.dtype = DTYPE_BF16, .rank = 3, .dims = {batch, SEQ, 128}},
                         [2] = {.dtype = DTYPE_BF16, .rank = 4, .dims = {batch, SEQ, 80, 64}}};
        ChunkDivision of = linear_attention_divide(&node, mamba, LINEAR_ATTENTION_PART_BYTES);
        CHECK(of.sequences == (batch < 3 ? batch : 3) &&
                  of.sequences * of.runs * SEQ / LINEAR_CHUNK >= 1024,
              "batch %d: %d sequences, %d runs", (int)batch, (int)of.sequences, (int)of.runs);
        node.n_inputs = DECAY + 2;
        Type delta[6] = {[0] = {.dtype = DTYPE_BF16, .rank = 4, .dims = {batch, SEQ, 16, 32}},
                         [2] = {.dtype = DTYPE_BF16, .rank = 4, .dims = {batch, SEQ, 16, 32}}};
        const Type numbers = {.dtype = DTYPE_F32, .rank = 3, .dims = {batch, SEQ, 16}};
        delta[1] = delta[0], delta[3] = delta[2], delta[4] = delta[5] = numbers;
        int64_t bytes = cuda_chunk_workspace_bytes(&node, delta);
        CHECK(bytes <= LINEAR_ATTENTION_PART_BYTES + (1 << 20), "batch %d: %lld bytes", (int)batch,
              (long long)bytes);
    }
    check_end();
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_division();
    test_shapes();
    test_parts();
    cuda_check_coverage(launched, KERNEL_linear_chunk_states_64_bf16, KERNEL_linear_chunk_decays);
    return check_report();
}
