/* Training with gradients of biases that the weights' products make, where tuning has found that
 * faster, and only there.
 *
 * Would catch: descriptors that say something else than the command; sums added up over
 * micro-batches by the product, or not at all; accesses that do not say that it writes the sum;
 * sums taken in for another device, or where cuBLASLt has no such product.
 */
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip bias gradients: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "runtime/cuda/summary.h"
#include "runtime/cuda/tune.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/generated_run.h"
#include "tests/unit/fake_check.h"

enum { STEPS = 2 };

/* The fake, with times made up: of a product, or of another launch. */
static const CuApi *fake_api;
static struct {
    CuApi api;
    bool was_product; /* what was issued last */
    double sum_ms;
} between;

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t la, const void *b,
                             cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                             cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                             const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                             cudaStream_t stream) {
    between.was_product = true;
    return fake_api->cublasLtMatmul(handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algo,
                                    workspace, bytes, stream);
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                          cudaStream_t stream) {
    between.was_product = false;
    return fake_api->cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

static cudaError_t elapsed(float *out_ms, cudaEvent_t first, cudaEvent_t last) {
    cudaError_t status = fake_api->cudaEventElapsedTime(out_ms, first, last);
    *out_ms = between.was_product ? 1 : (float)between.sum_ms;
    return status;
}

static void start_fake(double sum_ms, bool missing) {
    fake_api = fake_cuda_create(&(FakeOptions){.seed = 3, .poison = true, .no_epilogues = missing});
    memset(&between, 0, sizeof(between));
    between.api = *fake_api;
    between.api.cublasLtMatmul = matmul;
    between.api.cudaLaunchKernel = launch;
    between.api.cudaEventElapsedTime = elapsed;
    between.sum_ms = sum_ms;
    cuda_api_replace(&between.api);
}

static bool make_plan(Run *run, const Layout *layout, DType precision) {
    const ModelSetting settings[] = {{"optimizer.eps", "1e-4"},
                                     {"model", "16"},
                                     {"heads", "2"},
                                     {"seq", "8"},
                                     {"vocab", "31"},
                                     {"ffn", "32"},
                                     {"layers", layout->p == 1 ? "1" : "2"}};
    return run_plan_for(run, "models/gpt.lua", settings, 7, layout, 4, false, true, precision);
}

static int count_fused(const FakeGraph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].kind == FAKE_GEMM && graph->nodes[i].product.bias_grad;
    }
    return n;
}

/* The training graph comes first. Its nodes are as many as show says where it is one rank's. */
static void check_graph(const Run *run, int expected) {
    char why[512] = "";
    const FakeGraph *graph = fake_cuda_graph(0);
    int n_ranks = mesh_rank_count(&run->plan->mesh);
    CHECK(count_fused(graph) == expected, "%d sums in products, not %d", count_fused(graph),
          expected);
    CHECK(dag_check(graph, why, sizeof(why)), "%s", why);
    CHECK(dag_check_accesses(graph, why, sizeof(why)), "%s", why);
    if (n_ranks > 1) return;
    const Graph *program = run->plan->programs[run->plan->stages[0].program].graph;
    CudaPrices prices = {"nothing", 1, ARENA_ARRAY(run->arena, double, program->n_nodes)};
    CudaSummary summary;
    bool good = cuda_summarize(run->plan, &prices, run->arena, &summary, run->diag);
    CHECK(good && summary.n_nodes == graph->n_nodes, "%lld nodes, show says %lld",
          (long long)graph->n_nodes, (long long)summary.n_nodes);
}

typedef struct How {
    const PlanDevice *section; /* NULL: the plan is not tuned */
    bool missing, off;         /* the device has no epilogues; they are not wanted */
    int n_fused;               /* sums in products of a step */
} How;

