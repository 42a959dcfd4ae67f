/* Sums over rows that go straight into their accumulators: which launches are gone, and that the
 * bits are those of two launches.
 *
 * Would catch: a share that something else reads left out; an accumulator set where it is to be
 * added to, or the other way round; a chunk's sum added instead of the whole; gain and bias mixed
 * up; a result early where something still reads the accumulator.
 */
#include "runtime/cuda/accumulation.h"
#include "runtime/cuda/codegen.h"
#include "tests/unit/cuda_check.h"

/* In the nodes, $ is the dtype of activations. */
typedef struct Case {
    const char *name, *nodes;
    int n_folded;
} Case;

#define INPUT(id, values, type) "%" #id " = input() {name=\"" values "\"} : " type "\n"
#define ACCUMULATOR(id, type)                                                                      \
    "%" #id " = accumulator() {name=\"a" #id "\", of=\"a" #id "\"} : " type "\n"
#define SUM(rows, columns)                                                                         \
    INPUT(0, "", "$[rows=" #rows ", cols=" #columns "]")                                           \
    ACCUMULATOR(1, "f32[cols=" #columns "]")                                                       \
    "backward:\n%2 = reduce_sum(%0) {over=[rows], dtype=\"f32\"} : f32[cols=" #columns "]\n"
#define NORM                                                                                       \
    INPUT(0, "", "$[rows=19, cols=40]")                                                            \
    INPUT(1, "+", "f32[cols=40]")                                                                  \
    INPUT(2, "", "f32[rows=19]")                                                                   \
    INPUT(3, "+", "f32[rows=19]")                                                                  \
    INPUT(4, "", "$[rows=19, cols=40]")                                                            \
    ACCUMULATOR(5, "f32[cols=40]") ACCUMULATOR(6, "f32[cols=40]")
#define LAYERNORM                                                                                  \
    NORM                                                                                           \
        "backward:\n%7:3 = layernorm_grad(%0, %1, %2, %3, %4) {axis=cols} : $[rows=19, cols=40], " \
        "f32[cols=40], f32[cols=40]\n"

static const Case CASES[] = {
    {"a bias' gradient", SUM(23, 128) "%3 = accumulate(%1, %2) : f32[cols=128]\n", 1},
    {"a bias' gradient in chunks", SUM(523, 128) "%3 = accumulate(%1, %2) : f32[cols=128]\n", 1},
    {"sums of rows",
     INPUT(0, "", "$[rows=19, cols=100]") ACCUMULATOR(
         1, "f32[rows=19]") "backward:\n%2 = reduce_sum(%0) {over=[cols], dtype=\"f32\"} : "
                            "f32[rows=19]\n%3 = accumulate(%1, %2) : f32[rows=19]\n",
     1},
    {"sums of long rows",
     INPUT(0, "", "$[rows=3, cols=8200]") ACCUMULATOR(
         1, "f32[rows=3]") "backward:\n%2 = reduce_sum(%0) {over=[cols], dtype=\"f32\"} : "
                           "f32[rows=3]\n%3 = accumulate(%1, %2) : f32[rows=3]\n",
     1},
    {"a layernorm's gradients",
     LAYERNORM "%8 = accumulate(%5, %7.1) : f32[cols=40]\n%9 = accumulate(%6, %7.2) : "
               "f32[cols=40]\n",
     2},
    {"a layernorm's gradients, the bias' first",
     LAYERNORM "%8 = accumulate(%5, %7.2) : f32[cols=40]\n%9 = accumulate(%6, %7.1) : "
               "f32[cols=40]\n",
     2},
    {"a layernorm's bias' gradient only",
     LAYERNORM "output(%7.1) {name=\"x\"}\n%9 = accumulate(%6, %7.2) : f32[cols=40]\n", 1},
    {"an rmsnorm's gradient",
     NORM "backward:\n%7:2 = rmsnorm_grad(%0, %1, %3, %4) {axis=cols} : $[rows=19, cols=40], "
          "f32[cols=40]\n%8 = accumulate(%5, %7.1) : f32[cols=40]\n",
     1},
    /* What must be left alone. */
    {"a share that is an output",
     SUM(23, 128) "output(%2) {name=\"x\"}\n%4 = accumulate(%1, %2) : f32[cols=128]\n", 0},
    {"a share that is read twice",
     SUM(23, 128) "%3 = copy(%2) : f32[cols=128]\n%4 = accumulate(%1, %2) : f32[cols=128]\n", 0},
    {"an accumulator that is read before",
     SUM(23, 128) "%3 = copy(%1) : f32[cols=128]\n%4 = accumulate(%1, %2) : f32[cols=128]\n", 0},
    {"a share of other making",
     INPUT(0, "", "f32[cols=128]") ACCUMULATOR(1, "f32[cols=128]") "backward:\n%2 = neg(%0) : "
                                                                   "f32[cols=128]\n%3 = "
                                                                   "accumulate(%1, %2) : "
                                                                   "f32[cols=128]\n",
     0},
    {"a forward's sum",
     INPUT(0, "", "$[rows=23, cols=128]")
         ACCUMULATOR(1, "f32[cols=128]") "%2 = reduce_sum(%0) {over=[rows], dtype=\"f32\"} : "
                                         "f32[cols=128]\n%3 = accumulate(%1, %2) : f32[cols=128]\n",
     0},
};

/* What the accumulators hold after the makers' launches alone, against accumulators and shares of
 * the list as it was, put together here. */
static void compare_bits(CudaKernelRun *folded, CudaKernelRun *apart, bool overwrite) {
    const Graph *graph = folded->base.reference->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATE) continue;
        Value into = node->inputs[0], share = node->inputs[1];
        float *const *after = (float *const *)folded->base.ranks[0].buffers;
        float *const *before = (float *const *)apart->base.ranks[0].buffers;
        const float *shares = before[share.node->id * MAX_OUTPUTS + share.output];
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            float expected = shares[i], got = after[n * MAX_OUTPUTS][i];
            if (!overwrite) expected += before[into.node->id * MAX_OUTPUTS][i];
            CHECK(got == expected, "%%%d, element %d is %.9g, not %.9g", n, (int)i, (double)got,
                  (double)expected);
        }
    }
}

