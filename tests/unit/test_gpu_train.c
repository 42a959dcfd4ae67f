/* Training on a real GPU against the CPU; skipped, with the reason, where there is none.
 *
 * fp32: one rank and every layout of virtual ranks, held to what layouts are held to among
 * themselves (train_compare.h): only the order of sums differs. bf16: losses within 2 % of the same
 * plan on the CPU, for each activation is rounded to 8 bits and the two sum in other orders; f16:
 * to 11 bits, and within 1 %. fp8: as bf16, which its activations are.
 * The captured graph, its pieces and single commands: the same bits.
 */
#include "ir/base/clock.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/train_compare.h"

#ifdef HAVE_CUDA
#include "runtime/cuda/driver/device.h"
#include "runtime/engine_internal.h"
#endif

enum { STEPS = 5, CURVE_STEPS = 200, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t;
    ModelSetting settings[16];
} Variant;

/* Heads of 8, 64 and 128: attention without and with tensor cores. */
/* clang-format off */
#define COMMON {"optimizer.eps", "1e-6"}, {"layers", "5"}, {"vocab", "61"}
/* clang-format on */
static const Variant VARIANTS[] = {
    {"gpt",
     "models/gpt.lua",
     4,
     {COMMON, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"ffn", "64"}}},
    {"gpt dropout, head 64",
     "models/gpt.lua",
     2,
     {COMMON,
      {"model", "128"},
      {"heads", "2"},
      {"seq", "80"},
      {"dropout", "0.1"},
      {"attention_dropout", "0.2"}}},
    {"llama, head 128",
     "models/llama.lua",
     2,
     {COMMON, {"model", "512"}, {"heads", "4"}, {"kv_heads", "2"}, {"seq", "48"}, {"ffn", "88"}}},
};
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]) };

static const Layout LAYOUTS[] = {
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},        {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},
    {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},         {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 8, 1, "1f1b", false, NULL, 0},        {1, 4, 1, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},        {1, 1, 2, 4, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},
    {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},        {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},
    {2, 1, 2, 2, 2, "interleaved", true, NULL, 0},  {1, 2, 4, 2, 1, "1f1b", false, NULL, 0},
    {2, 2, 2, 2, 1, "1f1b", false, NULL, 0},        {2, 2, 2, 2, 2, "interleaved", true, NULL, 0},
    {2, 4, 1, 2, 1, "1f1b", true, NULL, 0},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};

static const EngineOptions CPU = {.timeout_seconds = 60};
static const EngineOptions GRAPH = {.device = DEVICE_CUDA, .virtual_ranks = true};
static const EngineOptions EAGER = {.device = DEVICE_CUDA, .virtual_ranks = true, .no_graph = true};

static int count_settings(const Variant *variant) {
    int count = 0;
    while (variant->settings[count].key) count++;
    return count;
}

static bool train(Run *run, const Variant *variant, const Layout *layout, DType precision,
                  const EngineOptions *options) {
    if (!run_plan_for(run, variant->path, variant->settings, count_settings(variant), layout,
                      GLOBAL_BATCH, true, true, precision)) {
        return false;
    }
    return run_start_on(run, options) && run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void check_layout(const Variant *variant, const Layout *layout, Run *one) {
    char name[160];
    Run run;
    check_begin(layout_name(variant->name, layout, name, sizeof(name)));
    bool done = train(&run, variant, layout, DTYPE_F32, &GRAPH);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_runs(&run, one, STEPS);
    }
    run_close(&run);
    check_end();
}

/* Products by the plain kernel: in f32 held to what cuBLASLt's are. */
static void check_own_products(const Variant *variant, Run *one) {
    static const EngineOptions OWN = {
        .device = DEVICE_CUDA, .virtual_ranks = true, .own_products = true};
    char name[160], full[200];
    Run run;
    layout_name(variant->name, &LAYOUTS[11], name, sizeof(name));
    snprintf(full, sizeof(full), "own products, %s", name);
    check_begin(full);
    bool done = train(&run, variant, &LAYOUTS[11], DTYPE_F32, &OWN);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    run_close(&run);
    check_end();
}

