/* Tuning on the fake: which products a plan has, which candidates are chosen, that training then
 * uses them, and when it must not. Times are made up here: by the algorithm that ran last. */
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip tuning: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "runtime/cuda/summary.h"
#include "runtime/cuda/tune.h"
#include "tests/unit/fake_check.h"

enum { GLOBAL_BATCH = 4, N_FAKE_ALGORITHMS = 2, MOST_BATCHES = 256 };

static const ModelSetting SETTINGS[] = {{"model", "16"}, {"heads", "2"},  {"seq", "8"},
                                        {"layers", "2"}, {"vocab", "31"}, {"ffn", "32"}};
enum { N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]) };

/* The fake's table with these functions in between. */
static const CuApi *fake_api;
static struct {
    CuApi api;
    double ms[N_FAKE_ALGORITHMS]; /* of a launch; negative: cublasLtMatmul refuses it */
    int last;                     /* algorithm issued last */
    size_t check_workspace;       /* what cublasLtMatmulAlgoCheck says is needed */
    size_t version;               /* 0: the fake's */
    double batch_ms;              /* of a batch of products; 0: as of one */
    bool was_batch, was_kernel;   /* what was issued last */
    bool kernels_free;            /* sums of biases take no time */
    double gelu_ms, copy_ms;      /* of products with gelu, and of copies; 0: as of others */
    bool was_gelu, was_copy;
    int n_gelus;
    const void *gelus[MOST_BATCHES]; /* operations that have gelu */
    int n_batches;
    const void *batches[MOST_BATCHES]; /* layouts that are of batches */
    int n_graph_launches;
} between;

static cublasStatus_t set_layout(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                 size_t bytes) {
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && between.n_batches < MOST_BATCHES) {
        between.batches[between.n_batches++] = layout;
    }
    return fake_api->cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes);
}

static cublasStatus_t set_operation(cublasLtMatmulDesc_t desc,
                                    cublasLtMatmulDescAttributes_t attribute, const void *value,
                                    size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE && between.n_gelus < MOST_BATCHES) {
        cublasLtEpilogue_t epilogue;
        memcpy(&epilogue, value, sizeof(epilogue));
        bool gelu =
            epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
        if (gelu) between.gelus[between.n_gelus++] = desc;
    }
    return fake_api->cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes);
}

static bool has_gelu(const void *desc) {
    for (int i = 0; i < between.n_gelus; i++) {
        if (between.gelus[i] == desc) return true;
    }
    return false;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream) {
    between.was_copy = true;
    return fake_api->cudaMemcpyAsync(to, from, bytes, kind, stream);
}

static bool is_batch(const void *layout) {
    for (int i = 0; i < between.n_batches; i++) {
        if (between.batches[i] == layout) return true;
    }
    return false;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t la, const void *b,
                             cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                             cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                             const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                             cudaStream_t stream) {
    between.last = (int)algo->data[1];
    between.was_batch = is_batch(ld);
    between.was_kernel = between.was_copy = false;
    between.was_gelu = has_gelu(desc);
    if (between.ms[between.last] < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    return fake_api->cublasLtMatmul(handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algo,
                                    workspace, bytes, stream);
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                          cudaStream_t stream) {
    between.was_kernel = true;
    return fake_api->cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

static cudaError_t elapsed(float *out_ms, cudaEvent_t first, cudaEvent_t last) {
    cudaError_t status = fake_api->cudaEventElapsedTime(out_ms, first, last);
    *out_ms = (float)between.ms[between.last];
    if (between.was_batch && between.batch_ms > 0) *out_ms = (float)between.batch_ms;
    if (between.was_gelu && between.gelu_ms > 0) *out_ms = (float)between.gelu_ms;
    if (between.was_copy && between.copy_ms > 0) *out_ms = (float)between.copy_ms;
    if (between.was_kernel && between.kernels_free) *out_ms = 0;
    return status;
}

static cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result) {
    cublasStatus_t status =
        fake_api->cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, algo, result);
    result->workspaceSize = between.check_workspace;
    return status;
}

static size_t version(void) {
    return between.version ? between.version : fake_api->cublasLtGetVersion();
}

static cudaError_t launch_graph(cudaGraphExec_t graph, cudaStream_t stream) {
    between.n_graph_launches++;
    return fake_api->cudaGraphLaunch(graph, stream);
}

