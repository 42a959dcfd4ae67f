/* Tuning of attention on the fake: cuDNN's or own kernels', whichever is faster, that training then
 * does so, and when it must not. Times are made up here: by what was issued last. */
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip tuning of attention: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "runtime/cuda/tune.h"
#include "tests/unit/fake_check.h"

enum { CUDNN = 91900 };
static const ModelSetting SETTINGS[] = {{"model", "32"}, {"heads", "4"},  {"seq", "8"},
                                        {"layers", "1"}, {"vocab", "31"}, {"ffn", "32"}};
enum { N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]) };
static const Layout ONE = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};

/* The fake's table with these functions in between. */
static const CuApi *fake_api;
static struct {
    CuApi api;
    double own_ms, library_ms; /* negative: cuDNN's refuses to run */
    bool was_library;          /* issued last */
    size_t version;            /* 0: the fake's */
} between;

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack) {
    between.was_library = true;
    if (between.library_ms < 0) return CUDNN_STATUS_EXECUTION_FAILED;
    return fake_api->cudnnBackendExecute(handle, plan, pack);
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                          cudaStream_t stream) {
    between.was_library = false;
    return fake_api->cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

static cudaError_t elapsed(float *out_ms, cudaEvent_t first, cudaEvent_t last) {
    cudaError_t status = fake_api->cudaEventElapsedTime(out_ms, first, last);
    *out_ms = (float)(between.was_library ? between.library_ms : between.own_ms);
    return status;
}

static size_t version(void) {
    return between.version ? between.version : fake_api->cudnnGetVersion();
}

static void start_fake(int cudnn_version, double own_ms, double library_ms) {
    fake_api = fake_cuda_create(&(FakeOptions){.seed = 1, .cudnn_version = cudnn_version});
    memset(&between, 0, sizeof(between));
    between.api = *fake_api;
    between.own_ms = own_ms;
    between.library_ms = library_ms;
    between.api.cudnnBackendExecute = execute;
    between.api.cudaEventElapsedTime = elapsed;
    between.api.cudaLaunchKernel = launch;
    between.api.cudnnGetVersion = version;
    cuda_api_replace(&between.api);
}

static bool tune(Run *run, TuneResult *out) {
    run_cudnn_backward = true;
    return run_plan_for(run, "models/gpt.lua", SETTINGS, N_SETTINGS, &ONE, 4, true, true,
                        DTYPE_BF16) &&
           cuda_tune(run->plan, &(TuneOptions){0}, run->arena, out, run->diag);
}

static int count_library(const FakeGraph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) n += graph->nodes[i].kind == FAKE_ATTENTION;
    return n;
}

/* The plan as written and read back; in its step every attention is cuDNN's, or none is. */
static void check_training(Run *run, bool library, const char *said, const char *what) {
    StrBuf text = strbuf_create();
    plan_print(&text, run->plan);
    Plan *back = plan_parse(run->arena, "tuned.plan", text.text, run->diag);
    strbuf_destroy(&text);
    CHECK(back && verify_plan(back, run->diag), "%s: %s", what, diag_text(run->diag));
    if (!back) return;
    run->plan = back;
    int first = fake_cuda_n_graphs();
    bool good = run_start_on(run, &(EngineOptions){.device = DEVICE_CUDA});
    CHECK(good, "%s: %s", what, diag_text(run->diag));
    if (!good) return;
    int n = count_library(fake_cuda_graph(first)), expected = 2 * run->plan->n_micro;
    CHECK(n == (library ? expected : 0), "%s: %d of %d attentions by cuDNN", what, n, expected);
    const char *tuning = engine_tuning(run->engine);
    CHECK(tuning && strstr(tuning, said), "%s: '%s'", what, tuning ? tuning : "nothing");
    engine_destroy(run->engine);
    run->engine = NULL;
}