/* Closes both. */
static void compare_bits(const char *title, bool done, Run *a, Run *b) {
    check_begin(title);
    CHECK(done, "%s%s", diag_text(a->diag), diag_text(b->diag));
    for (int step = 0; done && step < STEPS; step++) {
        CHECK(a->losses[step] == b->losses[step], "loss of step %d: %.9g and %.9g", step + 1,
              a->losses[step], b->losses[step]);
    }
    for (int i = 0; done && i < a->n_params; i++) {
        size_t bytes = (size_t)type_elements(&a->types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(a, i), run_weight(b, i), bytes) == 0, "'%s' differs", a->names[i]);
    }
    run_close(a);
    run_close(b);
    check_end();
}

static void check_bits(const Variant *variant, DType precision, const Layout *layout) {
    Run graph, eager;
    bool done = train(&graph, variant, layout, precision, &GRAPH);
    done &= train(&eager, variant, layout, precision, &EAGER);
    compare_bits("a captured graph gives the bits of single commands", done, &graph, &eager);
}

static void check_halves(const Variant *variant, const Layout *layout) {
    Run split, whole;
    run_split_masters = true;
    bool done = train(&split, variant, layout, DTYPE_BF16, &GRAPH);
    run_split_masters = false;
    done &= train(&whole, variant, layout, DTYPE_BF16, &GRAPH);
    compare_bits("copies that are halves of parameters give the bits of others", done, &split,
                 &whole);
}

/* Nothing is computed otherwise where states and masters lie in the machine's memory. */
static void check_offload(const Variant *variant, DType precision, const Layout *layout,
                          int percent) {
    Run far, near;
    run_offload = percent;
    bool done = train(&far, variant, layout, precision, &GRAPH);
    run_offload = 0;
    CHECK(!done || engine_host_bytes(far.engine) > 0, "nothing is on the host");
    done &= train(&near, variant, layout, precision, &GRAPH);
    compare_bits("states on the host give the bits of others", done, &far, &near);
}

/* Nor where what blocks keep goes there and comes back. */
static void check_activations(const Variant *variant, DType precision, const Layout *layout) {
    Run far, near;
    run_offload_activations = 100;
    bool done = train(&far, variant, layout, precision, &GRAPH);
    run_offload_activations = 0;
    CHECK(!done || engine_host_bytes(far.engine) > 0, "nothing is on the host");
    done &= train(&near, variant, layout, precision, &GRAPH);
    compare_bits("activations on the host give the bits of others", done, &far, &near);
}

static void check_low(const Variant *variant, DType precision, const Layout *layout) {
    const double tolerance = precision == DTYPE_F16 ? 0.01 : 0.02;
    char name[160], full[200];
    Run cpu, cuda;
    layout_name(variant->name, layout, name, sizeof(name));
    snprintf(full, sizeof(full), "%s%s%s %s", dtype_name(precision),
             run_state_dtype == DTYPE_BF16 ? ", states in bf16," : "",
             run_gradient_dtype == DTYPE_BF16 ? ", gradients in bf16," : "", name);
    bool done = train(&cpu, variant, &ALONE, precision, &CPU);
    done &= train(&cuda, variant, layout, precision, &GRAPH);
    check_begin(full);
    CHECK(done, "%s%s", diag_text(cpu.diag), diag_text(cuda.diag));
    for (int step = 0; done && step < STEPS; step++) {
        double error = fabs(cuda.losses[step] - cpu.losses[step]) / cpu.losses[step];
        CHECK(error < tolerance, "loss of step %d is %.6f, on the CPU %.6f", step + 1,
              cuda.losses[step], cpu.losses[step]);
    }
    run_close(&cpu);
    run_close(&cuda);
    check_end();
}

/* The loss of many steps, on batches that repeat so that there is something to learn. */
static bool curve(Run *run, DType precision, const EngineOptions *options, double *out_losses) {
    const Variant *variant = &VARIANTS[0];
    if (!run_plan_for(run, variant->path, variant->settings, count_settings(variant), &ALONE,
                      GLOBAL_BATCH, false, true, precision) ||
        !run_start_on(run, options)) {
        return false;
    }
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    for (int step = 0; step < CURVE_STEPS; step++) {
        StepResult result;
        fill_batch(run->plan, step % 4, tokens, labels);
        if (!engine_step(run->engine, step + 1, tokens, labels, LEARNING_RATE, &result,
                         run->diag)) {
            return false;
        }
        out_losses[step] = result.loss;
    }
    return true;
}