static void start_fake(const FakeOptions *options) {
    fake_api = fake_cuda_create(options);
    memset(&between, 0, sizeof(between));
    between.api = *fake_api;
    between.api.cublasLtMatmul = matmul;
    between.api.cudaEventElapsedTime = elapsed;
    between.api.cudaLaunchKernel = launch;
    between.api.cudaMemcpyAsync = copy;
    between.api.cudaGraphLaunch = launch_graph;
    between.api.cublasLtMatmulDescSetAttribute = set_operation;
    between.api.cublasLtMatrixLayoutSetAttribute = set_layout;
    between.api.cublasLtMatmulAlgoCheck = check;
    between.api.cublasLtGetVersion = version;
    for (int i = 0; i < N_FAKE_ALGORITHMS; i++) between.ms[i] = 1;
    cuda_api_replace(&between.api);
}

static bool make_plan(Run *run, const Layout *layout, DType precision) {
    return run_plan_for(run, "models/gpt.lua", SETTINGS, N_SETTINGS, layout, GLOBAL_BATCH, true,
                        true, precision);
}

static const Layout ONE = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};

static bool tune(Run *run, TuneResult *out) {
    return cuda_tune(run->plan, &(TuneOptions){.brief = true}, run->arena, out, run->diag);
}

/* Where the fake keeps an algorithm's number. */
enum { NUMBER_AT = offsetof(cublasLtMatmulAlgo_t, data[1]) };

static int algorithm_of(const PlanAlgo *algo) {
    uint64_t number;
    memcpy(&number, algo->bytes + NUMBER_AT, sizeof(number));
    return (int)number;
}

static void set_algorithm(PlanAlgo *algo, uint64_t number) {
    memcpy(algo->bytes + NUMBER_AT, &number, sizeof(number));
}

/* Not brief, each candidate runs for long enough to be timed at the clocks of training. */
static void test_clocks(void) {
    int launches[2] = {0, 0};
    check_begin("candidates are timed under load");
    for (int brief = 0; brief < 2; brief++) {
        Run run;
        TuneResult result;
        start_fake(&(FakeOptions){.seed = 1});
        bool good =
            make_plan(&run, &ONE, DTYPE_F32) &&
            cuda_tune(run.plan, &(TuneOptions){.brief = brief}, run.arena, &result, run.diag);
        CHECK(good, "%s", diag_text(run.diag));
        launches[brief] = between.n_graph_launches;
        run_close(&run);
        end_fake();
    }
    /* Of a candidate, graphs of 2 ms: 15 and three times 10; brief, 1 and three times 1. */
    CHECK(launches[1] > 0 && launches[0] % 45 == 0 && launches[0] > 4 * launches[1],
          "%d launches, %d when brief", launches[0], launches[1]);
    check_end();
}

/* Those of the gradients of q, k and v are one (stack_products.h). */
static int count_products(const Plan *plan, int program) {
    const Graph *graph = plan->programs[program].graph;
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i]->op == OP_MATMUL;
        if (program_stacked_bytes(graph, graph->nodes[i]) > 0) n -= 2;
    }
    return n;
}

static void test_choice(void) {
    static const struct {
        double ms[N_FAKE_ALGORITHMS];
        int chosen; /* -1: tuning fails */
    } CASES[] = {
        {{1, 0.9}, 1},  /* faster */
        {{1, 0.99}, 0}, /* within what measurements of one differ by */
        {{0.9, 1}, 0},  /* slower */
        {{-1, 1}, 1},   /* the first choice does not run */
        {{1, -1}, 0},   {{-1, -1}, -1},
    };
    check_begin("the fastest candidate that runs is chosen");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Run run;
        TuneResult result;
        start_fake(&(FakeOptions){.seed = 1});
        memcpy(between.ms, CASES[i].ms, sizeof(between.ms));
        bool good = make_plan(&run, &ONE, DTYPE_F32) && tune(&run, &result);
        CHECK(good == (CASES[i].chosen >= 0), "case %zu: %s", i, diag_text(run.diag));
        CHECK(good || strstr(diag_text(run.diag), "no product of the plan could be timed"),
              "case %zu: %s", i, diag_text(run.diag));
        for (int p = 0; good && p < result.n_products; p++) {
            const TunedProduct *product = &result.products[p];
            CHECK(algorithm_of(&product->algo) == CASES[i].chosen, "case %zu, product %d", i, p);
            CHECK(product->changed == (CASES[i].chosen != 0), "case %zu: changed", i);
            CHECK((product->first_us < 0) == (CASES[i].ms[0] < 0), "case %zu: %g us", i,
                  product->first_us);
        }
        run_close(&run);
        end_fake();
    }
}

