/* CUDA kernels of norms, losses, embedding and rotary, through their binders and the emulator,
 * against float64, in f32, bf16 and f16.
 *
 * Would catch: a vector path that takes widths it cannot, a row that begins off 16 bytes read
 * wrong, groups of rows or chunks of tokens joined wrong, a shard that takes itself for the first
 * one, padding read or left unwritten, results that depend on the order of threads.
 */
#include "runtime/cpu/softmax.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/fp8_nodes.h"

#include <math.h>

/* Sums of up to 70000 terms, mostly along trees: a few f32 roundings of 6e-8. Results in 16 bits
 * are allowed their own rounding on top (kernel_run_error). */
static const double TOLERANCE = 3e-6;

static bool launched[N_KERNELS];
static const char *const WIDE[] = {"f32", "bf16", "f16"};

/* "A[" in the nodes is f32[, bf16[ and f16[ in turn. */
static void check_nodes(const char *name, CudaCase c) {
    for (int type = 0; type < 3; type++) {
        Arena *arena = arena_create();
        const char *text = "", *at = c.nodes, *next;
        for (; (next = strstr(at, "A[")); at = next + 1) {
            text = arena_printf(arena, "%s%.*s%s", text, (int)(next - at), at, WIDE[type]);
        }
        CudaCase typed = c;
        typed.nodes = arena_printf(arena, "%s%s", text, at);
        if (!c.tolerance) typed.tolerance = TOLERANCE;
        typed.launched = launched;
        check_begin(arena_printf(arena, "%s, %s%s", name, WIDE[type],
                                 c.overwrite  ? ", setting"
                                 : c.in_place ? ", in place"
                                              : ""));
        cuda_check(&typed);
        check_end();
        arena_destroy(arena);
    }
}

#define PARAM(id, values, type)                                                                    \
    "%" #id " = param() {name=\"" values "\", init=\"zeros\", decay=1} : " type "\n"
#define INPUT(id, values, type) "%" #id " = input() {name=\"" values "\"} : " type "\n"

/* Replaces the first %d's of `nodes` by the numbers. */
static void check_sizes(const char *name, const char *nodes, int a, int b, CudaCase c) {
    Arena *arena = arena_create();
    const char *text = "", *at = nodes, *next;
    for (; (next = strpbrk(at, "$&")); at = next + 1) {
        text = arena_printf(arena, "%s%.*s%d", text, (int)(next - at), at, *next == '$' ? a : b);
    }
    c.nodes = arena_printf(arena, "%s%s", text, at);
    check_nodes(arena_printf(arena, "%s %d x %d", name, a, b), c);
    arena_destroy(arena);
}

/* Norms */

static const char LAYERNORM[] = INPUT(0, "", "A[rows=$, cols=&]") INPUT(1, "+", "f32[cols=&]")
    INPUT(2, "", "f32[cols=&]") "%3:3 = layernorm(%0, %1, %2) {axis=cols, eps=0.001} : "
                                "A[rows=$, cols=&], f32[rows=$], f32[rows=$]\n";
static const char RMSNORM[] = INPUT(0, "", "A[rows=$, cols=&]")
    INPUT(1, "+", "f32[cols=&]") "%2:2 = rmsnorm(%0, %1) {axis=cols, eps=0.001} : A[rows=$, "
                                 "cols=&], f32[rows=$]\n";
static const char LAYERNORM_GRAD[] = INPUT(0, "", "A[rows=$, cols=&]") INPUT(1, "+", "f32[cols=&]")
    INPUT(2, "", "f32[rows=$]") INPUT(3, "+", "f32[rows=$]")
        INPUT(4, "", "A[rows=$, cols=&]") "%5:3 = layernorm_grad(%0, %1, %2, %3, %4) {axis=cols} : "
                                          "A[rows=$, cols=&], f32[cols=&], f32[cols=&]\n";
static const char RMSNORM_GRAD[] =
    INPUT(0, "", "A[rows=$, cols=&]") INPUT(1, "+", "f32[cols=&]") INPUT(2, "+", "f32[rows=$]")
        INPUT(3, "", "A[rows=$, cols=&]") "%4:2 = rmsnorm_grad(%0, %1, %2, %3) {axis=cols} : "
                                          "A[rows=$, cols=&], f32[cols=&]\n";

