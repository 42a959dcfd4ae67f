/* CUDA kernels of attention and its gradient, through their binders and the emulator, against
 * float64.
 *
 * Would catch: fragments, swizzles or buffers mixed up, a mask off by one or missing in a tile,
 * rows and keys past the end counted, a group's heads taken for positions, heads that do not fill
 * their tile, a maximum or sum of the running softmax not carried over, a row that sees nothing of
 * a tile, a tile of a window left out, a workspace too small, results that depend on the order of
 * threads or blocks, or on the place in the batch. Shapes that have kernels on wgmma, too, are
 * computed by both sets. Of the gradient in one pass: sums of dq of other rows, keys or columns,
 * blocks that do not wait for each other, a turn that is not passed on. Within documents:
 * test_cuda_documents.
 */
#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/emulate/emulate.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

#include <math.h>

typedef struct Shape {
    int batch, seq, kv_heads, group, head;
    bool causal;
    float scale; /* 0: 1 / sqrt(head) */
    DType dtype;
    int window; /* 0: none */
    float softcap;
    int values; /* numbers of a head of v and o; 0: head */
} Shape;

static bool launched[N_KERNELS];

/* Of probabilities, in all shapes until it is another. */
static double drop_p;
static bool evaluates; /* nothing is dropped then, by the same kernels */

/* What a result may be off by, as a share of its root mean square.
 *
 * f32: sums of up to `head` and `seq` terms, and exponents of scores: a few roundings of 6e-8.
 * bf16: operands are exact and sums are f32, so lse is as good as in f32. Weights, their gradients
 * and results are rounded, each by a root mean square of 2^-9 / sqrt(3) = 1.1e-3 of its own size,
 * and delta is the difference of such numbers: a few times that where terms cancel. The worst of
 * many elements is several times as far off, and the first rows of a causal softmax are several
 * times as large as most, of long sequences more so. f16: 2^-12,
 * an eighth, and a little more for peaked weights, which bf16 rounds to one. */
typedef struct Tolerance {
    double mean, most;
} Tolerance;

static Tolerance tolerance(const Shape *s, DType dtype, bool gradient) {
    double finer = s->dtype == DTYPE_F16 ? 0.16 : 1;
    if (dtype == DTYPE_F32) return (Tolerance){2e-6, 2e-5};
    double most = s->seq > 150 ? 1.2e-1 : 6e-2;
    return gradient ? (Tolerance){finer * 5e-3, finer * most}
                    : (Tolerance){finer * 3e-3, finer * 5e-2};
}

/* Of about half of the shapes rows' largest scores are asked for: maxima then do not lag. */
static bool asks_largest(const Shape *s) {
    return s->seq % 4 < 2;
}

/* q, k, v and the gradient of o; attention; its gradient. */
static const char *make_nodes(Arena *arena, const Shape *s, const char *batch, const char *heads,
                              const char *queries) {
    const char *dtype = dtype_name(s->dtype);
    const char *rows = arena_printf(arena, "[batch=%d%s, seq=%d%s, kv=%d%s, group=%d", s->batch,
                                    batch, s->seq, queries, s->kv_heads, heads, s->group);
    const char *q = arena_printf(arena, "%s%s, head=%d]", dtype, rows, s->head);
    const char *k = arena_printf(arena, "%s[batch=%d%s, seq=%d, kv=%d%s, head=%d]", dtype, s->batch,
                                 batch, s->seq, s->kv_heads, heads, s->head);
    const char *value = s->values ? arena_printf(arena, "value=%d", s->values)
                                  : arena_printf(arena, "head=%d", s->head);
    const char *o = arena_printf(arena, "%s%s, %s]", dtype, rows, value);
    const char *v = arena_printf(arena, "%s[batch=%d%s, seq=%d, kv=%d%s, %s]", dtype, s->batch,
                                 batch, s->seq, s->kv_heads, heads, value);
    double scale = s->scale != 0 ? (double)s->scale : 1 / sqrt(s->head);
    const char *window = s->window ? arena_printf(arena, "window=%d, ", s->window) : "";
    const char *softcap =
        s->softcap > 0 ? arena_printf(arena, ", softcap=%.9g", (double)s->softcap) : "";
    const char *drop = drop_p > 0 ? arena_printf(arena, ", p=%.9g, key=6", drop_p) : "";
    const char *attrs = arena_printf(arena, "{seq=seq, head=head, causal=%d, %sscale=%.9g%s%s}",
                                     s->causal, window, scale, softcap, drop);
    const char *leaf = "%%%d = param() {name=\"%s\", init=\"zeros\", decay=1} : %s\n";
    const char *leaves = arena_printf(
        arena, "%s%s%s%s", arena_printf(arena, leaf, 0, "", q), arena_printf(arena, leaf, 1, "", k),
        arena_printf(arena, leaf, 2, "", v), arena_printf(arena, leaf, 3, "", o));
    const char *sum = *queries ? "~sum(c)" : "", *lse = arena_printf(arena, "f32%s]", rows);
    const char *forward = attrs;
    if (asks_largest(s)) {
        forward = arena_printf(arena, "%.*s, largest=1}", (int)strlen(attrs) - 1, attrs);
        lse = arena_printf(arena, "%s, %s", lse, lse);
    }
    return arena_printf(arena,
                        "%s%%4:%d = attention(%%0, %%1, %%2) %s : %s, %s\n"
                        "%%5:3 = attention_grad(%%0, %%1, %%2, %%4, %%4.1, %%3) %s : %s, %s%s, "
                        "%s%s\n",
                        leaves, asks_largest(s) ? 3 : 2, forward, o, lse, attrs, q, k, sum, v, sum);
}