/* The largest difference of means of `each` losses, as a share of the other's. */
static double curve_error(const double *losses, const double *others, int each) {
    double worst = 0;
    for (int first = 0; first < CURVE_STEPS; first += each) {
        double sum = 0, other = 0;
        for (int step = first; step < first + each; step++) {
            sum += losses[step];
            other += others[step];
        }
        double error = fabs(sum - other) / other;
        if (error > worst) worst = error;
    }
    return worst;
}

/* Losses of single steps in 16 bits are compared in means: on the CPU, too, they differ from f32's
 * by up to 4.6 %, as small differences grow while there is much to learn. */
static void check_curve(DType precision, int each, double tolerance) {
    static double cpu_losses[CURVE_STEPS], cuda_losses[CURVE_STEPS];
    Run cpu, cuda;
    bool done = curve(&cpu, DTYPE_F32, &CPU, cpu_losses);
    done &= curve(&cuda, precision, &GRAPH, cuda_losses);
    check_begin(precision == DTYPE_F32    ? "200 steps in f32 against the CPU's"
                : precision == DTYPE_BF16 ? "200 steps in bf16 against the CPU's in f32"
                                          : "200 steps in f16 against the CPU's in f32");
    CHECK(done, "%s%s", diag_text(cpu.diag), diag_text(cuda.diag));
    double error = done ? curve_error(cuda_losses, cpu_losses, each) : 0;
    CHECK(error < tolerance, "means of %d losses differ by %.3g", each, error);
    CHECK(!done || cuda_losses[CURVE_STEPS - 1] < 0.9 * cuda_losses[0], "nothing was learnt: %g",
          cuda_losses[CURVE_STEPS - 1]);
    if (done) {
        printf("loss %.4f to %.4f; the CPU's to %.4f; means of %d differ by up to %.2g, single "
               "losses by %.2g\n",
               cuda_losses[0], cuda_losses[CURVE_STEPS - 1], cpu_losses[CURVE_STEPS - 1], each,
               error, curve_error(cuda_losses, cpu_losses, 1));
    }
    run_close(&cpu);
    run_close(&cuda);
    check_end();
}

#ifdef HAVE_CUDA
/* As the engine makes and ends communicators: every call is polled to its end. */
static bool settle(const CuApi *api, ncclComm_t comm, ncclResult_t status) {
    double start = clock_now();
    while (status == ncclInProgress && clock_now() - start < 60) {
        ncclResult_t seen = api->ncclCommGetAsyncError(comm, &status);
        if (seen != ncclSuccess) status = seen;
    }
    return status == ncclSuccess;
}

typedef struct NcclGraph {
    const CuApi *api;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    float *memory;   /* [3][N]: from, to, and to of the group's second */
    bool registered; /* as arenas are */
    void *registration;
    bool group; /* of an all-reduce and an all-gather, as blocks' messages are */
} NcclGraph;

enum { NCCL_COUNT = 1000 };

/* From one buffer to another: NCCL gives nothing to the device where one rank sums in place. */
static ncclResult_t call_nccl(const NcclGraph *g) {
    const CuApi *api = g->api;
    float *to = g->memory + NCCL_COUNT;
    if (g->group) {
        ncclResult_t status = api->ncclGroupStart();
        if (status != ncclSuccess) return status;
        status = api->ncclAllGather(g->memory, to + NCCL_COUNT, NCCL_COUNT, ncclFloat32, g->comm,
                                    g->stream);
        CHECK(status == ncclSuccess || status == ncclInProgress, "an all-gather of a group");
    }
    ncclResult_t status =
        api->ncclAllReduce(g->memory, to, NCCL_COUNT, ncclFloat32, ncclSum, g->comm, g->stream);
    if (!g->group) return status;
    CHECK(status == ncclSuccess || status == ncclInProgress, "an all-reduce of a group");
    return api->ncclGroupEnd();
}