static void test_norms(void) {
    /* One element; odd; a vector; a warp's, a block's and the gradients' largest rows and the next;
     * widths of no vectors; rows that do not fill a block or a group; more groups than lanes. */
    static const int SIZES[][2] = {{3, 1},    {5, 7},    {4, 8},    {9, 24},    {130, 40},
                                   {3, 1024}, {2, 1028}, {3, 2048}, {2, 2056},  {19, 513},
                                   {9, 4096}, {2, 4100}, {2, 8192}, {2, 16384}, {300, 36},
                                   {2, 8200}, {2, 16392}};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        int rows = SIZES[i][0], cols = SIZES[i][1];
        check_sizes("layernorm", LAYERNORM, rows, cols, (CudaCase){0});
        check_sizes("rmsnorm", RMSNORM, rows, cols, (CudaCase){0});
        if (cols > 8200) continue; /* takes long */
        check_sizes("layernorm_grad", LAYERNORM_GRAD, rows, cols, (CudaCase){0});
        check_sizes("rmsnorm_grad", RMSNORM_GRAD, rows, cols, (CudaCase){0});
    }
    check_nodes(
        "layernorm and its gradient, rows divided",
        (CudaCase){
            .mesh = "t=2, d=2, p=1",
            .nonzero_pads = true,
            .nodes = PARAM(0, "", "A[batch=3/d, seq=5/t, model=24]") PARAM(1, "", "f32[model=24]")
                PARAM(2, "", "f32[model=24]") PARAM(3, "", "A[batch=3/d, seq=5/t, model=24]")
                    PARAM(4, "", "f32[batch=3/d, seq=5/t]")
                        PARAM(5, "", "f32[batch=3/d, seq=5/t]") "%6:3 = layernorm(%0, %1, %2) "
                                                                "{axis=model, eps=0.001} : "
                                                                "A[batch=3/d, seq=5/t, model=24], "
                                                                "f32[batch=3/d, seq=5/t], "
                                                                "f32[batch=3/d, seq=5/t]\n"
                                                                "%7:3 = layernorm_grad(%0, %1, %4, "
                                                                "%5, %3) {axis=model} : "
                                                                "A[batch=3/d, seq=5/t, model=24], "
                                                                "f32[model=24]~sum(t,d), "
                                                                "f32[model=24]~sum(t,d)\n"});
}

/* Losses */

static const char LOSSES[] =
    INPUT(0, "", "A[rows=$, vocab=&]") INPUT(1, "#&", "i32[rows=$]") INPUT(2, "+", "f32[rows=$]")
        INPUT(3, "", "f32[rows=$]") "%4 = logsumexp(%0) {axis=vocab} : f32[rows=$]\n"
                                    "%5 = pick(%0, %1) {axis=vocab} : f32[rows=$]\n"
                                    "%6 = cross_entropy_grad(%0, %1, %2, %3) {axis=vocab} : "
                                    "A[rows=$, vocab=&]\n";
static const char LOSS_GRAD[] =
    INPUT(0, "", "A[rows=$, vocab=&]") INPUT(1, "#&", "i32[rows=$]") INPUT(2, "+", "f32[rows=$]")
        INPUT(3, "", "f32[rows=$]") "%4 = cross_entropy_grad(%0, %1, %2, %3) {axis=vocab} : "
                                    "A[rows=$, vocab=&]\n";

/* Of two softmaxes: rows as they are summed, and gradients. */
#define DIVERGENCE_OF(leaf, rows, vocab, partial, beta)                                            \
    leaf(0, "", "A[rows=" rows ", vocab=" vocab "]")                                               \
        leaf(1, "", "A[rows=" rows ", vocab=" vocab "]") leaf(2, "+", "f32[rows=" rows "]")        \
            leaf(3, "+", "f32[rows=" rows "]") leaf(4, "", "f32[rows=" rows "]")                   \
                leaf(5, "",                                                                        \
                     "f32[rows=" rows                                                              \
                     "]") "%6:2 = divergence_rows(%0, %1, %2, %3) {axis=vocab, beta=" beta         \
                          "} : f32[rows=" rows "]" partial ", f32[rows=" rows "]" partial "\n"     \
                          "%7 = divergence_grad(%0, %1, %2, %3, %4, %5) {axis=vocab, beta=" beta   \
                          "} : "                                                                   \
                          "A[rows=" rows ", vocab=" vocab "]\n"
#define DIVERGENCE(beta)        DIVERGENCE_OF(INPUT, "$", "&", "", beta)
#define DIVERGENCE_PADDED(beta) DIVERGENCE_OF(PARAM, "5", "&/t", "~sum(t)", beta)
static const char *const DIVERGENCES[] = {DIVERGENCE("0"), DIVERGENCE("1"), DIVERGENCE("0.3")};
static const char *const DIVERGENCES_PADDED[] = {DIVERGENCE_PADDED("0"), DIVERGENCE_PADDED("1"),
                                                 DIVERGENCE_PADDED("0.3")};

/* Of stored words, some of which are none. */
#define STORED_OF(leaf, rows, vocab, partial, words, vocab_of)                                     \
    leaf(0, "", "A[rows=" rows ", vocab=" vocab "]") INPUT(1, "#" vocab_of,                        \
                                                           "i32[rows=" rows ", stored=" words "]") \
        INPUT(2, "", "f32[rows=" rows ", stored=" words "]") leaf(3, "+", "f32[rows=" rows "]")    \
            leaf(4, "", "f32[rows=" rows "]") leaf(5, "", "f32[rows=" rows "]")                    \
                leaf(6, "",                                                                        \
                     "f32[rows=" rows                                                              \
                     "]") "%7:3 = stored_rows(%0, %1, %2, %3) {axis=vocab} : f32[rows=" rows       \
                          "]" partial ", f32[rows=" rows "]" partial ", f32[rows=" rows            \
                          "]" partial "\n"                                                         \
                          "%8 = stored_grad(%0, %1, %2, %3, %4, %5, %6) {axis=vocab} : "           \
                          "A[rows=" rows ", vocab=" vocab "]\n"