/* All products of all stages, each once, with how many a step has. */
static void test_products(void) {
    static const Layout TWO = {1, 1, 2, 1, 1, "1f1b", false, NULL, 0};
    const Layout *layouts[] = {&ONE, &TWO};
    check_begin("every product of every stage is tuned once, and counted");
    for (int i = 0; i < 4; i++) {
        Run run;
        TuneResult result = {0};
        start_fake(&(FakeOptions){.seed = 1});
        bool good =
            make_plan(&run, layouts[i % 2], i < 2 ? DTYPE_F32 : DTYPE_BF16) && tune(&run, &result);
        CHECK(good, "%s", diag_text(run.diag));
        int64_t counted = 0, most = 0, all = 0;
        for (int p = 0; good && p < run.plan->n_programs; p++) {
            int64_t n = (int64_t)count_products(run.plan, p) * run.plan->n_micro;
            if (n > most) most = n;
            all += n;
        }
        for (int p = 0; p < result.n_products; p++) {
            const PlanAlgo *algo = &result.products[p].algo;
            counted += result.products[p].count * (algo->shared ? algo->layout.batch : 1);
            for (int q = 0; q < p; q++) {
                CHECK(!plan_algo_same_product(&result.products[p].algo, &result.products[q].algo),
                      "product %d is there twice", p);
            }
        }
        CHECK(counted >= most && counted <= all, "%lld products, not %lld to %lld",
              (long long)counted, (long long)most, (long long)all);
        CHECK(result.device.n_algos == result.n_products, "%d kept of %d", result.device.n_algos,
              result.n_products);
        if (good) {
            StrBuf text = strbuf_create();
            run.plan->device = result.device;
            plan_print(&text, run.plan);
            Plan *back = plan_parse(run.arena, "tuned.plan", text.text, run.diag);
            CHECK(back && verify_plan(back, run.diag), "%s", diag_text(run.diag));
            CHECK(back && back->device.n_algos == result.n_products, "the section is lost");
            strbuf_destroy(&text);
        }
        run_close(&run);
        end_fake();
    }
}

/* Products of fp8, whose operands have scales beside them: those of tiles and of rows alone are
 * two, and the section says which is which. */
static void test_fp8(void) {
    static const ModelSetting WIDE[] = {{"model", "512"}, {"heads", "1"},  {"head", "128"},
                                        {"seq", "128"},   {"layers", "1"}, {"vocab", "32"},
                                        {"ffn", "128"}};
    int n_fp8 = 0, n_tiles = 0;
    Run run;
    TuneResult result = {0};
    check_begin("products of fp8 are tuned");
    start_fake(&(FakeOptions){.seed = 1});
    run_fp8_tensor_cores = true;
    bool good = run_plan_for(&run, "models/gpt.lua", WIDE, sizeof(WIDE) / sizeof(WIDE[0]), &ONE,
                             GLOBAL_BATCH, true, true, DTYPE_FP8) &&
                tune(&run, &result);
    run_fp8_tensor_cores = false;
    CHECK(good, "%s", diag_text(run.diag));
    for (int p = 0; p < result.n_products; p++) {
        const PlanAlgo *algo = &result.products[p].algo;
        n_fp8 += algo->in_dtype == DTYPE_FP8;
        n_tiles += algo->in_dtype == DTYPE_FP8 && algo->tiles == 2;
        CHECK(algo->in_dtype == DTYPE_FP8 || algo->tiles == 0, "tiles of no fp8");
    }
    CHECK(n_fp8 > n_tiles && n_tiles > 0, "%d of fp8, %d of them with tiles", n_fp8, n_tiles);
    StrBuf text = strbuf_create();
    if (good) run.plan->device = result.device;
    if (good) plan_print(&text, run.plan);
    Plan *back = good ? plan_parse(run.arena, "tuned.plan", text.text, run.diag) : NULL;
    CHECK(back && verify_plan(back, run.diag), "%s", diag_text(run.diag));
    strbuf_destroy(&text);
    run_close(&run);
    end_fake();
}

