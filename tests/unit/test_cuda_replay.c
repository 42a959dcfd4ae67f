/* Lists made by hand, replayed on the fake; graphs that CUDA does not take for the device; and
 * steps in pieces, of which those that are alike share a graph.
 *
 * Would catch: a launch that takes back the shared memory which an earlier one of the same kernel,
 * in the same list or in another, was allowed; an error for want of memory that does not say how
 * much there is; a graph that is launched slowly and nobody is told of; a line where none is; a
 * piece that shares the graph of one that does something else; one that shares none, so that
 * graphs take more memory than plans say.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip replay: built without CUDA's headers");
    return 0;
}
#else

#include "planner/plan/plan_library.h"
#include "runtime/cuda/driver/replay.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/emulate/emulate.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/generated_run.h"

#include <string.h>

static void push(CommandList *list, float *to, int shared_bytes) {
    static SetScalarArgs args[8];
    static Access accesses[8];
    static int next;
    int i = next++ % 8;
    args[i] = (SetScalarArgs){.out = to, .value = (float)shared_bytes};
    accesses[i] = access_to(to, sizeof(*to), true);
    Command command = {.kind = COMMAND_LAUNCH, .accesses = &accesses[i], .n_accesses = 1};
    command.launch = (LaunchCommand){.kernel = KERNEL_set_scalar,
                                     .grid = {1, 1, 1},
                                     .threads = 1,
                                     .shared_bytes = shared_bytes,
                                     .args = &args[i],
                                     .args_bytes = sizeof(args[i])};
    command_list_push(list, &command);
}

static void test_shared_memory(const CudaDevice *device, Arena *arena, Diag *diag) {
    static const int BYTES[2][3] = {{100 << 10, 60 << 10, 0}, {0, 50 << 10, 100 << 10}};
    ReplayContext context = {.device = device, .arena = arena};
    Replay replays[2];
    float *to = NULL;
    check_begin("a kernel keeps the most shared memory that it was allowed");
    CHECK(device->api->cudaMalloc((void **)&to, sizeof(*to)) == cudaSuccess, "memory");
    for (int r = 0; r < 2; r++) {
        CommandList list = {0};
        for (int i = 0; i < 3; i++) push(&list, to, BYTES[r][i]);
        CHECK(replay_prepare(&replays[r], &context, &list, diag), "%s", diag_text(diag));
    }
    for (int r = 0; r < 2; r++) {
        bool done = replay_capture(&replays[r], REPLAY_GRAPH, diag) &&
                    replay_launch(&replays[r], diag) && replay_wait(&replays[r], diag);
        CHECK(done, "%s", diag_text(diag));
        CHECK(!done || *to == (float)BYTES[r][2], "%g", (double)*to);
        replay_destroy(&replays[r]);
    }
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));

    check_begin("more shared memory than the device has, in one line");
    CommandList list = {0};
    push(&list, to, 300 << 10);
    CHECK(!replay_prepare(&replays[0], &context, &list, diag), "not refused");
    CHECK(diag_error_count(diag) == 1, "%d errors", diag_error_count(diag));
    replay_destroy(&replays[0]);
    replay_context_destroy(&context);
    device->api->cudaFree(to);
    check_end();
}

static void test_no_memory(const CudaDevice *device, Diag *diag) {
    void *memory = NULL;
    const CuApi *api = device->api;
    int before = diag_error_count(diag);
    check_begin("no memory, in one line with what is free");
    CHECK(!cuda_check(api, api->cudaMalloc(&memory, (size_t)1 << 40), diag, "allocating much") &&
              diag_error_count(diag) == before + 1,
          "not reported");
    CHECK(strstr(diag_text(diag), "allocating much") &&
              strstr(diag_text(diag), "(141.00 GiB are free)"),
          "says: %s", diag_text(diag));
    check_end();
}

/* What a training says of its graphs at its start; `says` NULL: nothing. */
static void check_graphs(const char *name, bool refused, bool segmented, const char *says) {
    static const ModelSetting settings[] = {
        {"model", "32"}, {"heads", "4"}, {"seq", "8"}, {"layers", "1"}, {"vocab", "61"}};
    static const Layout layout = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin(name);
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1, .no_device_graphs = refused}));
    bool good =
        run_plan_for(&run, "models/gpt.lua", settings, 5, &layout, 4, false, true, DTYPE_F32) &&
        run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA, .segmented = segmented}) &&
        run_steps(&run, 2, 1e-3);
    CHECK(good, "%s", diag_text(run.diag));
    const char *said = good ? engine_graphs(run.engine) : NULL;
    CHECK(!said == !says && (!says || (said && strstr(said, says))), "it says: %s",
          said ? said : "nothing");
    run_close(&run);
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    cuda_api_replace(NULL);
    check_end();
}

/* What steps in pieces give, and how many nodes their graphs have. */
typedef struct PiecesCase {
    const char *name;
    Layout layout;
    const char *dropout;
    int zero;
} PiecesCase;