static const char STORED[] = STORED_OF(INPUT, "$", "&", "", "9", "&");
static const char STORED_PADDED[] = STORED_OF(PARAM, "5", "&/t", "~sum(t)", "6", "&");

/* As where the loss also has a penalty on log-sum-exp. */
static const char LOSS_GRAD_5[] = INPUT(0, "", "A[rows=$, vocab=&]") INPUT(1, "#&", "i32[rows=$]")
    INPUT(2, "+", "f32[rows=$]") INPUT(3, "", "f32[rows=$]")
        INPUT(4, "", "f32[rows=$]") "%5 = cross_entropy_grad(%0, %1, %2, %3, %4) {axis=vocab} : "
                                    "A[rows=$, vocab=&]\n";

static void test_losses(void) {
    static const int SIZES[][2] = {{3, 1},    {7, 5},   {9, 16},    {11, 31},
                                   {13, 257}, {2, 512}, {17, 1001}, {2, 70001}};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        check_sizes("losses", LOSSES, SIZES[i][0], SIZES[i][1], (CudaCase){0});
        check_sizes("losses", LOSS_GRAD, SIZES[i][0], SIZES[i][1], (CudaCase){.in_place = true});
        check_sizes("losses", LOSS_GRAD_5, SIZES[i][0], SIZES[i][1], (CudaCase){.in_place = true});
        for (int k = 0; k < 3; k++) {
            check_sizes("divergences", DIVERGENCES[k], SIZES[i][0], SIZES[i][1], (CudaCase){0});
        }
        if (SIZES[i][1] > 60000) continue; /* takes long; tiles are several below */
        check_sizes("stored words", STORED, SIZES[i][0], SIZES[i][1], (CudaCase){0});
    }
    /* 131 and 45 of 392 columns: the last shards are padded; labels of other shards. */
    static const char SHARDED[] = PARAM(0, "", "A[batch=5/d, seq=3, vocab=&/t]")
        INPUT(1, "#&", "i32[batch=5/d, seq=3]") PARAM(2, "+", "f32[batch=5/d, seq=3]")
            PARAM(3, "",
                  "f32[batch=5/d, seq=3]") "%4 = logsumexp(%0) {axis=vocab} : f32[batch=5/d, "
                                           "seq=3]~lse(t)\n"
                                           "%5 = pick(%0, %1) {axis=vocab} : f32[batch=5/d, "
                                           "seq=3]~sum(t)\n"
                                           "%6 = cross_entropy_grad(%0, %1, %2, %3) {axis=vocab} : "
                                           "A[batch=5/d, seq=3, vocab=&/t]\n";
    static const char PADDED[] = PARAM(0, "", "A[rows=5, vocab=&/t]") INPUT(1, "#&", "i32[rows=5]")
        PARAM(2, "+", "f32[rows=5]")
            PARAM(3, "", "f32[rows=5]") "%4 = cross_entropy_grad(%0, %1, %2, %3) {axis=vocab} : "
                                        "A[rows=5, vocab=&/t]\n";
    check_sizes("stored words of several tiles", STORED, 2, 8201, (CudaCase){0});
    static const int VOCAB[] = {7, 131, 392, 1000};
    for (int i = 0; i < 4; i++) {
        check_sizes("losses over a divided vocabulary of", SHARDED, 0, VOCAB[i],
                    (CudaCase){.mesh = "t=3, d=2, p=1", .nonzero_pads = true});
        check_sizes("cross_entropy_grad is zero in the padding of", PADDED, 0, VOCAB[i],
                    (CudaCase){.mesh = "t=3, d=1, p=1"});
        for (int k = 0; k < 3; k++) {
            check_sizes("divergences over a divided vocabulary of", DIVERGENCES_PADDED[k], 0,
                        VOCAB[i], (CudaCase){.mesh = "t=3, d=1, p=1"});
        }
        check_sizes("stored words over a divided vocabulary of", STORED_PADDED, 0, VOCAB[i],
                    (CudaCase){.mesh = "t=3, d=1, p=1"});
    }
}