static void compare_result(const CudaKernelRun *run, const Shape *s, int n, int result) {
    static const char *const NAMES[2][3] = {{"o", "lse", "largest"}, {"dq", "dk", "dv"}};
    Node *node = run->base.reference->graph->nodes[n];
    /* One key's softmax is constant: gradients are zero but for rounding. */
    CudaError error = cuda_result_error(run, node_value(node, result), 1e-3);
    Tolerance allowed = tolerance(s, node->types[result].dtype, n == 5);
    CHECK(error.mean <= allowed.mean && error.most <= allowed.most, "%s: error %.3g, at most %.3g",
          NAMES[n - 4][result], error.mean, error.most);
    if (getenv("TEST_SHOW"))
        printf("  %-4s %.2g %.2g\n", NAMES[n - 4][result], error.mean, error.most);
}

static void compare(const CudaKernelRun *run, const Shape *s) {
    for (int n = 4; n <= 5; n++) {
        for (int i = 0; i < run->base.reference->graph->nodes[n]->n_outputs; i++) {
            compare_result(run, s, n, i);
        }
    }
}

/* The same numbers in every batch row: the results' bits must be, too. */
static void copy_batches(const CudaFixture *f, int batch) {
    for (int n = 0; n < 4; n++) {
        Node *leaf = f->graph->nodes[n];
        double *values = reference_value(f->reference, node_value(leaf, 0));
        int64_t each = type_elements(&leaf->types[0]) / batch;
        for (int b = 1; b < batch; b++) {
            memcpy(values + b * each, values, (size_t)each * sizeof(*values));
        }
    }
}

static void compare_batches(const CudaKernelRun *run, int batch) {
    for (int n = 4; n <= 5; n++) {
        const Node *node = run->base.reference->graph->nodes[n];
        for (int i = 0; i < node->n_outputs; i++) {
            const char *at = run->base.ranks[0].buffers[n * MAX_OUTPUTS + i];
            size_t each = (size_t)type_elements(&node->types[i]) / (size_t)batch *
                          (size_t)dtype_bytes(node->types[i].dtype);
            for (int b = 1; b < batch; b++) {
                CHECK(memcmp(at, at + (size_t)b * each, each) == 0,
                      "result %d of node %d depends "
                      "on the batch row",
                      i, n);
            }
        }
    }
}

static AttentionKernels use_wgmma(void *user, const AttentionCommand *attention) {
    (void)user, (void)attention;
    return ATTENTION_WGMMA;
}

static AttentionKernels use_joint(void *user, const AttentionCommand *attention) {
    (void)user;
    bool joint = cuda_attention_has_joint(&attention->shape, attention->workspace_bytes);
    return joint ? ATTENTION_JOINT : ATTENTION_WGMMA;
}

static const AttentionCheck USE_WGMMA = {.choose = use_wgmma}, USE_JOINT = {.choose = use_joint};
/* On mma.sync, or without tensor cores; on wgmma. */
enum { ON_MMA, ON_WGMMA, N_SETS };
static const CudaRunHooks HOOKS[N_SETS] = {{0}, {.attention = &USE_WGMMA}};
static const CudaRunHooks JOINT = {.attention = &USE_JOINT};

