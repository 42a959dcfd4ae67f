/* Tuning of attention on the fake: cuDNN's kernels, own ones on mma.sync or own ones on wgmma, of
 * gradients also in one pass, whichever are fastest, those on wgmma only if they are right; that
 * training then does so, and when it must not. Times are made up here: by what was issued last.
 * Kernels on wgmma are played by those on mma.sync, which are made wrong where a case says so.
 */
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip tuning of attention: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/tune_results.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/tune.h"
#include "tests/unit/fake_check.h"

enum { CUDNN = 91900, MOST_SETTINGS = 6, LATENT_SETTINGS = 8 };
enum { MANY = 10 }; /* so long that a graph has one of what is timed */
/* Heads of 8, for which there are none on wgmma, and of 72. */
static const ModelSetting NARROW[MOST_SETTINGS] = {{"model", "32"}, {"heads", "4"},  {"seq", "8"},
                                                   {"layers", "1"}, {"vocab", "31"}, {"ffn", "32"}};
static const ModelSetting WIDE[MOST_SETTINGS] = {{"model", "72"}, {"heads", "1"},  {"seq", "8"},
                                                 {"layers", "1"}, {"vocab", "31"}, {"ffn", "32"}};
/* Keys of 24, values of 16. */
static const ModelSetting LATENT[LATENT_SETTINGS] = {
    {"model", "32"}, {"heads", "2"}, {"seq", "8"},    {"layers", "1"},
    {"vocab", "31"}, {"ffn", "32"},  {"q_rank", "0"}, {"kv_rank", "16"}};
/* Within documents, of which c = 2 gives each rank four queries. */
static const ModelSetting DIVIDED[LATENT_SETTINGS] = {
    {"model", "40"}, {"heads", "1"}, {"seq", "8"},       {"layers", "1"},
    {"vocab", "31"}, {"ffn", "32"},  {"documents", "5"}, {"optimizer.eps", "1e-6"}};
static const Layout ONE = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};

/* How those on wgmma are played. */
typedef enum Play {
    PLAY_RIGHT,
    PLAY_WRONG,    /* scores 5 % off */
    PLAY_JOINT,    /* those of the gradient in one pass are */
    PLAY_NOTHING,  /* nothing is written */
    PLAY_NO_CUDNN, /* cuDNN writes nothing */
    PLAY_UNSTEADY, /* a little off, and more each time */
    PLAY_LATE,     /* the same, once they were timed */
    PLAY_BREAKING, /* the device is lost */
    PLAY_REAL      /* the kernels themselves */
} Play;

typedef struct KernelLaunch {
    const void *kernel;
    dim3 block;
    size_t shared;
} KernelLaunch;

/* The fake's table with these functions in between. */
static const CuApi *fake_api;
static struct {
    CuApi api;
    double ms[N_ATTENTION_KERNELS]; /* negative: they refuse to run */
    AttentionKernels last;          /* issued */
    Play play;
    bool broken;   /* the device is */
    bool timed;    /* wgmma was */
    bool no_wgmma; /* TuneOptions.no_wgmma */
    int n_played, n_known;
    size_t version;             /* of cuDNN; 0: the fake's */
    int major, minor;           /* compute capability; 0: the fake's */
    int64_t shared_bytes;       /* of a block; 0: the fake's */
    KernelLaunch of[N_KERNELS]; /* their last launches */
} between;

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack) {
    between.last = ATTENTION_CUDNN;
    if (between.ms[ATTENTION_CUDNN] < 0) return CUDNN_STATUS_EXECUTION_FAILED;
    if (between.play == PLAY_NO_CUDNN) return CUDNN_STATUS_SUCCESS;
    return fake_api->cudnnBackendExecute(handle, plan, pack);
}

/* ATTENTION_MMA: also what is no attention. */
static AttentionKernels kind_of(KernelId kernel) {
    const char *name = KERNELS[kernel].name;
    if (!strstr(name, "_wgmma_")) return ATTENTION_MMA;
    return strstr(name, "_joint_") ? ATTENTION_JOINT : ATTENTION_WGMMA;
}

/* attention_keys_64_bf16 for attention_keys_64_wgmma_bf16; the same, or attention_queries_64_bf16,
 * for attention_joint_64_wgmma_bf16; attention_forward_128_bf16 for
 * attention_paired_128_wgmma_bf16.
 */
