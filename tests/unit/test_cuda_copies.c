/* Files, losses and steps of an engine on the fake whose device is lost while it is copied from.
 *
 * Would catch: a checkpoint, or weights, of what are no numbers, in the place of the last good one;
 * a loss that is none without an error.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip copies: built without CUDA's headers");
    return 0;
}
#else

#include "ir/base/file.h"
#include "tests/unit/cuda_graph.h"

static const Variant GPT = {"gpt",
                            "models/gpt.lua",
                            4,
                            DTYPE_F32,
                            {SIZES, {"layers", "1"}, {"vocab", "61"}, {"ffn", "64"}}};
static const Layout ONE = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};

static int n_copies; /* still to go well */
static cudaError_t (*copies)(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);

static cudaError_t copy_or_fail(void *to, const void *from, size_t bytes,
                                enum cudaMemcpyKind kind) {
    return n_copies-- > 0 ? copies(to, from, bytes, kind) : cudaErrorECCUncorrectable;
}

static char *read_all(const Run *run, const char *path, size_t *out_length) {
    return (char *)(uintptr_t)file_read(run->arena, path, 1 << 24, out_length, run->diag);
}

typedef bool Write(Run *run, const char *path, const TrainingPlace *place);

static bool write_weights(Run *run, const char *path, const TrainingPlace *place) {
    (void)place;
    return engine_save(run->engine, path, run->diag);
}

static bool write_checkpoint(Run *run, const char *path, const TrainingPlace *place) {
    return engine_save_state(run->engine, path, place, run->diag);
}

static bool write_behind(Run *run, const char *path, const TrainingPlace *place) {
    EngineSnapshot *snapshot = engine_snapshot_create(run->engine, run->diag);
    SnapshotState state = engine_snapshot_begin(snapshot, path, place, run->diag);
    if (state == SNAPSHOT_WRITING) state = engine_snapshot_poll(snapshot, true, run->diag);
    engine_snapshot_destroy(snapshot);
    return state == SNAPSHOT_WRITTEN;
}

/* The last good file stays, and the error is said. */
static void check_file(const char *name, Write *write, const char *path) {
    static const TrainingPlace PLACE = {.step = 1, .samples = 8};
    Run run;
    size_t before = 0, after = 0;
    check_begin(name);
    bool ready = start_on_fake(&run, &GPT, &ONE, GRAPH) && run_steps(&run, 1, LEARNING_RATE) &&
                 write(&run, path, &PLACE);
    CHECK(ready, "%s", diag_text(run.diag));
    CuApi *api = (CuApi *)(uintptr_t)cuda_api();
    const char *good = read_all(&run, path, &before);
    copies = api->cudaMemcpy;
    api->cudaMemcpy = copy_or_fail;
    n_copies = 3;
    CHECK(!write(&run, path, &PLACE), "no numbers were written");
    CHECK(strstr(diag_text(run.diag), "a copy from or to the device failed: the fake's error 214"),
          "says '%s'", diag_text(run.diag));
    const char *there = read_all(&run, path, &after);
    CHECK(good && there && before == after && memcmp(good, there, before) == 0,
          "the last good file is gone");
    api->cudaMemcpy = copies;
    close_on_fake(&run);
    unlink(path);
    check_end();
}

static void check_evaluation(void) {
    Run run;
    double loss = 0;
    check_begin("a loss that cannot be read");
    bool ready = start_on_fake(&run, &GPT, &ONE, GRAPH);
    CHECK(ready, "%s", diag_text(run.diag));
    int64_t batch = run.plan->global_batch;
    int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, batch * plan_row(run.plan));
    int32_t *labels = ARENA_ARRAY(run.arena, int32_t, batch * run.plan->seq);
    CuApi *api = (CuApi *)(uintptr_t)cuda_api();
    copies = api->cudaMemcpy;
    api->cudaMemcpy = copy_or_fail;
    n_copies = 0;
    fill_batch(run.plan, 1, tokens, labels);
    CHECK(!engine_evaluate(run.engine, tokens, labels, &loss, run.diag) &&
              strstr(diag_text(run.diag), "a copy from or to the device failed: "),
          "%g, says '%s'", loss, diag_text(run.diag));
    api->cudaMemcpy = copies;
    close_on_fake(&run);
    check_end();
}

int main(void) {
    char path[] = "/tmp/perilune-copies-XXXXXX";
    if (fake_missing()) {
        printf("skip copies: %s\n", fake_missing());
        return 0;
    }
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    forget_cache();
    check_file("weights of a device that is lost", write_weights, path);
    check_file("a checkpoint of a device that is lost", write_checkpoint, path);
    check_file("a checkpoint behind training of a device that is lost", write_behind, path);
    check_evaluation();
    return check_report();
}
#endif