static const char *const WITH[N_SETS] = {"", ", on wgmma"};

static bool has_set(int set, const Shape *s) {
    AttentionShape shape = {.dtype = s->dtype, .head = s->head, .values = s->values};
    shape.scale = s->scale != 0 ? s->scale : 1;
    shape.softcap = s->softcap;
    return set == ON_MMA || cuda_attention_has_wgmma(&shape);
}

/* Blocks that attention_paired_* is launched with at most: then each takes several tiles of rows.
 * 0: as many as the binder says. */
static uint32_t most_blocks;

static void limit_blocks(CudaKernelRun *run) {
    for (int i = 0; most_blocks && i < run->lists[0].count; i++) {
        Command *command = &run->lists[0].items[i];
        if (command->kind != COMMAND_LAUNCH || command->launch.generated) continue;
        bool paired = strstr(KERNELS[command->launch.kernel].name, "_paired_");
        if (paired && command->launch.grid.x > most_blocks) command->launch.grid.x = most_blocks;
    }
}

/* Two orders of threads and blocks. Returns which kernels were launched, until the next call. */
static const bool *check_on(const Shape *s, const CudaRunHooks *hooks, const char *with) {
    static bool here[N_KERNELS];
    CudaFixture f;
    CudaKernelRun runs[2];
    Arena *arena = arena_create();
    int n = 0;
    check_begin(arena_printf(
        arena, "%s, batch %d, seq %d, kv %d, group %d, head %d%s%s%s%s%s", dtype_name(s->dtype),
        s->batch, s->seq, s->kv_heads, s->group, s->head, s->causal ? ", causal" : "",
        s->window ? arena_printf(arena, ", window %d", s->window) : "",
        s->scale != 0 ? arena_printf(arena, ", scale %g", (double)s->scale) : "",
        s->softcap > 0 ? arena_printf(arena, ", soft cap %g", (double)s->softcap) : "", with));
    memset(here, 0, sizeof(here));
    bool bound = cuda_fixture_create(&f, NULL, make_nodes(arena, s, "", "", ""));
    if (bound) {
        copy_batches(&f, s->batch);
        f.reference->seed = UINT64_C(0x123456789abcdef), f.reference->step = 3;
        f.reference->train = !evaluates;
        reference_run(f.reference);
    }
    for (; bound && n < 2; n++) {
        bound = cuda_kernel_run_create(&runs[n], f.reference, -1, hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        if (!bound) continue;
        limit_blocks(&runs[n]);
        runs[n].order = n ? 3 : 0;
        bool good = cuda_kernel_run_step(&runs[n]);
        CHECK(good, "%s", cuda_kernel_run_reason(&runs[n]));
        cuda_note_launches(&runs[n], launched);
        cuda_note_launches(&runs[n], here);
        if (good && n == 0) {
            compare(&runs[0], s);
            if (drop_p == 0) compare_batches(&runs[0], s->batch);
        }
        if (good && n) CHECK(cuda_same_bits(&runs[0], &runs[1]), "depends on threads' order");
    }
    for (int i = 0; i < n; i++) cuda_kernel_run_destroy(&runs[i]);
    check_end();
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
    return here;
}

static void check_shape(const Shape *s, int set) {
    check_on(s, &HOOKS[set], WITH[set]);
}

/* Of few shapes, every other one of the kernels that have most. */
static bool left_out(size_t i, const Shape *s) {
    return cuda_few_shapes() && i % 2 && s->dtype == DTYPE_BF16 && s->head <= 128;
}

/* Tiles are of 128 rows or keys, passed over in steps of 64 (or 32; on wgmma of 128, with long
 * heads); of 32 without tensor cores.
 * On wgmma those of the shapes that have kernels there. */
static void test_shapes(int set) {
    static const Shape SHAPES[] = {
        /* one position; less than a fragment; a tile, and one more; two; two and a half */
        {1, 1, 1, 1, 8, true, 0, DTYPE_BF16, 0, 0, 0},
        {2, 7, 2, 1, 16, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 64, 1, 1, 32, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 65, 2, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 130, 1, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {2, 140, 1, 1, 64, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 200, 1, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 300, 1, 1, 128, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 65, 1, 1, 80, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 31, 2, 1, 72, false, 0, DTYPE_BF16, 0, 0, 0},
        /* groups: powers of two and not; rows of several heads in a tile, and a tile in a head */
        {1, 65, 1, 4, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {2, 7, 2, 4, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 70, 2, 3, 32, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 33, 1, 7, 8, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 3, 1, 64, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        /* peaked: maxima grow from tile to tile, and weights vanish */
        {1, 150, 1, 1, 64, true, 3, DTYPE_BF16, 0, 0, 0},
        /* without tensor cores: odd heads, scales that are not positive */
        {1, 37, 2, 2, 12, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 33, 1, 1, 1, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 70, 1, 2, 64, true, -0.2f, DTYPE_BF16, 0, 0, 0},
        {1, 1, 1, 1, 8, true, 0, DTYPE_F32, 0, 0, 0},
        {2, 7, 2, 4, 16, true, 0, DTYPE_F32, 0, 0, 0},
        {1, 65, 2, 1, 32, false, 0, DTYPE_F32, 0, 0, 0},
        {1, 130, 1, 1, 64, true, 0, DTYPE_F32, 0, 0, 0},
        {1, 64, 1, 4, 64, true, 0, DTYPE_F32, 0, 0, 0},
        {2, 33, 1, 3, 80, false, 0, DTYPE_F32, 0, 0, 0},
        {1, 100, 1, 1, 128, true, 0, DTYPE_F32, 0, 0, 0},
        {1, 35, 1, 1, 255, true, 0, DTYPE_F32, 0, 0, 0},
        {1, 40, 1, 2, 13, true, -0.5f, DTYPE_F32, 0, 0, 0},
        {1, 100, 1, 1, 16, true, 4, DTYPE_F32, 0, 0, 0},
        /* f16: each of its kernels */
        {2, 65, 1, 1, 32, true, 0, DTYPE_F16, 0, 0, 0},
        {1, 70, 2, 3, 64, true, 0, DTYPE_F16, 0, 0, 0},
        {1, 150, 1, 1, 64, true, 3, DTYPE_F16, 0, 0, 0},
        {1, 300, 1, 1, 128, true, 1, DTYPE_F16, 0, 0, 0},
        {1, 140, 1, 1, 64, false, 0, DTYPE_F16, 0, 0, 0},
        {1, 37, 2, 2, 12, true, 0, DTYPE_F16, 0, 0, 0},
        /* Windows: of one key; shorter than a tile, longer, of all but one; blocks that begin and
         * end within a tile, groups, peaked, both sides. */
        {2, 70, 1, 1, 32, true, 0, DTYPE_BF16, 1, 0, 0},
        {1, 290, 1, 1, 64, true, 0, DTYPE_BF16, 40, 0, 0},
        {1, 260, 1, 1, 40, true, 2, DTYPE_BF16, 150, 0, 0},
        {1, 131, 1, 1, 32, true, 0, DTYPE_BF16, 130, 0, 0},
        {1, 90, 2, 3, 32, true, 0, DTYPE_BF16, 33, 0, 0},
        {1, 50, 1, 7, 48, true, 0, DTYPE_BF16, 20, 0, 0},
        {1, 260, 1, 1, 128, true, 0, DTYPE_BF16, 70, 0, 0},
        {1, 70, 1, 4, 128, true, 0, DTYPE_F16, 30, 0, 0},
        {1, 260, 1, 1, 64, false, 0, DTYPE_BF16, 30, 0, 0},
        {1, 300, 1, 1, 128, false, 0, DTYPE_F16, 20, 0, 0},
        {1, 60, 1, 5, 40, false, 0, DTYPE_BF16, 17, 0, 0},
        {1, 110, 1, 2, 16, true, 0, DTYPE_F32, 35, 0, 0},
        {2, 70, 1, 3, 12, false, 0, DTYPE_F32, 5, 0, 0},
        {1, 100, 1, 1, 13, true, -0.5f, DTYPE_F16, 64, 0, 0},
        /* Soft caps that bite and that hardly do; with windows; each way of the gradient */
        {1, 140, 1, 1, 64, true, 0.5f, DTYPE_BF16, 0, 3, 0},
        {1, 70, 1, 2, 128, true, 0, DTYPE_BF16, 0, 50, 0},
        {1, 66, 1, 1, 32, false, 1, DTYPE_F16, 20, 1.5f, 0},
        {1, 60, 1, 2, 20, true, -1, DTYPE_F32, 25, 2, 0},
        /* rows that see nothing of the first tile of keys, and a high cap */
        {1, 130, 1, 2, 64, true, 0, DTYPE_BF16, 64, 50, 0},
        /* Values' heads of another size, shorter and longer */
        {2, 70, 2, 1, 24, true, 0, DTYPE_F32, 0, 0, 16},
        {1, 45, 1, 3, 13, false, 0, DTYPE_F32, 0, 0, 50},
        {1, 33, 1, 1, 20, true, 0, DTYPE_BF16, 0, 0, 16},
        /* The same on tensor cores, and heads over 128: tiles filled and not, more than one of rows
         * and of keys, groups, windows, soft caps, peaked */
        {1, 150, 1, 1, 192, true, 0, DTYPE_BF16, 0, 0, 128},
        {2, 37, 1, 3, 24, false, 0, DTYPE_BF16, 0, 0, 16},
        {1, 50, 2, 1, 64, true, 0, DTYPE_F16, 20, 2, 96},
        {1, 139, 1, 1, 168, true, 1, DTYPE_F16, 0, 0, 104},
        {1, 150, 1, 1, 256, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 35, 1, 2, 200, false, 1, DTYPE_F16, 17, 1.5f, 248},
    };
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i += LAYOUT_STEP) {
        if (!left_out(i, &SHAPES[i]) && has_set(set, &SHAPES[i])) check_shape(&SHAPES[i], set);
    }
}

/* Dropped probabilities: each kernel, groups, tiles of keys that begin within a row's, soft caps.
 */
static void test_drop(void) {
    static const Shape SHAPES[] = {
        {1, 70, 2, 2, 16, true, 0, DTYPE_F32, 0, 0, 0},
        {2, 45, 1, 1, 12, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 40, 1, 1, 64, true, -0.2f, DTYPE_F16, 9, 2, 0},
        {1, 40, 1, 1, 136, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 140, 1, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {2, 70, 2, 3, 32, true, 0, DTYPE_F16, 40, 1.5f, 0},
        {1, 66, 1, 4, 128, true, 0, DTYPE_BF16, 0, 50, 0},
        {1, 150, 1, 1, 80, false, 0, DTYPE_F16, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        drop_p = i % 2 ? 0.1 : 0.5;
        check_on(&SHAPES[i], &HOOKS[ON_MMA], ", dropout");
    }
    evaluates = true;
    check_on(&SHAPES[4], &HOOKS[ON_MMA], ", dropout, evaluated");
    drop_p = 0, evaluates = false;
}

/* Blocks that take one tile of rows after the other, of several tiles of keys and of one. */
static void test_turns(void) {
    static const Shape SHAPES[] = {
        {2, 40, 3, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 390, 1, 1, 128, true, 1, DTYPE_BF16, 0, 0, 0},
        {2, 150, 1, 3, 72, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 390, 1, 1, 128, true, 0, DTYPE_BF16, 100, 0, 0},
        {1, 290, 1, 1, 80, false, 0, DTYPE_BF16, 0, 0, 0},
        {1, 300, 2, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 130, 1, 4, 128, true, 0, DTYPE_F16, 0, 0, 0},
        {3, 70, 1, 1, 128, true, 1, DTYPE_BF16, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i += LAYOUT_STEP) {
        if (left_out(i, &SHAPES[i])) continue;
        most_blocks = 1 + (uint32_t)i % 3;
        check_on(&SHAPES[i], &HOOKS[ON_WGMMA], ", on wgmma in turns, few blocks");
    }
    most_blocks = 0;
}

/* --- the gradient in one pass --- */

/* most_workspace_bytes: CudaRunHooks. */
static bool ran_jointly(const Shape *s, int64_t most_workspace_bytes) {
    CudaRunHooks hooks = JOINT;
    hooks.most_workspace_bytes = most_workspace_bytes;
    const bool *here = check_on(s, &hooks, ", in one pass if it can be");
    for (int i = 0; i < N_KERNELS; i++) {
        if (here[i] && strstr(KERNELS[i].name, "_joint_")) return true;
    }
    return false;
}

/* Blocks take 128 keys and pass over 64 rows at a time: one tile of keys and several, up to more
 * than two that add to the same rows; positions that do not fill a tile of rows or of keys; keys
 * with one tile of rows, behind which the next is fetched at once; groups. */
static void test_joint(void) {
    static const Shape SHAPES[] = {
        {3, 80, 2, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 128, 1, 2, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {3, 200, 1, 1, 64, true, 0, DTYPE_F16, 0, 0, 0},
        {1, 520, 1, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 328, 2, 2, 64, true, 1, DTYPE_BF16, 0, 0, 0},
        {1, 328, 1, 4, 64, true, 0, DTYPE_F16, 0, 0, 0},
        {1, 200, 1, 3, 40, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 200, 1, 1, 56, true, 0, DTYPE_F16, 201, 0, 0},
        {9, 136, 2, 1, 48, true, 0, DTYPE_BF16, 0, 0, 0},
        {5, 40, 2, 1, 64, true, 0, DTYPE_F16, 0, 0, 0},
        {3, 130, 1, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0},
        {5, 40, 1, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {3, 80, 1, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 390, 1, 1, 128, true, 1, DTYPE_F16, 0, 0, 0},
        {1, 328, 1, 2, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 200, 2, 4, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 200, 1, 1, 96, true, 0, DTYPE_BF16, 0, 0, 0},
        {3, 140, 1, 2, 72, true, 0, DTYPE_F16, 0, 0, 0},
    };
    for (size_t i = LAYOUT_STEP > 1; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i += LAYOUT_STEP) {
        if (left_out(i, &SHAPES[i])) continue;
        bool joint = ran_jointly(&SHAPES[i], 0);
        check_begin("its gradient is made in one pass");
        CHECK(joint, "it was not");
        check_end();
    }
}

/* Not: part of what is seen hidden by a window, or all seen; and where there is no room. */
static void test_not_joint(void) {
    static const Shape SHAPES[] = {{1, 200, 1, 1, 64, true, 0, DTYPE_BF16, 100, 0, 0},
                                   {1, 200, 1, 1, 64, false, 0, DTYPE_BF16, 0, 0, 0},
                                   {1, 200, 1, 1, 192, true, 0, DTYPE_BF16, 0, 0, 128}};
    enum { ROWS = 256, ONE = ROWS * 8 + 128 * 64 * 4 + 256 };
    static const Shape LARGE = {5, 200, 1, 1, 64, true, 0, DTYPE_BF16, 0, 0, 0};
    for (int i = 0; i < 3; i++) {
        bool joint = ran_jointly(&SHAPES[i], 0);
        check_begin("its gradient is made in two");
        CHECK(!joint, "it was not");
        check_end();
    }
    /* one less than for so many; for so many */
    for (int64_t room = 1; room <= 5; room += LAYOUT_STEP > 1 ? 4 : 1) {
        for (int less = 1; less >= 0; less--) {
            int64_t bytes = room * (ROWS * 8 + 128 * 64 * 4) + 256 - less;
            bool joint = ran_jointly(&LARGE, bytes < ONE - 1 ? ONE - 1 : bytes);
            check_begin("the gradient in the room that there is");
            CHECK(joint == (room > 1 || !less), "in one pass: %d, with room for %d", joint,
                  (int)room - less);
            check_end();
        }
    }
}

/* Shards of a batch and of heads, with a padded one of each. */
static void test_shards(void) {
    static const DType DTYPES[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const double TOLERANCE[] = {1e-5, 4e-2, 5e-3};
    for (int i = 0; i < 3; i++) {
        Arena *arena = arena_create();
        Shape s = {3, 9, 3, 2, 16, true, 0, DTYPES[i], 4, 5, 0};
        check_begin(arena_printf(arena, "heads and batch divided, %s", dtype_name(DTYPES[i])));
        cuda_check(&(CudaCase){.mesh = "t=2, d=2, p=1",
                               .nodes = make_nodes(arena, &s, "/d", "/t", ""),
                               .nonzero_pads = true, /* lse of a head of zeros */
                               .tolerance = TOLERANCE[i]});
        check_end();
        arena_destroy(arena);
    }
}

/* Two chunks of the queries a rank, and all keys: tiles within a chunk, across both, of keys that
 * none of a rank's rows see; each set of kernels, windows, groups. */
static void test_parts(int set) {
    static const struct {
        const char *mesh;
        Shape shape;
        double tolerance;
    } PARTS[] = {
        {"t=1, c=3, d=1, p=1", {2, 78, 2, 2, 12, true, 0, DTYPE_F32, 0, 0, 0}, 1e-5},
        {"t=1, c=2, d=1, p=1", {1, 280, 1, 2, 64, true, 0, DTYPE_BF16, 0, 0, 0}, 4e-2},
        {"t=1, c=2, d=1, p=1", {1, 276, 1, 1, 128, true, 0, DTYPE_BF16, 30, 0, 0}, 4e-2},
        {"t=1, c=2, d=1, p=1", {1, 140, 1, 3, 32, false, 0, DTYPE_F16, 20, 0, 0}, 5e-3},
        {"t=1, c=2, d=1, p=1", {1, 72, 2, 1, 24, true, 0, DTYPE_F32, 0, 0, 16}, 1e-5},
        {"t=1, c=2, d=1, p=1", {1, 140, 1, 1, 192, true, 0, DTYPE_BF16, 50, 0, 128}, 4e-2},
        {"t=2, c=4, d=1, p=1", {1, 72, 2, 1, 20, true, 0, DTYPE_BF16, 0, 5, 0}, 4e-2},
    };
    for (int i = set % VARIANT_STEP; i < (int)(sizeof(PARTS) / sizeof(*PARTS)); i += VARIANT_STEP) {
        const Shape *s = &PARTS[i].shape;
        bool heads = strncmp(PARTS[i].mesh, "t=2", 3) == 0;
        if (!has_set(set, s)) continue;
        Arena *arena = arena_create();
        check_begin(arena_printf(arena, "queries divided, %s, seq %d, head %d, %s%s", PARTS[i].mesh,
                                 s->seq, s->head, dtype_name(s->dtype), WITH[set]));
        cuda_check(&(CudaCase){.mesh = PARTS[i].mesh,
                               .hooks = &HOOKS[set],
                               .nodes = make_nodes(arena, s, "", heads ? "/t" : "", "/c"),
                               .tolerance = PARTS[i].tolerance});
        check_end();
        arena_destroy(arena);
    }
}

/* --- gradients side by side --- */

enum { BESIDE = 8 }; /* numbers of a row that are nobody's */

/* Where a gradient's numbers begin in a row of all three, and how many they are. */
typedef struct Columns {
    int first, count;
} Columns;

/* The launches of the gradient again, into rows of all three. `apart`: the results by themselves.
 */
static bool run_beside(const CudaKernelRun *run, const Columns columns[3], int row, char *out,
                       void *const apart[3]) {
    bool fine = true;
    for (int i = run->first_command[0][5]; fine && i < run->first_command[0][6]; i++) {
        Command command = run->lists[0].items[i];
        AttentionBackwardArgs args = *(const AttentionBackwardArgs *)command.launch.args;
        const char *why = "";
        void **to[3] = {&args.dq, &args.dk, &args.dv};
        int32_t *rows[3] = {&args.dq_row, &args.dk_row, &args.dv_row};
        DType dtype = run->base.reference->graph->nodes[5]->types[0].dtype;
        for (int o = 0; o < 3; o++) {
            int64_t position = ((char *)*to[o] - (char *)apart[o]) / dtype_bytes(dtype) / *rows[o];
            *to[o] = out + (position * row + columns[o].first) * dtype_bytes(dtype);
            *rows[o] = row;
        }
        command.launch.args = &args;
        fine = cuda_run_command(&command, &run->hooks, &why);
        CHECK(fine, "%s", why);
    }
    return fine;
}

static void check_rows(const CudaKernelRun *run, const Shape *s) {
    enum { UNTOUCHED = 0x5a };
    const Node *node = run->base.reference->graph->nodes[5];
    void *const *apart = &run->base.ranks[0].buffers[5 * MAX_OUTPUTS];
    int keys = s->kv_heads * s->head, values = s->kv_heads * (s->values ? s->values : s->head);
    Columns columns[3] = {{values + keys, s->group * keys}, {values, keys}, {0, values}};
    int row = columns[0].first + columns[0].count + BESIDE, n_rows = s->batch * s->seq;
    size_t size = (size_t)dtype_bytes(node->types[0].dtype), bytes = (size_t)(n_rows * row) * size;
    char *out = gpu_run_alloc(bytes);
    if (!out) exit(2);
    memset(out, UNTOUCHED, bytes);
    bool ran = run_beside(run, columns, row, out, apart);
    for (int i = 0; ran && i < n_rows; i++) {
        const char *at = out + (size_t)(i * row) * size;
        for (int o = 0; o < 3; o++) {
            size_t width = (size_t)columns[o].count * size;
            CHECK(memcmp(at + (size_t)columns[o].first * size,
                         (const char *)apart[o] + (size_t)i * width, width) == 0,
                  "position %d, result %d: other bits", i, o);
        }
        for (size_t k = (size_t)(row - BESIDE) * size; k < (size_t)row * size; k++)
            CHECK(at[k] == UNTOUCHED, "position %d: written beside", i);
    }
    gpu_run_free(out);
}

/* Each set of kernels; of what goes in one pass, parts of the batch. */
static void test_side_by_side(const CudaRunHooks *hooks, const char *with) {
    static const Shape SHAPES[] = {
        {2, 70, 2, 2, 32, true, 0, DTYPE_BF16, 0, 0, 0},
        {3, 140, 1, 2, 64, true, 0, DTYPE_F16, 0, 0, 0},
        {2, 140, 1, 1, 128, true, 0, DTYPE_BF16, 0, 0, 0},
        {1, 70, 2, 1, 192, true, 0, DTYPE_BF16, 0, 0, 128},
        {1, 70, 1, 1, 256, true, 0, DTYPE_F16, 0, 0, 0},
        {2, 33, 2, 3, 13, true, 0, DTYPE_F32, 0, 0, 20},
        {2, 33, 2, 1, 12, false, 0, DTYPE_BF16, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i += LAYOUT_STEP) {
        const Shape *s = &SHAPES[i];
        CudaFixture f;
        CudaKernelRun run;
        if (!has_set(hooks->attention ? ON_WGMMA : ON_MMA, s)) continue;
        Arena *arena = arena_create();
        check_begin(arena_printf(arena, "gradients side by side, seq %d, head %d, %s%s", s->seq,
                                 s->head, dtype_name(s->dtype), with));
        if (cuda_fixture_create(&f, NULL, make_nodes(arena, s, "", "", ""))) {
            bool bound = cuda_kernel_run_create(&run, f.reference, -1, hooks, f.diag);
            CHECK(bound, "%s", diag_text(f.diag));
            bool good = bound && cuda_kernel_run_step(&run);
            CHECK(good, "%s", cuda_kernel_run_reason(&run));
            if (good) check_rows(&run, s);
            cuda_kernel_run_destroy(&run);
        }
        check_end();
        cuda_fixture_destroy(&f);
        arena_destroy(arena);
    }
}

/* A q without the axis `group` is a group of one. */
static void test_without_group(void) {
    check_begin("queries without group");
    cuda_check(&(CudaCase){
        .nodes = "%0 = input() {name=\"\"} : f32[batch=1, seq=5, kv=2, head=8]\n"
                 "%1:2 = attention(%0, %0, %0) {seq=seq, head=head, causal=1, scale=0.5} : "
                 "f32[batch=1, seq=5, kv=2, head=8], f32[batch=1, seq=5, kv=2]\n",
        .tolerance = 1e-5});
    check_end();
}

static void test_all_ran(void) {
    if (LAYOUT_STEP > 1) return;
    check_begin("every kernel of attention ran");
    for (int i = 0; i < N_KERNELS; i++) {
        bool wgmma = strstr(KERNELS[i].name, "_wgmma_") != NULL;
        if (wgmma && !gpu_run_has_wgmma()) continue;
        if (strncmp(KERNELS[i].name, "attention_", 10) == 0) {
            CHECK(launched[i], "%s did not", KERNELS[i].name);
        }
    }
    check_end();
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_shards();
    test_without_group();
    test_drop();
    /* wgmma last: on a GPU that they break nothing else would run. */
    for (int set = ON_MMA; set < (gpu_run_has_wgmma() ? N_SETS : ON_WGMMA); set++) {
        test_shapes(set);
        test_parts(set);
        test_side_by_side(&HOOKS[set], WITH[set]);
    }
    if (gpu_run_has_wgmma()) {
        test_turns();
        test_joint();
        test_not_joint();
        CudaRunHooks small = JOINT;
        small.most_workspace_bytes =
            256 * 8 * 2 + 128 * 64 * 4 * 2 + 256; /* a row of heads of 64 */
        test_side_by_side(&JOINT, ", in one pass");
        test_side_by_side(&small, ", in one pass, in parts");
    }
    test_all_ran();
    return check_report();
}