static KernelId twin_of(KernelId kernel, const char *joint) {
    const char *name = KERNELS[kernel].name, *word = strstr(name, "_wgmma_");
    char twin[80];
    int k = 0, head = 0;
    if (kind_of(kernel) == ATTENTION_JOINT) {
        sscanf(name, "attention_joint_%d", &head);
        snprintf(twin, sizeof(twin), "attention_%s_%d%s", joint, head, word + strlen("_wgmma"));
    } else if (sscanf(name, "attention_paired_%d", &head) == 1) {
        snprintf(twin, sizeof(twin), "attention_forward_%d%s", head, word + strlen("_wgmma"));
    } else {
        snprintf(twin, sizeof(twin), "%.*s%s", (int)(word - name), name, word + strlen("_wgmma"));
    }
    while (strcmp(KERNELS[k].name, twin) != 0) k++;
    return (KernelId)k;
}

/* Of a tile of rows and of keys there is one only, so one grid does for both. */
static cudaError_t play_twins(KernelId kernel, dim3 grid, void *copy, cudaStream_t stream) {
    const KernelLaunch *keys = &between.of[twin_of(kernel, "keys")];
    const KernelLaunch *queries = &between.of[twin_of(kernel, "queries")];
    cudaError_t status = fake_api->cudaLaunchKernel(keys->kernel, grid, keys->block,
                                                    (void *[]){copy}, keys->shared, stream);
    if (status != cudaSuccess || kind_of(kernel) != ATTENTION_JOINT) return status;
    return fake_api->cudaLaunchKernel(queries->kernel, grid, queries->block, (void *[]){copy},
                                      queries->shared, stream);
}