static void test_choice(void) {
    static const struct {
        const char *name;
        double own_ms, library_ms;
        bool own;
    } CASES[] = {{"cuDNN is faster", 1, 0.9, false},
                 {"own kernels are faster", 0.9, 1, true},
                 {"as fast, but for what measurements differ by", 0.99, 1, false},
                 {"cuDNN's does not run", 1, -1, true}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Run run;
        TuneResult result = {0};
        char name[100];
        snprintf(name, sizeof(name), "attention: %s", CASES[i].name);
        check_begin(name);
        start_fake(CUDNN, CASES[i].own_ms, CASES[i].library_ms);
        bool good = tune(&run, &result);
        CHECK(good, "%s", diag_text(run.diag));
        CHECK(result.n_attentions == 2 && result.device.n_attentions == 2,
              "%d kinds, %d in the plan", result.n_attentions, result.device.n_attentions);
        for (int a = 0; good && a < result.n_attentions; a++) {
            const TunedAttention *tuned = &result.attentions[a];
            CHECK(tuned->kind.own == CASES[i].own && tuned->kind.seq == 8 &&
                      tuned->kind.batch == 2 && tuned->kind.backward == (a == 1),
                  "another choice, or kind, of attention %d", a);
            CHECK(tuned->count == run.plan->n_micro, "%lld of them", (long long)tuned->count);
            CHECK((tuned->library_us < 0) == (CASES[i].library_ms < 0) && tuned->own_us > 0,
                  "%g and %g us", tuned->own_us, tuned->library_us);
        }
        if (good) {
            run.plan->device = result.device;
            check_training(&run, !CASES[i].own, ", attention too", CASES[i].name);
        }
        run_close(&run);
        end_fake();
    }
}

static cudaError_t little_shared(struct cudaDeviceProp *out, int ordinal) {
    cudaError_t status = fake_api->cudaGetDeviceProperties(out, ordinal);
    out->sharedMemPerBlockOptin = 1024;
    return status;
}

static void test_small_device(void) {
    Run run;
    TuneResult result = {0};
    check_begin("attention: own kernels that the GPU has no shared memory for");
    start_fake(CUDNN, 0.5, 1);
    between.api.cudaGetDeviceProperties = little_shared;
    bool good = tune(&run, &result);
    CHECK(good && result.n_attentions == 2, "%d kinds: %s", result.n_attentions,
          diag_text(run.diag));
    for (int a = 0; a < result.n_attentions; a++) {
        const TunedAttention *tuned = &result.attentions[a];
        CHECK(tuned->own_us < 0 && tuned->library_us > 0 && !tuned->kind.own, "%g and %g us",
              tuned->own_us, tuned->library_us);
    }
    run_close(&run);
    end_fake();
}

static void test_other_libraries(void) {
    Run run;
    TuneResult result = {0};
    check_begin("attention: the choice is for that cuDNN, and that GPU");
    start_fake(CUDNN, 0.9, 1);
    bool good = tune(&run, &result);
    CHECK(good, "%s", diag_text(run.diag));
    if (good) {
        run.plan->device = result.device;
        between.version = CUDNN + 1;
        check_training(&run, true, ", not attention: that was with cuDNN 9.19.0", "another cuDNN");
        between.version = 0;
        run.plan->device.name = "Fake A100";
        check_training(&run, true, "not used", "another GPU");
        run.plan->device.name = result.device.name;
        check_training(&run, false, ", attention too", "the same");
    }
    run_close(&run);
    end_fake();
    check_begin("attention: without cuDNN there is nothing to choose");
    start_fake(0, 0.9, 1);
    good = tune(&run, &result);
    CHECK(good, "%s", diag_text(run.diag));
    CHECK(result.n_attentions == 0 && result.device.attention_version == 0, "%d kinds",
          result.n_attentions);
    run_close(&run);
    end_fake();
}

int main(void) {
    unsetenv("HOME"); /* compiled kernels are not kept */
    unsetenv("XDG_CACHE_HOME");
    test_choice();
    test_small_device();
    test_other_libraries();
    return check_report();
}
#endif