static bool capture_nccl(NcclGraph *g) {
    const CuApi *api = g->api;
    size_t n_nodes = 0;
    bool fine =
        api->cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess &&
        settle(api, g->comm, call_nccl(g));
    fine &= api->cudaStreamEndCapture(g->stream, &g->graph) == cudaSuccess;
    return fine && api->cudaGraphGetNodes(g->graph, NULL, &n_nodes) == cudaSuccess && n_nodes > 0 &&
           api->cudaGraphInstantiate(&g->executable, g->graph, 0) == cudaSuccess;
}

static bool allocate_nccl(NcclGraph *g) {
    const CuApi *api = g->api;
    const size_t bytes = 3 * NCCL_COUNT * sizeof(float);
    void *memory = NULL;
    if (g->registered) {
        if (api->ncclMemAlloc(&memory, bytes) != ncclSuccess) return false;
    } else if (api->cudaMalloc(&memory, bytes) != cudaSuccess) {
        return false;
    }
    g->memory = memory;
    return !g->registered ||
           settle(api, g->comm, api->ncclCommRegister(g->comm, g->memory, bytes, &g->registration));
}

static bool open_nccl(NcclGraph *g) {
    const CuApi *api = g->api;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    if (api->cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking) != cudaSuccess ||
        api->ncclGetUniqueId(&id) != ncclSuccess) {
        return false;
    }
    ncclResult_t status = api->ncclCommInitRankConfig(&g->comm, 1, id, 0, &config);
    return g->comm && settle(api, g->comm, status) && allocate_nccl(g);
}

static void close_nccl(NcclGraph *g) {
    const CuApi *api = g->api;
    if (g->executable) api->cudaGraphExecDestroy(g->executable);
    if (g->graph) api->cudaGraphDestroy(g->graph);
    if (g->registration) api->ncclCommDeregister(g->comm, g->registration);
    if (g->memory && g->registered) api->ncclMemFree(g->memory);
    if (g->comm) {
        CHECK(settle(api, g->comm, api->ncclCommFinalize(g->comm)), "the end");
        api->ncclCommDestroy(g->comm);
    }
    if (g->stream) api->cudaStreamDestroy(g->stream);
    if (g->memory && !g->registered) api->cudaFree(g->memory);
}

/* A communicator of one rank: capture and replay. */
static void check_nccl(bool group) {
    enum { LAUNCHES = 3 };
    NcclGraph g = {.api = cuda_api(), .registered = group, .group = group};
    const CuApi *api = g.api;
    float host[3 * NCCL_COUNT] = {0};
    if (!api->path[LIBRARY_nccl]) {
        printf("skip NCCL: not found: %s\n", api->error[LIBRARY_nccl]);
        return;
    }
    check_begin(group ? "NCCL: a captured group of one rank in registered memory"
                      : "NCCL: a captured all-reduce of one rank");
    for (int i = 0; i < NCCL_COUNT; i++) host[i] = (float)i;
    bool fine = open_nccl(&g);
    CHECK(fine, "a communicator: %s", g.comm ? api->ncclGetLastError(g.comm) : "none was made");
    fine = fine &&
           api->cudaMemcpy(g.memory, host, sizeof(host), cudaMemcpyHostToDevice) == cudaSuccess &&
           api->cudaDeviceSynchronize() == cudaSuccess;
    CHECK(fine && capture_nccl(&g), "a capture: %s",
          api->cudaGetErrorString(api->cudaGetLastError()));
    for (int i = 0; g.executable && i < LAUNCHES; i++) {
        CHECK(api->cudaGraphLaunch(g.executable, g.stream) == cudaSuccess, "launch");
    }
    if (g.executable) {
        CHECK(api->cudaStreamSynchronize(g.stream) == cudaSuccess &&
                  api->cudaMemcpy(host, g.memory, sizeof(host), cudaMemcpyDeviceToHost) ==
                      cudaSuccess,
              "run");
        for (int i = 0; i < NCCL_COUNT; i++) {
            CHECK(host[NCCL_COUNT + i] == (float)i, "element %d is %g", i,
                  (double)host[NCCL_COUNT + i]);
            CHECK(!group || host[2 * NCCL_COUNT + i] == (float)i, "gathered element %d is %g", i,
                  (double)host[2 * NCCL_COUNT + i]);
        }
    }
    close_nccl(&g);
    check_end();
}
#else
static void check_nccl(bool group) {
    (void)group;
}
#endif