/* All arguments of attention begin with its sizes. */
static cudaError_t play(KernelId kernel, dim3 grid, void **args, cudaStream_t stream) {
    union {
        AttentionSizes sizes;
        AttentionForwardArgs forward;
        AttentionBackwardArgs backward;
    } copy;
    memcpy(&copy, args[0], KERNELS[kernel].args_bytes);
    between.n_played++;
    for (int i = 0; copy.sizes.starts && i < copy.sizes.batch * copy.sizes.seq; i++)
        CHECK(copy.sizes.starts[i] == 0, "a document of eight begins at %d", copy.sizes.starts[i]);
    if (between.play == PLAY_NOTHING) return cudaSuccess;
    if (between.play == PLAY_BREAKING) between.broken = true;
    if (between.play == PLAY_LATE && between.timed)
        copy.sizes.scale_log2 *= 1 + 1e-3f * (float)between.n_played;
    if (between.play == PLAY_WRONG ||
        (between.play == PLAY_JOINT && kind_of(kernel) == ATTENTION_JOINT))
        copy.sizes.scale_log2 *= 1.05f;
    if (between.play == PLAY_UNSTEADY) copy.sizes.scale_log2 *= 1 + 1e-3f * (float)between.n_played;
    return play_twins(kernel, grid, &copy, stream);
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                          cudaStream_t stream) {
    const FakeFunction *function = kernel;
    AttentionKernels kind = function->generated ? ATTENTION_MMA : kind_of(function->kernel);
    between.last = kind;
    if (!function->generated) between.of[function->kernel] = (KernelLaunch){kernel, block, shared};
    if (kind != ATTENTION_MMA && between.ms[kind] < 0) return cudaErrorInvalidConfiguration;
    if (kind != ATTENTION_MMA && between.play != PLAY_REAL)
        return play(function->kernel, grid, args, stream);
    return fake_api->cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

static cudaError_t elapsed(float *out_ms, cudaEvent_t first, cudaEvent_t last) {
    cudaError_t status = fake_api->cudaEventElapsedTime(out_ms, first, last);
    *out_ms = (float)(MANY * between.ms[between.last]);
    between.timed |= between.last >= ATTENTION_WGMMA;
    return status;
}

static cudaError_t synchronize(cudaStream_t stream) {
    return between.broken ? cudaErrorIllegalAddress : fake_api->cudaStreamSynchronize(stream);
}

static size_t version(void) {
    return between.version ? between.version : fake_api->cudnnGetVersion();
}

static cudaError_t properties(struct cudaDeviceProp *out, int ordinal) {
    cudaError_t status = fake_api->cudaGetDeviceProperties(out, ordinal);
    if (between.major) out->major = between.major, out->minor = between.minor;
    if (between.shared_bytes) out->sharedMemPerBlockOptin = (size_t)between.shared_bytes;
    return status;
}

/* The gradient in one pass takes as long as on wgmma. */
static void start_fake(int cudnn_version, double cudnn_ms, double mma_ms, double wgmma_ms) {
    fake_api = fake_cuda_create(&(FakeOptions){.seed = 1, .cudnn_version = cudnn_version});
    memset(&between, 0, sizeof(between));
    between.api = *fake_api;
    between.last = ATTENTION_MMA;
    between.ms[ATTENTION_CUDNN] = cudnn_ms;
    between.ms[ATTENTION_MMA] = mma_ms;
    between.ms[ATTENTION_WGMMA] = between.ms[ATTENTION_JOINT] = wgmma_ms;
    between.api.cudnnBackendExecute = execute;
    between.api.cudaEventElapsedTime = elapsed;
    between.api.cudaLaunchKernel = launch;
    between.api.cudaStreamSynchronize = synchronize;
    between.api.cudaGetDeviceProperties = properties;
    between.api.cudnnGetVersion = version;
    cuda_api_replace(&between.api);
}

static bool make_plan(Run *run, const ModelSetting *settings) {
    bool more = settings == LATENT || settings == DIVIDED;
    run_cudnn_backward = true;
    run_context = settings == DIVIDED ? 2 : 1;
    bool good =
        run_plan_for(run, settings == LATENT ? "models/deepseek.lua" : "models/gpt.lua", settings,
                     more ? LATENT_SETTINGS : MOST_SETTINGS, &ONE, 4, true, true, DTYPE_BF16);
    run_context = 1;
    CHECK(good, "%s", diag_text(run->diag));
    return good;
}

/* What is kept before kernels on wgmma run, each set after the other. */
static void note_known(void *user, const PlanDevice *device) {
    CHECK(user == &between && (between.n_known || !between.n_played), "told after %d launches",
          between.n_played);
    CHECK(device->n_attentions == 2 && device->n_algos > 0, "%d attentions", device->n_attentions);
    for (int i = 0; i < device->n_attentions; i++)
        CHECK((int)device->attentions[i].kernels < ATTENTION_WGMMA + between.n_known,
              "%s before it was tried", attention_kernels_word(device->attentions[i].kernels));
    between.n_known++;
}

/* The section is the plan's afterwards. */
static bool tune(Run *run, const ModelSetting *settings, TuneResult *out) {
    *out = (TuneResult){0};
    if (!make_plan(run, settings)) return false;
    const TuneOptions options = {
        .no_wgmma = between.no_wgmma, .brief = true, .known = note_known, .known_user = &between};
    bool good = cuda_tune(run->plan, &options, run->arena, out, run->diag);
    CHECK(good, "%s", diag_text(run->diag));
    if (good) run->plan->device = out->device;
    return good;
}

static void count_attention(const FakeGraph *graph, int counts[N_ATTENTION_KERNELS]) {
    memset(counts, 0, N_ATTENTION_KERNELS * sizeof(*counts));
    for (int i = 0; i < graph->n_nodes; i++) {
        const FakeNode *node = &graph->nodes[i];
        const FakeFunction *function = node->launch.function;
        counts[ATTENTION_CUDNN] += node->kind == FAKE_ATTENTION;
        if (node->kind != FAKE_KERNEL || function->generated) continue;
        const char *name = KERNELS[function->kernel].name;
        bool counted = strncmp(name, "attention_", 10) == 0 && !strstr(name, "_delta_");
        counts[kind_of(function->kernel)] += counted;
    }
}

/* Of a plan that is not tuned: cuDNN's, but the gradient in one pass. */
static const AttentionKernels UNTUNED = N_ATTENTION_KERNELS;

/* Launches of a layer in a micro-batch. Own gradients are two kernels, or one in one pass, whose
 * attention is on wgmma; and delta. */
static int launches_of(AttentionKernels counted, AttentionKernels wanted) {
    if (wanted == UNTUNED) return counted == ATTENTION_CUDNN || counted == ATTENTION_JOINT;
    if (wanted == ATTENTION_JOINT) return counted == ATTENTION_WGMMA || counted == wanted;
    if (counted != wanted) return 0;
    return counted == ATTENTION_CUDNN ? 2 : 3;
}

/* The plan as written and read back; in its step all attention is done by these kernels. Both
 * `said` and `with` are parts of start lines; NULL: none. */
static void check_training(Run *run, const EngineOptions *options, AttentionKernels kernels,
                           const char *said, const char *with, const char *what) {
    StrBuf text = strbuf_create();
    plan_print(&text, run->plan);
    Plan *back = plan_parse(run->arena, "tuned.plan", text.text, run->diag);
    strbuf_destroy(&text);
    CHECK(back && verify_plan(back, run->diag), "%s: %s", what, diag_text(run->diag));
    if (!back) return;
    run->plan = back;
    int first = fake_cuda_n_graphs(), counts[N_ATTENTION_KERNELS];
    between.play = PLAY_REAL;
    bool good = run_start_on(run, options);
    CHECK(good, "%s: %s", what, diag_text(run->diag));
    if (!good) return;
    count_attention(fake_cuda_graph(first), counts);
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        int ranks = (int)run->plan->mesh.size[MESH_C];
        int expected = launches_of((AttentionKernels)k, kernels) * run->plan->n_micro * ranks;
        CHECK(counts[k] == expected, "%s: %d of %d by %s", what, counts[k], expected,
              attention_kernels_word((AttentionKernels)k));
    }
    const char *tuning = engine_tuning(run->engine), *attention = engine_attention(run->engine);
    CHECK(tuning && strstr(tuning, said), "%s: '%s'", what, tuning ? tuning : "nothing");
    CHECK(with ? attention && strcmp(attention, with) == 0 : !attention, "%s: '%s'", what,
          attention ? attention : "nothing");
    engine_destroy(run->engine);
    run->engine = NULL;
}