/* Too little memory for the largest products: the rest is tuned. */
static void test_memory(void) {
    Run run;
    TuneResult result = {0};
    enum { OPERANDS = 3 << 10 };
    check_begin("products that do not fit the device are left out");
    bool good = make_plan(&run, &ONE, DTYPE_F32);
    Workspace parts = {0};
    if (good) parts = program_workspace(run.plan->programs[0].graph, true);
    int64_t bytes = (parts.bytes[WORKSPACE_COMPUTE] + OPERANDS) / 3 * 4 + 4;
    start_fake(&(FakeOptions){.seed = 1, .memory_bytes = bytes});
    good = good && tune(&run, &result);
    CHECK(good, "%s", diag_text(run.diag));
    CHECK(result.device.n_algos > 0 && result.device.n_algos < result.n_products, "%d of %d",
          result.device.n_algos, result.n_products);
    run_close(&run);
    end_fake();
}

/* Algorithms of the products captured by an engine of the plan: how many have the number. */
static void run_engine(Run *run, int number, const char *tuning, const char *what) {
    int first = fake_cuda_n_graphs(), n_products = 0, n_right = 0;
    bool good = run_start_on(run, &(EngineOptions){.device = DEVICE_CUDA});
    CHECK(good, "%s: %s", what, diag_text(run->diag));
    if (!good) return;
    const char *said = engine_tuning(run->engine);
    CHECK(tuning ? said && strstr(said, tuning) != NULL : !said, "%s: '%s'", what,
          said ? said : "nothing");
    for (int g = first; g < fake_cuda_n_graphs(); g++) {
        const FakeGraph *graph = fake_cuda_graph(g);
        for (int i = 0; i < graph->n_nodes; i++) {
            if (graph->nodes[i].kind != FAKE_GEMM) continue;
            n_products++;
            n_right += graph->nodes[i].product.algorithm == number;
        }
    }
    CHECK(n_products > 0 && n_right == n_products, "%s: %d of %d products by algorithm %d", what,
          n_right, n_products, number);
    engine_destroy(run->engine);
    run->engine = NULL;
}

static void test_engine(void) {
    Run run;
    TuneResult result;
    check_begin("training uses what the plan keeps, on the same device and library only");
    start_fake(&(FakeOptions){.seed = 1});
    bool good = make_plan(&run, &ONE, DTYPE_F32) && tune(&run, &result);
    CHECK(good, "%s", diag_text(run.diag));
    if (good) {
        PlanDevice *device = &run.plan->device;
        char all[32], all_but_one[32];
        snprintf(all, sizeof(all), "%d of %d ", result.n_products, result.n_products);
        snprintf(all_but_one, sizeof(all_but_one), "%d of %d ", result.n_products - 1,
                 result.n_products);
        run_engine(&run, 0, NULL, "not tuned");
        *device = result.device;
        for (int i = 0; i < device->n_algos; i++) set_algorithm(&device->algos[i], 1);
        run_engine(&run, 1, all, "tuned here");
        between.version = 99;
        run_engine(&run, 0, "(0.0.99): not used", "another version");
        between.version = 0;
        device->name = "Fake A100";
        run_engine(&run, 0, "for Fake A100, sm_90 ", "another device");
        device->name = result.device.name;
        between.check_workspace = (size_t)1 << 40;
        run_engine(&run, 0, "0 of ", "too much workspace");
        between.check_workspace = 0;
        for (int i = 0; i < device->n_algos; i++) set_algorithm(&device->algos[i], 77);
        run_engine(&run, 0, "0 of ", "refused by the library");
        for (int i = 0; i < device->n_algos; i++) set_algorithm(&device->algos[i], 0);
        device->n_algos--;
        run_engine(&run, 0, all_but_one, "one product is missing");
    }
    run_close(&run);
    end_fake();
}

/* Joined products in the training graph. */
static int count_joined(const FakeGraph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].kind == FAKE_GEMM && graph->nodes[i].product.d.batch > 1;
    }
    return n;
}