/* On tensor cores where the device has such products, and widened: both as the CPU has it. */
static void check_fp8(void) {
    static const Variant LLAMA = {"llama, head 128, fp8",
                                  "models/llama.lua",
                                  2,
                                  {{"optimizer.eps", "1e-6"},
                                   {"layers", "2"},
                                   {"vocab", "61"},
                                   {"model", "512"},
                                   {"heads", "4"},
                                   {"kv_heads", "2"},
                                   {"seq", "128"},
                                   {"ffn", "512"}}};
    check_low(&LLAMA, DTYPE_FP8, &ALONE);
    run_fp8_tensor_cores = gpu_run_has_wgmma();
    if (run_fp8_tensor_cores) {
        check_low(&LLAMA, DTYPE_FP8, &ALONE);
        check_low(&LLAMA, DTYPE_FP8, &LAYOUTS[1]);
        check_bits(&LLAMA, DTYPE_FP8, &LAYOUTS[1]);
    } else {
        puts("fp8 on tensor cores: not run, the GPU is no sm_90");
    }
    run_fp8_tensor_cores = false;
}

int main(void) {
    const char *why;
    if (!engine_cuda_available(&why)) {
        printf("skip training on a GPU: %s\n", why);
        return 0;
    }
    for (int v = 0; v < N_VARIANTS; v++) {
        Run one;
        bool done = train(&one, &VARIANTS[v], &ALONE, DTYPE_F32, &CPU);
        check_begin(VARIANTS[v].name);
        CHECK(done, "on the CPU: %s", diag_text(one.diag));
        check_end();
        for (int l = 0; done && l < N_LAYOUTS; l++) {
            if (LAYOUTS[l].t <= VARIANTS[v].most_t) check_layout(&VARIANTS[v], &LAYOUTS[l], &one);
        }
        if (done) check_own_products(&VARIANTS[v], &one);
        run_lanes = 2;
        for (int l = 10; done && l <= 12; l++) check_layout(&VARIANTS[v], &LAYOUTS[l], &one);
        check_bits(&VARIANTS[v], DTYPE_BF16, &LAYOUTS[11]);
        run_lanes = 1;
        run_close(&one);
        check_low(&VARIANTS[v], DTYPE_BF16, &ALONE);
        check_low(&VARIANTS[v], DTYPE_BF16, &LAYOUTS[2]);
        run_state_dtype = DTYPE_BF16;
        check_low(&VARIANTS[v], DTYPE_BF16, &LAYOUTS[2]);
        run_state_dtype = DTYPE_F32;
        run_gradient_dtype = DTYPE_BF16;
        check_low(&VARIANTS[v], DTYPE_BF16, &ALONE);
        run_zero = 2;
        check_low(&VARIANTS[v], DTYPE_BF16, &LAYOUTS[5]);
        run_zero = 0;
        run_gradient_dtype = DTYPE_F32;
        check_halves(&VARIANTS[v], &ALONE);
        check_halves(&VARIANTS[v], &LAYOUTS[2]);
        check_offload(&VARIANTS[v], DTYPE_BF16, &ALONE, 100);
        check_offload(&VARIANTS[v], DTYPE_F32, &LAYOUTS[2], 60);
        check_activations(&VARIANTS[v], DTYPE_BF16, &ALONE);
        check_low(&VARIANTS[v], DTYPE_F16, &ALONE);
        check_low(&VARIANTS[v], DTYPE_F16, &LAYOUTS[2]);
        check_bits(&VARIANTS[v], DTYPE_F32, &LAYOUTS[11]);
        check_bits(&VARIANTS[v], DTYPE_BF16, &LAYOUTS[11]);
        check_bits(&VARIANTS[v], DTYPE_F16, &LAYOUTS[11]);
    }
    check_curve(DTYPE_F32, 1, 1e-3);
    check_curve(DTYPE_BF16, 20, 0.04);
    check_curve(DTYPE_F16, 20, 0.04);
    check_fp8();
    check_nccl(false);
    check_nccl(true);
    compare_print_worst();
    return check_report();
}