static const EngineOptions ON_GPU = {.device = DEVICE_CUDA};
static const char *const WITH[N_ATTENTION_KERNELS + 1] = {
    "attention by cuDNN 9.19.0", "attention by own kernels", "attention by own kernels on wgmma",
    "attention by own kernels on wgmma forward, by own kernels on wgmma in one pass backward",
    "attention by cuDNN 9.19.0 forward, by own kernels on wgmma in one pass backward"};

typedef struct ChoiceCase {
    const char *name;
    double ms[N_ATTENTION_KERNELS]; /* the last ones 0: as on wgmma */
    bool wide;
    Play play;
    AttentionKernels chosen; /* for what they do; for the other those on wgmma */
    const char *refused[2];  /* forward and backward; NULL: wgmma's are not */
} ChoiceCase;

static void check_choice(const ChoiceCase *c) {
    Run run;
    TuneResult result;
    char name[100];
    snprintf(name, sizeof(name), "attention: %s", c->name);
    check_begin(name);
    start_fake(CUDNN, c->ms[0], c->ms[1], c->ms[2]);
    between.play = c->play;
    for (int k = ATTENTION_JOINT; k < N_ATTENTION_KERNELS; k++)
        if (c->ms[k] > 0) between.ms[k] = c->ms[k];
    bool good = tune(&run, c->wide ? WIDE : NARROW, &result);
    CHECK(result.n_attentions == 2 && result.device.n_attentions == 2, "%d kinds, %d in the plan",
          result.n_attentions, result.device.n_attentions);
    for (int a = 0; good && a < result.n_attentions; a++) {
        const TunedAttention *tuned = &result.attentions[a];
        bool either = c->chosen <= ATTENTION_WGMMA || a == 1;
        AttentionKernels chosen = either ? c->chosen : ATTENTION_WGMMA;
        CHECK(tuned->kind.kernels == chosen && tuned->kind.seq == 8 && tuned->kind.batch == 2 &&
                  tuned->kind.backward == (a == 1),
              "%s, or another kind, for attention %d", attention_kernels_word(tuned->kind.kernels),
              a);
        CHECK(tuned->count == run.plan->n_micro, "%lld of them", (long long)tuned->count);
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            bool timed = between.ms[k] > 0 &&
                         (k < ATTENTION_WGMMA || (c->wide && !c->refused[a])) &&
                         (k != ATTENTION_CUDNN || c->play != PLAY_NO_CUDNN) &&
                         (k != ATTENTION_JOINT || (a == 1 && c->play != PLAY_JOINT));
            CHECK((tuned->us[k] > 0) == timed, "%g us by %s", tuned->us[k],
                  attention_kernels_word((AttentionKernels)k));
        }
        CHECK(c->refused[a] ? tuned->refused[ATTENTION_WGMMA] &&
                                  strstr(tuned->refused[ATTENTION_WGMMA], c->refused[a])
                            : !tuned->refused[ATTENTION_WGMMA],
              "attention %d: '%s'", a,
              tuned->refused[ATTENTION_WGMMA] ? tuned->refused[ATTENTION_WGMMA] : "nothing");
        const char *joint = tuned->refused[ATTENTION_JOINT];
        const char *why = c->play == PLAY_JOINT ? "d" : c->refused[1];
        CHECK(a == 1 && why ? joint && strstr(joint, why) : !joint, "in one pass: '%s'",
              joint ? joint : "nothing");
    }
    for (int a = 0; good && a < 2 && c->play == PLAY_NO_CUDNN; a++) {
        const char *why = result.attentions[a].refused[ATTENTION_CUDNN];
        CHECK(why && strstr(why, "differs from mma's: not finite"), "cuDNN: '%s'", why ? why : "");
    }
    CHECK(between.n_known == 2 * c->wide, "told %d times", between.n_known);
    if (good && !c->refused[0])
        check_training(&run, &ON_GPU, c->chosen, ", 2 of 2 attentions", WITH[c->chosen], c->name);
    run_close(&run);
    end_fake();
}