/* q, k and v at once, unless they are faster one by one; on a device that says nothing, at once. */
static void test_joined(void) {
    static const struct {
        const char *name;
        double batch_ms; /* of each; a graph of two products takes 1 ms */
        bool tuned, joined, sums;
    } CASES[] = {{"not tuned", 0, false, true, false},
                 {"at once no slower", 0.9, true, true, false},
                 {"one by one faster", 1.6, true, false, false},
                 {"at once no slower, gradients make sums besides", 0.9, true, true, true}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Run run;
        TuneResult result = {0};
        char name[100];
        snprintf(name, sizeof(name), "products of one operand: %s", CASES[i].name);
        check_begin(name);
        start_fake(&(FakeOptions){.seed = 1});
        between.batch_ms = CASES[i].batch_ms;
        between.kernels_free = !CASES[i].sums;
        bool good = make_plan(&run, &ONE, DTYPE_BF16);
        if (good && CASES[i].tuned) good = tune(&run, &result);
        if (good && CASES[i].tuned) {
            run.plan->device = result.device;
            CHECK(result.n_joinable > 0, "no kind could be joined");
            CHECK(result.n_joined == (CASES[i].joined ? result.n_joinable : 0), "%d of %d joined",
                  result.n_joined, result.n_joinable);
        }
        int first = fake_cuda_n_graphs();
        good = good && run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA});
        CHECK(good, "%s", diag_text(run.diag));
        /* Of each block and micro-batch: forward, and the weights' gradients. */
        int blocks = good ? 2 * run.plan->n_micro : 0;
        int n = good ? count_joined(fake_cuda_graph(first)) : 0;
        int expected = CASES[i].joined ? 2 * blocks : 0;
        CHECK(n == expected, "%d joined in %d blocks", n, blocks);
        run_close(&run);
        end_fake();
    }
}

static int count_gelus(const FakeGraph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        int epilogue = graph->nodes[i].product.epilogue;
        n += graph->nodes[i].kind == FAKE_GEMM &&
             (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU);
    }
    return n;
}

/* As many nodes as `show` says. */
static void check_summary(const Run *run, const FakeGraph *graph) {
    const Graph *program = run->plan->programs[run->plan->stages[0].program].graph;
    const CudaPrices prices = {"nothing", 1, ARENA_ARRAY(run->arena, double, program->n_nodes)};
    CudaSummary summary;
    bool good = cuda_summarize(run->plan, &prices, run->arena, &summary, run->diag);
    CHECK(good && summary.n_nodes == graph->n_nodes, "%d nodes, show says %lld", graph->n_nodes,
          (long long)summary.n_nodes);
}

/* gelu and its gradient in the product, unless a product and a pass over its result are faster; on
 * a device that says nothing, in the product. */
static void test_gelu(void) {
    static const struct {
        const char *name;
        double gelu_ms, copy_ms; /* of one, of many copies; a graph of two products takes 1 ms */
        bool tuned, folded;
    } CASES[] = {{"not tuned", 1.6, 0.01, false, true},
                 {"in the product no slower", 1, 0.01, true, true},
                 {"in the product slower than a pass", 1.6, 0.01, true, false},
                 {"in the product slower, but less so than a pass", 1.6, 1, true, true}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Run run;
        TuneResult result = {0};
        char name[100];
        snprintf(name, sizeof(name), "gelu: %s", CASES[i].name);
        check_begin(name);
        start_fake(&(FakeOptions){.seed = 1});
        between.gelu_ms = CASES[i].gelu_ms;
        between.copy_ms = CASES[i].copy_ms;
        bool good = make_plan(&run, &ONE, DTYPE_BF16);
        if (good && CASES[i].tuned) good = tune(&run, &result);
        if (good && CASES[i].tuned) {
            run.plan->device = result.device;
            CHECK(result.n_gelus == 2, "%d kinds have gelu", result.n_gelus);
            CHECK(result.n_gelus_folded == (CASES[i].folded ? 2 : 0), "%d folded",
                  result.n_gelus_folded);
        }
        int first = fake_cuda_n_graphs();
        good = good && run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA});
        CHECK(good, "%s", diag_text(run.diag));
        /* Of each block and micro-batch: forward and backward. */
        int expected = good && CASES[i].folded ? 2 * 2 * run.plan->n_micro : 0;
        int n = good ? count_gelus(fake_cuda_graph(first)) : 0;
        CHECK(n == expected, "%d products with gelu, not %d", n, expected);
        if (good) check_summary(&run, fake_cuda_graph(first));
        run_close(&run);
        end_fake();
    }
}

int main(void) {
    unsetenv("HOME"); /* compiled kernels are not kept */
    unsetenv("XDG_CACHE_HOME");
    test_choice();
    test_clocks();
    test_products();
    test_fp8();
    test_memory();
    test_engine();
    test_joined();
    test_gelu();
    return check_report();
}
#endif