static void check_case(const Case *c, const char *dtype, bool overwrite) {
    CudaFixture f;
    CudaKernelRun run, apart;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    const char *text = "", *at = c->nodes, *next;
    for (; (next = strchr(at, '$')); at = next + 1) {
        text = arena_printf(arena, "%s%.*s%s", text, (int)(next - at), at, dtype);
    }
    check_begin(arena_printf(arena, "%s, %s, %s", c->name, dtype, overwrite ? "set" : "added"));
    if (cuda_fixture_create(&f, NULL, arena_printf(arena, "%s%s", text, at))) {
        f.reference->overwrite = overwrite;
        bool bound = cuda_kernel_run_create(&run, f.reference, -1, &hooks, f.diag) &&
                     cuda_kernel_run_create(&apart, f.reference, -1, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        cuda_describe_commands(&run, arena);
        int before = run.lists[0].count;
        int n_folded = cuda_fold_accumulations(&run.lists[0], f.graph, arena);
        CHECK(n_folded == c->n_folded, "%d launches folded", n_folded);
        CHECK(run.lists[0].count == before - n_folded, "%d commands of %d", run.lists[0].count,
              before);
        if (n_folded && cuda_run_launches(&run) && cuda_run_launches(&apart)) {
            compare_bits(&run, &apart, overwrite);
        }
        cuda_kernel_run_destroy(&run);
        cuda_kernel_run_destroy(&apart);
    }
    check_end();
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            check_case(&CASES[i], "f32", overwrite);
            check_case(&CASES[i], "bf16", overwrite);
            check_case(&CASES[i], "f16", overwrite);
        }
    }
    return check_report();
}