static void test_choice(void) {
    static const ChoiceCase CASES[] = {
        {"cuDNN is faster", {0.9, 1, 0.5}, false, PLAY_RIGHT, ATTENTION_CUDNN, {NULL}},
        {"own kernels are faster", {1, 0.9, 0.5}, false, PLAY_RIGHT, ATTENTION_MMA, {NULL}},
        {"as fast, but for what measurements differ by",
         {1, 0.99, 0.5},
         false,
         PLAY_RIGHT,
         ATTENTION_CUDNN,
         {NULL}},
        {"cuDNN's does not run", {-1, 1, 0.5}, false, PLAY_RIGHT, ATTENTION_MMA, {NULL}},
        {"cuDNN is fastest, and writes nothing",
         {0.1, 1, 0.5},
         false,
         PLAY_NO_CUDNN,
         ATTENTION_MMA,
         {NULL}},
        {"wgmma is fastest", {1, 1.1, 0.9}, true, PLAY_RIGHT, ATTENTION_WGMMA, {NULL}},
        {"wgmma is as fast as cuDNN", {1, 1.1, 0.99}, true, PLAY_RIGHT, ATTENTION_CUDNN, {NULL}},
        {"wgmma is as fast as mma", {1, 0.8, 0.79}, true, PLAY_RIGHT, ATTENTION_MMA, {NULL}},
        {"wgmma is faster, cuDNN's does not run",
         {-1, 1, 0.9},
         true,
         PLAY_RIGHT,
         ATTENTION_WGMMA,
         {NULL}},
        {"wgmma itself", {1, 1.1, 0.9}, true, PLAY_REAL, ATTENTION_WGMMA, {NULL}},
        {"one pass is fastest", {1, 1.1, 0.9, 0.8}, true, PLAY_RIGHT, ATTENTION_JOINT, {NULL}},
        {"one pass itself", {1, 1.1, 0.9, 0.8}, true, PLAY_REAL, ATTENTION_JOINT, {NULL}},
        {"one pass is fastest, and wrong",
         {1, 1.1, 0.9, 0.1},
         true,
         PLAY_JOINT,
         ATTENTION_WGMMA,
         {NULL}},
        {"wgmma is fastest, and wrong",
         {0.9, 1, 0.1},
         true,
         PLAY_WRONG,
         ATTENTION_CUDNN,
         {"o differs from mma's by 0.0", "dq differs from mma's by 0."}},
        {"wgmma writes nothing",
         {1, 0.9, 0.1},
         true,
         PLAY_NOTHING,
         ATTENTION_MMA,
         {"o differs from mma's: not finite", "dq differs from mma's: not finite"}},
        {"wgmma writes something else each time",
         {0.9, 1, 0.1},
         true,
         PLAY_UNSTEADY,
         ATTENTION_CUDNN,
         {"differs from run to run", "differs from run to run"}},
        {"wgmma does not run",
         {1, 0.9, -1},
         true,
         PLAY_RIGHT,
         ATTENTION_MMA,
         {"they do not run", "they do not run"}},
        {"wgmma breaks the device",
         {0.9, 1, 0.1},
         true,
         PLAY_BREAKING,
         ATTENTION_CUDNN,
         {"CUDA: comparing attention's results: ", "not tried after that"}},
        {"wgmma is wrong on a busy device",
         {0.9, 1, 0.1},
         true,
         PLAY_LATE,
         ATTENTION_CUDNN,
         {"differs from run to run", "differs"}},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += VARIANT_STEP) {
        if (VARIANT_STEP > 1 && CASES[i].play == PLAY_REAL) continue; /* ten seconds each */
        check_choice(&CASES[i]);
    }
}

static void test_small_device(void) {
    Run run;
    TuneResult result;
    check_begin("attention: own kernels that the GPU has no shared memory for");
    start_fake(CUDNN, 1, 0.5, 0.1);
    between.shared_bytes = 1024;
    tune(&run, WIDE, &result);
    CHECK(result.n_attentions == 2, "%d kinds", result.n_attentions);
    for (int a = 0; a < result.n_attentions; a++) {
        const TunedAttention *tuned = &result.attentions[a];
        CHECK(tuned->us[ATTENTION_MMA] < 0 && tuned->us[ATTENTION_WGMMA] < 0 &&
                  tuned->us[ATTENTION_CUDNN] > 0 && tuned->kind.kernels == ATTENTION_CUDNN,
              "%s", attention_kernels_word(tuned->kind.kernels));
    }
    run_close(&run);
    end_fake();
}