/* What the reference cannot say: as the CPU's kernel. Padding holds not-a-number. */
static void test_special_logits(void) {
    enum { ROWS = 8, COLS = 45, VALID = 41 };
    static const struct {
        const char *name;
        float all, one; /* the one is at column 20 */
    } CASES[ROWS] = {
        {"all masked", -INFINITY, -INFINITY}, {"one left", -INFINITY, 3},
        {"one infinite", 0, INFINITY},        {"infinite among masked", -INFINITY, INFINITY},
        {"far above", 30000, 30001},          {"far below", -30000, -29000},
        {"one far above", -30000, 30000},     {"not a number", 1, NAN},
    };
    static float x[ROWS * COLS], lse[ROWS], expected[ROWS];
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = i % COLS >= VALID ? NAN : i % COLS == 20 ? CASES[i / COLS].one : CASES[i / COLS].all;
    }
    softmax_logsumexp(false, ROWS, COLS, VALID, x, expected);
    for (int threads = 32; threads <= 256; threads *= 8) {
        SoftmaxArgs args = {.rows = ROWS, .n_local = COLS, .n_valid = VALID, .x = x, .out = lse};
        bool good = emulate_launch(KERNEL_logsumexp_f32, (Grid){ROWS, 1, 1}, threads, 0, &args);
        for (int row = 0; row < ROWS; row++) {
            char name[100];
            snprintf(name, sizeof(name), "logsumexp, %s, %d threads", CASES[row].name, threads);
            check_begin(name);
            CHECK(good, "%s", emulate_error());
            bool same = lse[row] == expected[row] || (isnan(lse[row]) && isnan(expected[row])) ||
                        fabsf(lse[row] - expected[row]) <= 1e-6f * fabsf(expected[row]);
            CHECK(same, "%g instead of %g", (double)lse[row], (double)expected[row]);
            check_end();
        }
    }
}

/* Embedding */

static void test_embedding(void) {
    static const char WHOLE[] = INPUT(0, "#9", "i32[seq=$]") PARAM(
        1, "", "A[vocab=7, model=&]") "%2 = embedding(%0, %1) {axis=vocab} : A[seq=$, model=&]\n";
    static const int SIZES[][2] = {{1, 1}, {5, 3}, {19, 4}, {9, 8}, {37, 130}, {3, 1024}};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        check_sizes("embedding, tokens without a row", WHOLE, SIZES[i][0], SIZES[i][1],
                    (CudaCase){0});
    }
    check_nodes(
        "embedding, negative tokens",
        (CudaCase){.nodes = INPUT(0, ":-3", "i32[seq=5]") PARAM(
                       1, "",
                       "A[vocab=7, "
                       "model=8]") "%2 = embedding(%0, %1) {axis=vocab} : A[seq=5, model=8]\n"});
    check_nodes(
        "embedding, rows of the table and tokens divided",
        (CudaCase){.mesh = "t=3, d=2, p=1",
                   .nonzero_pads = true,
                   .nodes = INPUT(0, "#7", "i32[batch=3/d, seq=5]") PARAM(
                       1, "", "A[vocab=7/t, model=12]") "%2 = embedding(%0, %1) {axis=vocab} : "
                                                        "A[batch=3/d, seq=5, model=12]~sum(t)\n"});
}

static void check_embedding_grad(const char *name, const char *tokens, int n, int vocab, int model,
                                 const char *mesh, const char *shard) {
    Arena *arena = arena_create();
    const char *table = arena_printf(arena, "f32[vocab=%d%s, model=%d]", vocab, shard, model);
    const char *leaf = "param() {name=\"\", init=\"zeros\", decay=1} :";
    const char *leaves = arena_printf(arena,
                                      "%%0 = input() {name=\"%s\"} : i32[seq=%d]\n"
                                      "%%1 = %s A[seq=%d, model=%d]\n"
                                      "%%2 = %s %s\n",
                                      tokens, n, leaf, n, model, leaf, table);
    const char *set = arena_printf(
        arena, "%s%%3 = embedding_grad(%%0, %%1, %%2) {axis=vocab} : %s\n", leaves, table);
    const char *add = arena_printf(arena,
                                   "%s%%3 = %s %s\n"
                                   "%%4 = embedding_grad(%%0, %%1, %%2, %%3) {axis=vocab} : %s\n",
                                   leaves, leaf, table, table);
    name = arena_printf(arena, "embedding_grad, %s, tokens %s, %d to %d x %d", name, tokens, n,
                        vocab, model);
    check_nodes(name, (CudaCase){.mesh = mesh, .nodes = set});
    check_nodes(arena_printf(arena, "%s, adding", name), (CudaCase){.mesh = mesh, .nodes = add});
    check_nodes(arena_printf(arena, "%s, adding", name),
                (CudaCase){.mesh = mesh, .nodes = add, .overwrite = true});
    arena_destroy(arena);
}

static void test_embedding_grad(void) {
    check_embedding_grad("one token", "#7", 1, 7, 3, NULL, "");
    check_embedding_grad("few tokens", "#7", 5, 7, 3, NULL, "");
    check_embedding_grad("tokens without a row", "#9", 40, 7, 8, NULL, "");
    check_embedding_grad("no token with a row", ":-2", 40, 7, 8, NULL, "");
    check_embedding_grad("runs within chunks", "#50", 90, 50, 130, NULL, "");
    check_embedding_grad("runs over two chunks", "#7", 200, 7, 16, NULL, "");
    check_embedding_grad("one run over all chunks", ":3", 333, 7, 8, NULL, "");
    check_embedding_grad("a run that ends at a chunk's end", ":3", 320, 7, 5, NULL, "");
    check_embedding_grad("several tiles of tokens and blocks of rows", "#150", 4500, 150, 2, NULL,
                         "");
    check_embedding_grad("longer chunks", "#11", 17000, 11, 1, NULL, "");
    check_embedding_grad("several blocks of columns", "#5", 40, 5, 1032, NULL, "");
    check_embedding_grad("rows divided", "#70", 300, 70, 12, "t=3, d=1, p=1", "/t");
}