static int64_t run_pieces(const PiecesCase *c, int n_micro, bool segmented, double *losses) {
    const ModelSetting settings[] = {{"model", "32"}, {"heads", "4"},  {"seq", "8"},
                                     {"layers", "2"}, {"vocab", "61"}, {"dropout", c->dropout}};
    const int batch = n_micro * c->layout.micro_batch * c->layout.d;
    enum { STEPS = 3 };
    int64_t n_nodes = 0;
    Run run;
    run_zero = c->zero;
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1}));
    const EngineOptions options = {.device = DEVICE_CUDA,
                                   .virtual_ranks = true,
                                   .no_graph = !segmented,
                                   .segmented = segmented};
    bool good = run_plan_for(&run, "models/gpt.lua", settings, 6, &c->layout, batch, false, true,
                             DTYPE_F32) &&
                run_start_on(&run, &options) && run_steps(&run, STEPS, 1e-2);
    CHECK(good, "%s", diag_text(run.diag));
    for (int i = 0; good && i < STEPS; i++) losses[i] = run.losses[i];
    for (int g = 0; good && g < fake_cuda_n_graphs(); g++) n_nodes += fake_cuda_graph(g)->n_nodes;
    if (good && segmented) { /* of virtual ranks, the first one's commands are captured */
        int64_t most = plan_pieces_bytes(run.plan, &run.plan->stages[0]) / GRAPH_NODE_BYTES;
        CHECK(n_nodes > 0 && n_nodes <= most, "%lld nodes, the plan says %lld", (long long)n_nodes,
              (long long)most);
    }
    run_close(&run);
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    cuda_api_replace(NULL);
    run_zero = 0;
    return n_nodes;
}

static void test_pieces(void) {
    static const PiecesCase CASES[] = {
        {"one stage", {1, 1, 1, 1, 1, "1f1b", false, NULL, 0}, "0", 0},
        {"one stage, ZeRO-2", {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, "0", 2},
        {"tensors divided", {2, 1, 1, 1, 1, "1f1b", false, NULL, 0}, "0", 0},
        {"two stages", {1, 1, 2, 1, 1, "1f1b", false, NULL, 0}, "0", 0},
        {"random numbers", {1, 1, 1, 1, 1, "1f1b", false, NULL, 0}, "0.2", 0},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += LAYOUT_STEP) {
        double in_pieces[3] = {0}, eager[3] = {0};
        char name[80];
        snprintf(name, sizeof(name), "pieces that are alike share a graph: %s", CASES[i].name);
        check_begin(name);
        run_pieces(&CASES[i], 8, false, eager);
        int64_t few = run_pieces(&CASES[i], 8, true, in_pieces);
        CHECK(memcmp(in_pieces, eager, sizeof(eager)) == 0, "losses %.9g, one by one %.9g",
              in_pieces[2], eager[2]);
        int64_t many = run_pieces(&CASES[i], 12, true, in_pieces);
        bool random = strcmp(CASES[i].dropout, "0") != 0;
        CHECK(random ? many > few : many == few, "%lld nodes, of more micro-batches %lld",
              (long long)few, (long long)many);
        check_end();
    }
}

/* A plan says by itself which of the two it is to be. */
static void test_budget(void) {
    static const ModelSetting settings[] = {
        {"model", "32"}, {"heads", "4"}, {"seq", "8"}, {"layers", "2"}, {"vocab", "61"}};
    static const Layout layout = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    int64_t bytes[3] = {0};
    check_begin("more nodes than a graph may have: pieces, which take less");
    for (int i = 0; i < 3; i++) {
        static const int BATCHES[] = {64, 2000, 4000};
        Run run;
        bool good = run_plan_for(&run, "models/gpt.lua", settings, 5, &layout, BATCHES[i], false,
                                 true, DTYPE_F32);
        CHECK(good, "%s", diag_text(run.diag));
        if (good) {
            const Stage *stage = &run.plan->stages[0];
            bytes[i] = plan_graph_bytes(run.plan, stage);
            CHECK(plan_graph_in_pieces(run.plan, stage) == (i > 0), "%d micro-batches", BATCHES[i]);
        }
        run_close(&run);
    }
    CHECK(bytes[1] > 0 && bytes[1] == bytes[2] && bytes[1] < bytes[0], "%lld, %lld, %lld bytes",
          (long long)bytes[0], (long long)bytes[1], (long long)bytes[2]);
    check_end();
}

/* Ranks on one device would be one graph together, though none of them alone would be too large. */
static void test_over_budget(void) {
    static const ModelSetting settings[] = {
        {"model", "16"}, {"heads", "2"}, {"seq", "4"}, {"layers", "1"}, {"vocab", "31"}};
    static const Layout layout = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    enum { N_MICRO = 640 };
    Run run;
    check_begin("ranks on one device that are too many nodes together go in pieces, and say it");
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1}));
    bool good = run_plan_for(&run, "models/gpt.lua", settings, 5, &layout, N_MICRO * layout.d,
                             false, true, DTYPE_F32) &&
                run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA, .virtual_ranks = true});
    CHECK(good, "%s", diag_text(run.diag));
    if (good) {
        const char *said = engine_graphs(run.engine);
        CHECK(!plan_graph_in_pieces(run.plan, &run.plan->stages[0]), "one alone would do so, too");
        CHECK(said && strstr(said, "of pieces of a step"), "it says: %s", said ? said : "nothing");
    }
    run_close(&run);
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    cuda_api_replace(NULL);
    check_end();
}

static void test_graphs(void) {
    const char *why = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (why) {
        printf("skip graphs of a training: %s\n", why);
        return;
    }
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    check_graphs("graphs on the device: nothing to say", false, false, NULL);
    check_graphs("graphs that CUDA does not take: one line", true, false,
                 "3 of 3 do not live on the device, as CUDA refuses them there (the fake's error "
                 "801): launching takes longer");
    check_graphs("pieces that CUDA does not take", true, true, " do not live on the device, ");
    test_pieces();
    if (LAYOUT_STEP == 1) test_over_budget();
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CudaDevice device;
    if (!cuda_device_open(&device, fake_cuda_create(&(FakeOptions){0}), 0, diag)) return 1;
    test_shared_memory(&device, arena, diag);
    test_no_memory(&device, diag);
    cuda_device_close(&device);
    fake_cuda_check_leaks();
    check_begin("nothing is left");
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    diag_destroy(diag);
    arena_destroy(arena);
    test_budget();
    test_graphs();
    return check_report();
}
#endif