/* The plan's section where a launch takes so long, products 1 ms. */
static PlanDevice tune(const Layout *layout, DType precision, double sum_ms, Arena *arena) {
    Run run;
    TuneResult tuned = {0};
    start_fake(sum_ms, false);
    bool good = make_plan(&run, layout, precision) &&
                cuda_tune(run.plan, &(TuneOptions){.brief = true}, arena, &tuned, run.diag);
    CHECK(good, "%s", diag_text(run.diag));
    CHECK(tuned.n_sums > 0 && tuned.n_sums_joined == (sum_ms > 0 ? tuned.n_sums : 0),
          "%d of %d joined", tuned.n_sums_joined, tuned.n_sums);
    run_close(&run);
    end_fake();
    return tuned.device;
}

/* Steps on the fake; the first one's gradients are kept. The fake stays, for its graphs. */
static bool train(Run *run, const How *how, const Layout *layout, DType precision) {
    start_fake(0, how->missing);
    bool good = make_plan(run, layout, precision);
    if (good && how->section) run->plan->device = *how->section;
    good = good &&
           run_start_on(run, &(EngineOptions){.device = DEVICE_CUDA,
                                              .virtual_ranks = true,
                                              .no_epilogues = how->off}) &&
           run_steps(run, 1, 2e-3);
    if (good) run_keep_gradients(run); /* in the arena: there after the engine, too */
    good = good && run_steps_from(run, 1, STEPS - 1, 2e-3);
    CHECK(good, "%s", diag_text(run->diag));
    if (good && how->n_fused) {
        check_graph(run, how->n_fused);
    } else if (good) {
        CHECK(count_fused(fake_cuda_graph(0)) == 0, "sums in products where they must not be");
    }
    engine_destroy(run->engine);
    run->engine = NULL;
    return good;
}

/* Sums of another order: as much apart as layouts are. In bf16 neither gradient is rounded. */
static void test_one(Arena *arena) {
    static const Layout ONE = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    const PlanDevice faster = tune(&ONE, DTYPE_F32, 1, arena);
    const PlanDevice slower = tune(&ONE, DTYPE_F32, 0, arena);
    PlanDevice other = faster;
    other.name = "Fake A100";
    /* Of a block's six, norms' gradients make two besides, of kinds of product that five have. */
    const struct {
        const char *name;
        How how;
    } cases[] = {
        {"tuned, and faster", {&faster, false, false, 1 * 2}}, /* biases, micro-batches */
        {"tuned, and slower", {&slower, false, false, 0}},
        {"tuned for another device", {&other, false, false, 0}},
        {"the device has none", {&faster, true, false, 0}},
        {"epilogues are off", {&faster, false, true, 0}},
    };
    Run run, plain;
    check_begin("not tuned");
    bool good = train(&plain, &(How){NULL, false, false, 0}, &ONE, DTYPE_F32);
    end_fake();
    for (size_t i = 0; good && i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_begin(cases[i].name);
        if (train(&run, &cases[i].how, &ONE, DTYPE_F32)) {
            compare_losses(&run, &plain, STEPS);
            compare_gradients(&run, &plain);
        }
        run_close(&run);
        end_fake();
    }
    run_close(&plain);
    check_end();
}

static void test_many(Arena *arena) {
    static const Layout MANY = {2, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    const PlanDevice faster = tune(&MANY, DTYPE_BF16, 1, arena);
    Run run;
    double losses[STEPS];
    check_begin("tuned, and faster, t=2 p=2 in bf16");
    bool good = train(&run, &(How){NULL, false, false, 0}, &MANY, DTYPE_BF16);
    memcpy(losses, run.losses, sizeof(losses));
    run_close(&run);
    end_fake();
    /* Of a block's six, by each of two ranks, a norm's gradient makes one. */
    good = train(&run, &(How){&faster, false, false, 2 * 5 * 2 * 2}, &MANY, DTYPE_BF16) && good;
    for (int s = 0; good && s < STEPS; s++) {
        CHECK(fabs(run.losses[s] - losses[s]) < 1e-3, "step %d: %.7f, not %.7f", s + 1,
              run.losses[s], losses[s]);
    }
    run_close(&run);
    end_fake();
    check_end();
}

int main(void) {
    const char *why = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (why) {
        printf("skip: %s\n", why);
        return 0;
    }
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    Arena *arena = arena_create();
    test_one(arena);
    test_many(arena);
    arena_destroy(arena);
    return check_report();
}
#endif