/* Rotary */

static void test_rotary(void) {
    static const char WHOLE[] =
        INPUT(0, "", "A[batch=2, seq=$, heads=3, head=&]") "%1 = rotary(%0) {seq=seq, head=head, "
                                                           "base=10000, direction=1} : "
                                                           "A[batch=2, seq=$, heads=3, head=&]\n"
                                                           "%2 = rotary(%0) {seq=seq, head=head, "
                                                           "base=50, direction=-1} : "
                                                           "A[batch=2, seq=$, heads=3, head=&]\n";
    static const int SIZES[][2] = {{7, 2},  {5, 6},   {5, 8},    {9, 16},
                                   {3, 64}, {3, 128}, {2, 1040}, {300, 32}};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        check_sizes("rotary", WHOLE, SIZES[i][0], SIZES[i][1], (CudaCase){0});
    }
    check_nodes(
        "rotary, grouped queries",
        (CudaCase){
            .nodes = INPUT(
                0, "",
                "A[batch=2, seq=3, kv=2, group=2, head=16]") "%1 = rotary(%0) {seq=seq, head=head, "
                                                             "base=100, direction=1} : "
                                                             "A[batch=2, seq=3, kv=2, group=2, "
                                                             "head=16]\n"});
    static const char STRETCHED[] = INPUT(
        0, "",
        "A[batch=2, seq=$, heads=3, head=&]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                              "factor=8, few=1, many=4, context=64, direction=1} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n"
                                              "%2 = rotary(%0) {seq=seq, head=head, base=50, "
                                              "factor=3, direction=-1} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n";
    check_sizes("rotary, frequencies stretched", STRETCHED, 9, 8, (CudaCase){0});
    check_sizes("rotary, frequencies stretched", STRETCHED, 70, 22, (CudaCase){0});
    static const char PARTIAL[] = INPUT(
        0, "",
        "A[batch=2, seq=$, heads=3, head=&]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                              "factor=2, direction=1, turned=4} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n"
                                              "%2 = rotary(%0) {seq=seq, head=head, base=50, "
                                              "direction=-1, turned=2} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n"
                                              "%3 = rotary(%0) {seq=seq, head=head, base=50, "
                                              "direction=1, turned=&} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n";
    check_sizes("rotary, a part of each head", PARTIAL, 5, 6, (CudaCase){0});
    check_sizes("rotary, a part of each head", PARTIAL, 9, 40, (CudaCase){0});
    static const char FACTORS[] = INPUT(
        0, "",
        "A[batch=2, seq=$, heads=3, head=&]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                              "direction=1, turned=6, factors=\"1,2.5,7e0\", "
                                              "scale=1.25} : A[batch=2, seq=$, heads=3, head=&]\n"
                                              "%2 = rotary(%0) {seq=seq, head=head, base=50, "
                                              "direction=-1, turned=4, factors=\"3,0.5\", "
                                              "scale=0.5} : A[batch=2, seq=$, heads=3, head=&]\n";
    check_sizes("rotary, factors of each pair", FACTORS, 9, 6, (CudaCase){0});
    check_sizes("rotary, factors of each pair", FACTORS, 70, 24, (CudaCase){0});
    static const char QUARTER[] = INPUT(
        0, "",
        "A[batch=2, seq=$, heads=3, head=&]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                              "direction=1, turned=32} : "
                                              "A[batch=2, seq=$, heads=3, head=&]\n";
    check_sizes("rotary, a part of each head, in packs", QUARTER, 70, 128, (CudaCase){0});
    check_sizes("rotary, a part of each head, in packs", QUARTER, 7, 36, (CudaCase){0});
    check_nodes(
        "rotary, positions divided",
        (CudaCase){
            .mesh = "t=1, d=3, p=1",
            .nodes = PARAM(
                0, "",
                "A[batch=2, seq=7/d, heads=2, head=16]") "%1 = rotary(%0) {seq=seq, head=head, "
                                                         "base=100, direction=1} : "
                                                         "A[batch=2, seq=7/d, heads=2, "
                                                         "head=16]\n"});
}