/* Values of another size than keys: what is timed is laid out so, and found again in the plan. */
static void test_latent(void) {
    static const double MS[][2] = {{0.9, 1}, {1, 0.9}};
    for (int i = 0; i < 2; i++) {
        Run run;
        TuneResult result;
        AttentionKernels chosen = i ? ATTENTION_MMA : ATTENTION_CUDNN;
        check_begin(i ? "latent attention: own kernels are faster"
                      : "latent attention: cuDNN is faster");
        start_fake(CUDNN, MS[i][0], MS[i][1], 0.1);
        bool good = tune(&run, LATENT, &result);
        CHECK(result.n_attentions == 2, "%d kinds", result.n_attentions);
        for (int a = 0; good && a < result.n_attentions; a++) {
            const TunedAttention *tuned = &result.attentions[a];
            CHECK(tuned->kind.head == 24 && tuned->kind.values == 16 &&
                      tuned->kind.kernels == chosen,
                  "%lld and %lld by %s", (long long)tuned->kind.head, (long long)tuned->kind.values,
                  attention_kernels_word(tuned->kind.kernels));
            CHECK(tuned->us[ATTENTION_CUDNN] > 0 && tuned->us[ATTENTION_MMA] > 0 &&
                      tuned->us[ATTENTION_WGMMA] < 0,
                  "%g, %g, %g us", tuned->us[0], tuned->us[1], tuned->us[2]);
        }
        if (good)
            check_training(&run, &ON_GPU, chosen, ", 2 of 2 attentions", WITH[chosen], "latent");
        run_close(&run);
        end_fake();
    }
}

/* Chunks of the queries and documents, on which cuDNN has no say: wrong kernels are found, right
 * ones that are faster are chosen, written into the plan and found again. */
static void test_divided(void) {
    static const EngineOptions VIRTUAL = {.device = DEVICE_CUDA, .virtual_ranks = true};
    static const struct {
        const char *name;
        double wgmma_ms;
        Play play;
        AttentionKernels chosen;
    } CASES[] = {{"wgmma is faster", 0.9, PLAY_RIGHT, ATTENTION_WGMMA},
                 {"wgmma is faster, and wrong", 0.9, PLAY_WRONG, ATTENTION_MMA}};
    for (int i = 0; i < 2; i++) {
        Run run;
        TuneResult result;
        char name[100];
        snprintf(name, sizeof(name), "attention of two chunks, documents: %s", CASES[i].name);
        check_begin(name);
        start_fake(CUDNN, 0.1, 1, CASES[i].wgmma_ms);
        between.play = CASES[i].play;
        bool good = tune(&run, DIVIDED, &result);
        CHECK(result.n_attentions == 2, "%d kinds", result.n_attentions);
        for (int a = 0; good && a < result.n_attentions; a++) {
            const TunedAttention *tuned = &result.attentions[a];
            const PlanAttention *kind = &tuned->kind;
            const char *why = tuned->refused[ATTENTION_WGMMA];
            CHECK(kind->seq == 4 && kind->keys == 8 && kind->documents &&
                      kind->kernels == CASES[i].chosen,
                  "%lld of %lld by %s", (long long)kind->seq, (long long)kind->keys,
                  attention_kernels_word(kind->kernels));
            CHECK(tuned->us[ATTENTION_CUDNN] < 0 && (i == 0) == !why, "%g us by cuDNN, '%s'",
                  tuned->us[ATTENTION_CUDNN], why ? why : "");
        }
        if (good)
            check_training(&run, &VIRTUAL, CASES[i].chosen, ", 2 of 2 attentions",
                           WITH[CASES[i].chosen], "divided");
        run_close(&run);
        end_fake();
    }
}

/* cuDNN's gradient is used on sm_80 to sm_90: after that, own kernels' on mma.sync are all there
 * are. */
static void test_other_devices(void) {
    static const struct {
        int major, minor, n_attentions;
        bool no_wgmma;
    } DEVICES[] = {{8, 0, 2, false}, {10, 0, 1, false}, {9, 0, 2, true}};
    for (size_t i = 0; i < sizeof(DEVICES) / sizeof(DEVICES[0]); i++) {
        Run run;
        TuneResult result;
        char name[100];
        snprintf(name, sizeof(name), "attention: none on wgmma on sm_%d%d%s", DEVICES[i].major,
                 DEVICES[i].minor, DEVICES[i].no_wgmma ? ", not wanted" : "");
        check_begin(name);
        start_fake(CUDNN, 0.9, 1, 0.1);
        between.major = DEVICES[i].major;
        between.minor = DEVICES[i].minor;
        between.no_wgmma = DEVICES[i].no_wgmma;
        tune(&run, WIDE, &result);
        CHECK(result.n_attentions == DEVICES[i].n_attentions, "%d kinds", result.n_attentions);
        for (int a = 0; a < result.n_attentions; a++) {
            const TunedAttention *tuned = &result.attentions[a];
            CHECK(tuned->us[ATTENTION_WGMMA] < 0 && !tuned->refused[ATTENTION_WGMMA] &&
                      tuned->kind.kernels == ATTENTION_CUDNN,
                  "%s", attention_kernels_word(tuned->kind.kernels));
        }
        CHECK(between.n_played == 0, "%d launches", between.n_played);
        run_close(&run);
        end_fake();
    }
}

