/* A rank that dies where no message of a step waits for it: after the last one, or while a
 * checkpoint is written. The others must name it, and no file may be replaced.
 *
 * Would catch: what the dead rank did not send taken for a diverged loss, for a validation loss or
 * for weights.
 */
#include "frontend/commands/engine_args.h"
#include "ir/base/file.h"
#include "runtime/engine_internal.h"
#include "tests/unit/control_job.h"
#include "tests/unit/train_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static const ModelSetting TINY[] = {
    {"layers", "1"}, {"model", "8"}, {"heads", "2"}, {"seq", "4"}, {"vocab", "16"}};
static const Layout LAYOUT = {2, 1, 1, 1, 1, "1f1b", false, NULL, 0};
enum { WORLD = 2, VICTIM = 1, TOKENS = 4, VIEWS_BEFORE_DEATH = 2 };

static const char LOST[] =
    "rank 1 (host-1) was lost before it told of a step (its connection closed)";
static const char OLD[] = "what was there";
static char path[64];

const CliCommand CLI_COMMANDS[] = {{0}}; /* main.c's, which is not here */

/* --- a backend that has always just done its work; the victim's dies --- */

static enum { DIES_IN_STEP, DIES_AFTER_STEP, DIES_IN_EVALUATION, DIES_IN_SAVING } death;
static bool is_victim;
static int n_views;

static bool run_or_die(Engine *engine, EngineJob job, Diag *diag) {
    (void)engine, (void)job, (void)diag;
    if (is_victim) raise(SIGKILL);
    return true;
}

static const void *view_or_die(Engine *engine, const void *at, size_t bytes) {
    if (is_victim && n_views++ == VIEWS_BEFORE_DEATH) raise(SIGKILL);
    return CPU_BACKEND.view(engine, at, bytes);
}

/* Opens no file any more: what it has goes through rank 0. */
static void see_no_files(void) {
    int next = dup(STDOUT_FILENO);
    close(next);
    struct rlimit none = {(rlim_t)next, (rlim_t)next};
    setrlimit(RLIMIT_NOFILE, &none);
}

static bool act(Engine *engine, Diag *diag) {
    static const int32_t tokens[TOKENS] = {0};
    StepResult result;
    double loss;
    if (death == DIES_IN_STEP) return engine_step(engine, 1, tokens, tokens, 1e-3, &result, diag);
    if (death == DIES_AFTER_STEP) { /* where ranks agree whether to stop: that is no interruption */
        if (is_victim) raise(SIGKILL);
        return engine_args_agree(&(EngineOptions){.control = engine->control}, true);
    }
    if (death == DIES_IN_EVALUATION) return engine_evaluate(engine, tokens, tokens, &loss, diag);
    if (is_victim) see_no_files();
    return engine_save_state(engine, path,
                             &(TrainingPlace){.step = 1, .samples = 1, .data = "a text"}, diag);
}

/* True: what the engine did failed, as it should. */
static bool lose_rank(Job *job, int rank, char said[SAID_BYTES]) {
    Run run;
    EngineBackend backend = CPU_BACKEND;
    bool fine = run_plan(&run, "models/gpt.lua", TINY, 5, &LAYOUT, 1, false) && run_start(&run);
    Control *control = join(job, rank, said);
    /* All have joined before one dies, or rank 0's joining is what fails. */
    if (!fine || !control || !control_barrier(control)) return false;
    const char *why = "";
    Engine *engine = run.engine;
    unsigned char *others = engine->ranks[1 - rank].memory;
    is_victim = rank == VICTIM;
    backend.run = run_or_die;
    backend.view = view_or_die;
    engine->ranks[1 - rank].memory = NULL;
    engine->control = control;
    engine->is_first = rank == 0;
    engine->backend = &backend;
    bool done = act(engine, run.diag);
    control_failed(control, &why);
    /* Of a file that is not written and of no answer, the job's end says why. */
    bool at_end = death == DIES_IN_SAVING || death == DIES_AFTER_STEP;
    snprintf(said, SAID_BYTES, "%s%s", diag_text(run.diag), at_end ? why : "");
    engine->ranks[1 - rank].memory = others;
    engine->control = NULL;
    engine->backend = &CPU_BACKEND;
    run_close(&run);
    control_destroy(control);
    return !done;
}

static void check_death(const char *name) {
    check_begin(name);
    Job job = job_create(WORLD, lose_rank);
    job.options.connect_s = job.options.operation_s = job.options.lost_s = 60; /* busy machines */
    job_start(&job);
    job_finish(&job);
    CHECK(job.was_killed[VICTIM], "the victim lives: %s", job.said[VICTIM]);
    CHECK(job.went_well[0], "rank 0: %s", job.said[0]);
    CHECK(strncmp(job.said[0], LOST, strlen(LOST)) == 0, "rank 0 says: %s", job.said[0]);
}

static void check_file(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length = 0;
    char *now = file_read(arena, path, 1 << 20, &length, diag);
    CHECK(now && length == sizeof(OLD) && memcmp(now, OLD, length) == 0,
          "the file has %zu other bytes %s", length, diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    Diag *diag = diag_create();
    snprintf(path, sizeof(path), "/tmp/perilune-lost-%d", (int)getpid());
    check_death("a rank lost after a step's last message is no loss that is not finite");
    death = DIES_AFTER_STEP;
    check_death("a rank lost between steps is no wish to stop");
    death = DIES_IN_EVALUATION;
    check_death("a rank lost after an evaluation gives no validation loss");
    death = DIES_IN_SAVING;
    CHECK(file_write(path, OLD, sizeof(OLD), diag), "%s", diag_text(diag));
    check_death("a rank lost while its weights go through rank 0 leaves the file before");
    check_file();
    unlink(path);
    diag_destroy(diag);
    return check_report();
}