/* What a launch of rotary does to rows that have numbers of others on both sides. */
static void check_rows_beside(const CudaKernelRun *run, int node, bool in_place) {
    enum { BESIDE = 16, UNTOUCHED = 0x5a }; /* numbers on each side */
    Command command = run->lists[0].items[run->first_command[0][node]];
    RotaryArgs args = *(const RotaryArgs *)command.launch.args;
    size_t size = (size_t)dtype_bytes(run->base.reference->graph->nodes[0]->types[0].dtype);
    size_t width = (size_t)args.row * size, row = width + 2 * BESIDE * size;
    size_t rows = (size_t)(args.batch * args.seq);
    const char *x = args.x, *y = args.y, *why = "";
    char *from = gpu_run_alloc(rows * row), *to = in_place ? from : gpu_run_alloc(rows * row);
    if (!from || !to) exit(2);
    memset(from, UNTOUCHED, rows * row);
    memset(to, UNTOUCHED, rows * row);
    for (size_t i = 0; i < rows; i++) memcpy(from + i * row + BESIDE * size, x + i * width, width);
    args.x = from + BESIDE * size;
    args.y = to + BESIDE * size;
    args.row += 2 * BESIDE;
    command.launch.args = &args;
    bool ran = cuda_run_command(&command, &run->hooks, &why);
    CHECK(ran, "%s", why);
    for (size_t i = 0; ran && i < rows; i++) {
        const char *at = to + i * row, *end = at + BESIDE * size + width;
        CHECK(memcmp(at + BESIDE * size, y + i * width, width) == 0, "row %zu: other bits", i);
        for (size_t k = 0; k < BESIDE * size; k++)
            CHECK(at[k] == UNTOUCHED && end[k] == UNTOUCHED, "row %zu: written beside", i);
    }
    gpu_run_free(from);
    if (!in_place) gpu_run_free(to);
}

/* Vectors and single numbers, heads that turn in part, more of a row than a block has threads,
 * positions that are given. */
static void test_rotary_rows(void) {
    static const struct {
        int heads, head, turned;
        const char *places;
    } CASES[] = {{3, 64, 64, ""}, {3, 64, 32, ""},    {2, 6, 6, ""},
                 {5, 10, 4, ""},  {40, 128, 128, ""}, {3, 16, 16, ", %1"}};
    for (size_t i = 0; i < 3 * sizeof(CASES) / sizeof(CASES[0]); i++) {
        CudaFixture f;
        CudaKernelRun run;
        Arena *arena = arena_create();
        const char *dtype = WIDE[i % 3];
        int heads = CASES[i / 3].heads, head = CASES[i / 3].head, turned = CASES[i / 3].turned;
        const char *nodes = arena_printf(
            arena,
            "%%0 = input() {name=\"\"} : %s[batch=2, seq=9, heads=%d, head=%d]\n"
            "%%1 = input() {name=\"#90\"} : i32[batch=2, seq=9]\n"
            "%%2 = rotary(%%0%s) {seq=seq, head=head, base=100, direction=-1, turned=%d} : "
            "%s[batch=2, seq=9, heads=%d, head=%d]\n",
            dtype, heads, head, CASES[i / 3].places, turned, dtype, heads, head);
        check_begin(arena_printf(arena,
                                 "rotary of rows beside others, %d heads of %d, %d turn%s, %s",
                                 heads, head, turned, CASES[i / 3].places, dtype));
        if (cuda_fixture_create(&f, NULL, nodes)) {
            bool good = cuda_kernel_run_create(&run, f.reference, -1, NULL, f.diag) &&
                        cuda_kernel_run_step(&run);
            CHECK(good, "%s", cuda_kernel_run_reason(&run));
            for (int in_place = 0; good && in_place < 2; in_place++)
                check_rows_beside(&run, 2, in_place);
            cuda_kernel_run_destroy(&run);
        }
        check_end();
        cuda_fixture_destroy(&f);
        arena_destroy(arena);
    }
}

/* Both ways and causal, wide rows and narrow ones, more buckets than are met, other queries than
 * keys, a part of the queries in one run and in two. */
static void test_relative(void) {
    check_nodes(
        "relative_bias",
        (CudaCase){
            .nodes = PARAM(0, "", "f32[batch=2, heads=3, seq=9, keys=300]")
                PARAM(1, "", "f32[buckets=8, heads=3]") PARAM(
                    2, "",
                    "f32[buckets=32, heads=3]") "%3 = relative_bias(%0, %1) {seq=seq, keys=keys, "
                                                "causal=0, distance=6} : f32[batch=2, heads=3, "
                                                "seq=9, keys=300]\n"
                                                "%4 = relative_bias(%0, %2) {seq=seq, keys=keys, "
                                                "causal=1, distance=128} : f32[batch=2, heads=3, "
                                                "seq=9, keys=300]\n"
                                                "%5 = relative_bias_grad(%0) {to=[buckets, heads], "
                                                "count=8, seq=seq, keys=keys, causal=0, "
                                                "distance=6} : f32[buckets=8, heads=3]\n"
                                                "%6 = relative_bias_grad(%0) {to=[buckets, heads], "
                                                "count=32, seq=seq, keys=keys, causal=1, "
                                                "distance=128} : f32[buckets=32, heads=3]\n"});
    check_nodes(
        "relative_bias, queries divided",
        (CudaCase){
            .mesh = "t=1, c=3, d=1, p=1",
            .nodes = PARAM(0, "", "f32[batch=2, heads=2, seq=18/c, keys=18]") PARAM(
                1, "",
                "f32[buckets=8, heads=2]") "%2 = relative_bias(%0, %1) {seq=seq, keys=keys, "
                                           "causal=1, distance=9} : f32[batch=2, heads=2, "
                                           "seq=18/c, keys=18]\n"
                                           "%3 = relative_bias_grad(%0) {to=[buckets, heads], "
                                           "count=8, seq=seq, keys=keys, causal=0, distance=9} : "
                                           "f32[buckets=8, heads=2]~sum(c)\n"});
}