static void choose_all(Run *run, AttentionKernels kernels) {
    PlanDevice *device = &run->plan->device;
    for (int i = 0; i < device->n_attentions; i++) device->attentions[i].kernels = kernels;
}

static void test_other_libraries(void) {
    Run run;
    TuneResult result;
    const EngineOptions no_cudnn = {.device = DEVICE_CUDA, .no_cudnn = true};
    check_begin("attention: the choice is for that cuDNN, and that GPU");
    start_fake(CUDNN, 1, 0.9, 0.8);
    if (tune(&run, WIDE, &result)) {
        between.version = CUDNN + 1;
        check_training(&run, &ON_GPU, UNTUNED,
                       ", not attention: that was with cuDNN 9.19.0, and this is cuDNN 9.19.1",
                       "attention by cuDNN 9.19.1 forward, by own kernels on wgmma in one pass "
                       "backward",
                       "another cuDNN");
        check_training(&run, &no_cudnn, ATTENTION_WGMMA, ", 2 of 2 attentions",
                       WITH[ATTENTION_WGMMA], "another cuDNN, not wanted");
        between.version = 0;
        run.plan->device.name = "Fake A100";
        check_training(&run, &ON_GPU, UNTUNED, "not used", WITH[UNTUNED], "another GPU");
        check_training(&run, &no_cudnn, ATTENTION_JOINT, "not used", WITH[ATTENTION_JOINT],
                       "another GPU, no cuDNN");
        run.plan->device.name = result.device.name;
        check_training(&run, &ON_GPU, ATTENTION_WGMMA, ", 2 of 2 attentions", WITH[ATTENTION_WGMMA],
                       "the same");
        choose_all(&run, ATTENTION_CUDNN);
        check_training(&run, &no_cudnn, ATTENTION_JOINT, ", 0 of 2 attentions",
                       WITH[ATTENTION_JOINT], "cuDNN was fastest, and is not wanted");
        static const AttentionKernels KINDS[] = {ATTENTION_CUDNN, ATTENTION_MMA, ATTENTION_WGMMA,
                                                 ATTENTION_JOINT};
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            /* In one pass a gradient only: attention itself is then as it would be. */
            const EngineOptions asked = {.device = DEVICE_CUDA,
                                         .attention = &KINDS[k],
                                         .no_cudnn = KINDS[k] == ATTENTION_JOINT};
            check_training(&run, &asked, KINDS[k], ", 0 of 2 attentions", WITH[k], "asked for");
        }
    }
    run_close(&run);
    end_fake();
}

static void test_without_cudnn(void) {
    Run run;
    TuneResult result;
    check_begin("attention: without cuDNN there is nothing to choose but wgmma");
    start_fake(0, 1, 0.9, 0.8);
    tune(&run, NARROW, &result);
    CHECK(result.n_attentions == 0 && result.device.attention_version == 0, "%d kinds",
          result.n_attentions);
    run_close(&run);
    if (tune(&run, WIDE, &result)) {
        CHECK(result.n_attentions == 2 && result.device.attention_version == 0, "%d kinds",
              result.n_attentions);
        check_training(&run, &ON_GPU, ATTENTION_WGMMA, ", 2 of 2 attentions", WITH[ATTENTION_WGMMA],
                       "without cuDNN");
    }
    end_fake();
    start_fake(CUDNN, 1, 0.9, 0.8);
    check_training(&run, &ON_GPU, UNTUNED,
                   ", not attention: that was without cuDNN, and this is cuDNN 9.19.0",
                   WITH[UNTUNED], "now there is one");
    run_close(&run);
    end_fake();
}

/* Whatever a plan says: none on wgmma where there are none. */
static void test_untrusted(void) {
    Run run;
    TuneResult result;
    check_begin("attention: a plan that asks for what is not there");
    start_fake(CUDNN, 1, 0.9, 0.8);
    if (tune(&run, NARROW, &result)) {
        choose_all(&run, ATTENTION_WGMMA);
        check_training(&run, &ON_GPU, ATTENTION_CUDNN, ", 0 of 2 attentions", WITH[ATTENTION_CUDNN],
                       "heads of 8");
    }
    run_close(&run);
    if (tune(&run, WIDE, &result)) {
        choose_all(&run, ATTENTION_WGMMA);
        between.major = 8;
        run.plan->device.arch = "sm_80";
        check_training(&run, &ON_GPU, ATTENTION_CUDNN, ", 0 of 2 attentions", WITH[ATTENTION_CUDNN],
                       "sm_80");
        choose_all(&run, ATTENTION_CUDNN);
        between.major = 10;
        run.plan->device.arch = "sm_100";
        run.plan->device.attentions[0].kernels = ATTENTION_MMA;
        check_training(&run, &ON_GPU, ATTENTION_MMA, ", 1 of 2 attentions", WITH[ATTENTION_MMA],
                       "sm_100 has no gradient by cuDNN");
    }
    run_close(&run);
    end_fake();
}