/* More than a tile of a block; no separator, and many; two chunks of what is found. */
static void test_documents(void) {
    check_begin("documents");
    cuda_check(&(CudaCase){
        .nodes = INPUT(0, "#900", "i32[batch=2, seq=4500]")
            INPUT(1, "#2", "i32[seq=37]") "%2:2 = documents(%0) {axis=seq, separator=7} : "
                                          "i32[batch=2, seq=4500], i32[batch=2, "
                                          "seq=4500]\n"
                                          "%3:2 = documents(%1) {axis=seq, separator=1} : "
                                          "i32[seq=37], i32[seq=37]\n"
                                          "%4:2 = documents(%1) {axis=seq, separator=5} : "
                                          "i32[seq=37], i32[seq=37]\n",
        .launched = launched});
    cuda_check(&(CudaCase){
        .mesh = "t=1, c=3, d=1, p=1",
        .nodes = INPUT(0, "#9", "i32[batch=2, seq=66]") "%1:2 = documents(%0) {axis=seq, "
                                                        "separator=0} : i32[batch=2, seq=66/c], "
                                                        "i32[batch=2, seq=66/c]\n"});
    check_end();
}

static void test_ngram(void) {
    check_begin("ngram and occurrence");
    cuda_check(&(CudaCase){
        .nodes = INPUT(0, "#900", "i32[batch=2, seq=450]")
            INPUT(1, "#2", "i32[seq=37]") "%2 = ngram(%0) {axis=seq, by=3, count=1000003} : "
                                          "i32[batch=2, seq=450]\n"
                                          "%3 = ngram(%1) {axis=seq, by=16, count=2147483647, "
                                          "separator=1, seed=5} : i32[seq=37]\n"
                                          "%4 = occurrence(%1) {axis=seq, token=1} : i32[seq=37]\n",
        .launched = launched});
    cuda_check(&(CudaCase){
        .mesh = "t=1, c=3, d=1, p=1",
        .nodes = INPUT(0, "#9", "i32[batch=2, seq=66]") "%1 = ngram(%0) {axis=seq, by=2, "
                                                        "count=50} : i32[batch=2, seq=66/c]\n"
                                                        "%2 = occurrence(%0) {axis=seq, token=3} : "
                                                        "i32[batch=2, seq=66/c]\n"});
    cuda_check(&(CudaCase){
        .nodes = INPUT(0, "#3", "i32[batch=2, seq=4500]") "%1 = occurrence(%0) {axis=seq, token=2} "
                                                          ": i32[batch=2, seq=4500]\n",
        .launched = launched});
    check_end();
}

/* The same with separators apart, and of documents' ends. */
static void test_document_ends(void) {
    check_begin("document_ends");
    cuda_check(&(CudaCase){
        .nodes = INPUT(0, "#900", "i32[batch=2, seq=4500]")
            INPUT(1, "#2", "i32[seq=37]") "%2 = document_ends(%0) {axis=seq, separator=7} : "
                                          "i32[batch=2, seq=4500]\n"
                                          "%3 = document_ends(%0) {axis=seq, separator=7, apart=1} "
                                          ": i32[batch=2, seq=4500]\n"
                                          "%4:2 = documents(%0) {axis=seq, separator=7, apart=1} : "
                                          "i32[batch=2, seq=4500], i32[batch=2, seq=4500]\n"
                                          "%5 = document_ends(%1) {axis=seq, separator=1} : "
                                          "i32[seq=37]\n"
                                          "%6 = document_ends(%1) {axis=seq, separator=0, apart=1} "
                                          ": i32[seq=37]\n"
                                          "%7 = document_ends(%1) {axis=seq, separator=5} : "
                                          "i32[seq=37]\n",
        .launched = launched});
    cuda_check(&(CudaCase){
        .mesh = "t=1, c=3, d=1, p=1",
        .nodes = INPUT(0, "#9", "i32[batch=2, seq=66]") "%1 = document_ends(%0) {axis=seq, "
                                                        "separator=0, apart=1} : i32[batch=2, "
                                                        "seq=66/c]\n"
                                                        "%2:2 = documents(%0) {axis=seq, "
                                                        "separator=0, apart=1} : i32[batch=2, "
                                                        "seq=66/c], i32[batch=2, seq=66/c]\n"});
    check_end();
}

/* Blocks along the last axis, over two of them, of rows, whose columns do not fill a block of
 * threads, and tiles; a block of zeros, none that fills a grid. */