static double distance(const Tuner *tuner, const TuneTensor *tensor) {
    TuneDistance of = {-1, -1};
    CHECK(tune_compare(tuner, tensor, &of), "%s", diag_text(tuner->diag));
    CHECK(of.worst >= of.whole * 0.999, "%g of it, %g where it is worst", of.whole, of.worst);
    return of.whole;
}

/* Longer than what is compared: the middle is not. */
static void check_long_tensor(const Tuner *tuner, uint16_t *at) {
    enum { COMPARED = TUNE_COMPARED_BYTES / 2, LONG = 2 * COMPARED + 1000 };
    static const int PLACES[] = {0, COMPARED - 1, LONG - COMPARED, LONG - 1, COMPARED + 500};
    TuneTensor tensor = {"dq", at, DTYPE_F16, LONG, NULL};
    bool same = true;
    CHECK(tune_fill_normal(tuner, at, LONG * 2, DTYPE_F16) && tune_keep(tuner, &tensor), "%s",
          diag_text(tuner->diag));
    CHECK(tune_compare_bits(tuner, &tensor, &same) && same && distance(tuner, &tensor) == 0,
          "a tensor differs from itself");
    for (int i = 0; i < 5; i++) {
        uint16_t before = at[PLACES[i]];
        at[PLACES[i]] = 0x7c01; /* not a number */
        bool seen = isinf(distance(tuner, &tensor));
        CHECK(tune_compare_bits(tuner, &tensor, &same) && seen == (i < 4) && same != seen,
              "element %d", PLACES[i]);
        at[PLACES[i]] = before;
    }
    TuneDistance of = {0, 0};
    int wrong = 3 * TUNE_PIECE;
    for (int i = wrong; i < wrong + TUNE_PIECE; i++) at[i] ^= 0x8000; /* the other sign */
    CHECK(tune_compare(tuner, &tensor, &of) && of.whole < 0.05 && fabs(of.worst - 2) < 1e-3,
          "one piece is wrong: %g of all, %g where it is worst", of.whole, of.worst);
    free(tensor.kept);
}

static void test_results(void) {
    enum { MOST_BYTES = 3 * TUNE_COMPARED_BYTES, SMALL = 10000 };
    Tuner tuner = {.diag = diag_create()};
    void *memory = NULL;
    check_begin("comparing results: every element counts, up to 32 MiB of a tensor");
    start_fake(0, 1, 1, 1);
    tuner.device.api = fake_api;
    bool good =
        fake_api->cudaMalloc(&memory, MOST_BYTES) == cudaSuccess &&
        fake_api->cudaStreamCreateWithFlags(&tuner.stream, cudaStreamNonBlocking) == cudaSuccess;
    CHECK(good, "no memory");
    TuneTensor tensor = {"lse", memory, DTYPE_F32, SMALL, NULL};
    float *numbers = memory;
    for (int i = 0; i < SMALL; i++) numbers[i] = i % 2 ? 3 : -3;
    CHECK(tune_keep(&tuner, &tensor), "%s", diag_text(tuner.diag));
    for (int i = 0; i < SMALL; i++) numbers[i] *= 1.01f;
    double error = distance(&tuner, &tensor);
    CHECK(fabs(error - 0.01) < 1e-6, "1 %% is %g", error);
    for (int i = 0; i < SMALL; i++) numbers[i] = 1e-6f;
    CHECK(tune_keep(&tuner, &tensor), "%s", diag_text(tuner.diag));
    for (int i = 0; i < SMALL; i++) numbers[i] = 2e-6f;
    error = distance(&tuner, &tensor);
    CHECK(fabs(error - 1e-3) < 1e-6, "rounding of zeros counts for %g", error);
    CHECK(tune_spoil(&tuner, &tensor) && isinf(distance(&tuner, &tensor)), "spoilt, and as it was");
    free(tensor.kept);
    check_long_tensor(&tuner, memory);
    fake_api->cudaStreamDestroy(tuner.stream);
    fake_api->cudaFree(memory);
    diag_destroy(tuner.diag);
    end_fake();
}

int main(void) {
    unsetenv("HOME"); /* compiled kernels are not kept */
    unsetenv("XDG_CACHE_HOME");
    test_results();
    test_choice();
    test_small_device();
    test_latent();
    test_divided();
    test_other_devices();
    if (VARIANT_STEP == 1) test_other_libraries();
    test_without_cudnn();
    test_untrusted();
    return check_report();
}
#endif