static void test_quantize(void) {
    check_nodes(
        "quantize and back",
        (CudaCase){
            .nodes = INPUT(0, "", "A[batch=3, seq=128, heads=6, head=64]") INPUT(
                1, ":0", "A[rows=256, cols=37]") INPUT(2, "", "A[model=256, heads=4, head=64]")
                INPUT(3, "",
                      "A[rows=128]") "%4:2 = quantize(%0) {over=[heads, head]} : fp8[batch=3, "
                                     "seq=128, heads=6, head=64], f32[batch=3, seq=128, heads=3, "
                                     "head=1]\n"
                                     "%5:2 = quantize(%0) {over=[seq]} : fp8[batch=3, seq=128, "
                                     "heads=6, head=64], f32[batch=3, seq=1, heads=6, head=64]\n"
                                     "%6:2 = quantize(%1) {over=[rows]} : fp8[rows=256, cols=37], "
                                     "f32[rows=2, cols=37]\n"
                                     "%7:2 = quantize(%2) {over=[model], beside=[heads, head]} : "
                                     "fp8[model=256, heads=4, head=64], f32[model=2, heads=2, "
                                     "head=1]\n"
                                     "%8:2 = quantize(%3) {over=[rows]} : fp8[rows=128], "
                                     "f32[rows=1]\n"
                                     "%9 = dequantize(%4, %4.1) : bf16[batch=3, seq=128, heads=6, "
                                     "head=64]\n"
                                     "%10 = dequantize(%5, %5.1) : bf16[batch=3, seq=128, heads=6, "
                                     "head=64]\n"
                                     "%11 = dequantize(%7, %7.1) : bf16[model=256, heads=4, "
                                     "head=64]\n"});
}

static void test_blocks(void) {
    for (int i = 0; i < 6; i++) {
        Arena *arena = arena_create();
        const char *from = i % 2 ? "int8" : "nf4", *to = WIDE[i / 2];
        const char *shape = "[model=37, ffn=320]"; /* fills no whole number of blocks of threads */
        check_nodes(arena_printf(arena, "%s, widened to %s", from, to),
                    (CudaCase){.nodes = arena_printf(
                                   arena,
                                   "%%0 = param() {name=\"\", init=\"zeros\", decay=1, frozen=1} "
                                   ": %s%s\n%%1 = widen(%%0) {dtype=\"%s\"} : %s%s\n",
                                   from, shape, to, to, shape)});
        arena_destroy(arena);
    }
}

/* Blocks along outer and inner axes, in a thread's memory or not, and what cannot be rounded. */
static void test_round_blocks(void) {
    static const char *const KINDS[] = {"q4_0", "q8_0", "f16"};
    static const char *const SHAPES[] = {"[model=64, ffn=37]", "[ffn=37, model=64]",
                                         "[head=16, ffn=5, heads=6]"};
    static const char *const ALONG[] = {"model", "model", "heads, head"};
    for (int i = 0; i < 9; i++) {
        Arena *arena = arena_create();
        const char *to = WIDE[i / 3], *shape = SHAPES[i % 3], *kind = KINDS[(i + i / 3) % 3];
        check_nodes(arena_printf(arena, "%s, rounded to %s as %s", shape, kind, to),
                    (CudaCase){.nodes = arena_printf(
                                   arena,
                                   "%%0 = param() {name=\"\", init=\"zeros\", decay=1} : f32%s\n"
                                   "%%1 = round_blocks(%%0) {dtype=\"%s\", blocks=\"%s\", "
                                   "along=[%s]} : %s%s\n",
                                   shape, to, kind, ALONG[i % 3], to, shape)});
        arena_destroy(arena);
    }
}

static void test_fp8_products(void) {
    check_nodes(
        "turned columns that fill no block of threads",
        (CudaCase){.nodes = INPUT(0, "", "A[seq=128, cols=48]")
                       INPUT(1, ":nan", "A[seq=128, cols=16]") "%2:2 = quantize(%0) {over=[seq], "
                                                               "last=[seq]} : fp8[cols=48, "
                                                               "seq=128], f32[seq=1, cols=48]\n"
                                                               "%3:2 = quantize(%1) {over=[seq], "
                                                               "last=[seq]} : fp8[cols=16, "
                                                               "seq=128], f32[seq=1, cols=16]\n"});
    if (!gpu_run_has_wgmma()) {
        puts("products of fp8 and scales: not run, the GPU is no sm_90");
        return;
    }
    /* Tensor cores of sm_90 add up products of fp8 in about 14 bits, fewer than f32 has
     * (DeepSeek-V3 Technical Report, 2024, 3.5.2); 5.1e-4 was seen on an H200. */
    double tolerance = gpu_run_wanted() ? 1e-3 : 0;
    check_nodes("products of fp8 and scales",
                (CudaCase){.nodes = FP8_PRODUCT_NODES("A["), .tolerance = tolerance});
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_norms();
    test_losses();
    test_special_logits();
    test_embedding();
    test_embedding_grad();
    test_rotary();
    test_rotary_rows();
    test_relative();
    test_documents();
    test_document_ends();
    test_ngram();
    test_quantize();
    test_blocks();
    test_round_blocks();
    test_fp8_products();
    cuda_check_coverage(launched, KERNEL_layernorm_warp_f32, KERNEL_round_f16);
    return check_report();
}
