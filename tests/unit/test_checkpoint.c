/* Going on from a checkpoint: as if training had never stopped, under the same layout to the bit,
 * under any other as close as layouts are; and files that several processes write at once.
 *
 * Would catch: state that is not saved or not loaded, or into the wrong part of a tensor; shards
 * over d (ZeRO) or t lost; padding written; a copy in bf16 that is not made anew; processes whose
 * parts leave holes or overlap; a file that appears although one of them failed; one written behind
 * training that has something of a later step in it.
 */
#include "ir/base/file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine_internal.h"
#include "tests/unit/control_job.h"
#include "tests/unit/train_fixture.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const ModelSetting TINY[] = {
    {"layers", "4"}, {"model", "32"},    {"heads", "4"},           {"seq", "16"},
    {"vocab", "61"}, {"dropout", "0.1"}, {"optimizer.eps", "1e-4"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]), FIRST_STEPS = 3, STEPS = 6 };

typedef struct Case {
    const char *name;
    Layout layout;
    int zero;
    DType precision, state; /* state: of the optimizer */
} Case;

static const Case CASES[] = {
    {"one rank", {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 0, DTYPE_F32, DTYPE_F32},
    {"t=2 d=2", {2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, 0, DTYPE_F32, DTYPE_F32},
    {"d=4, ZeRO", {1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, 1, DTYPE_F32, DTYPE_F32},
    {"p=2 in a V", {1, 2, 2, 2, 2, "zb-v", false, NULL, 0}, 1, DTYPE_F32, DTYPE_F32},
    {"p=2 in two chunks", {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, 0, DTYPE_F32, DTYPE_F32},
    {"t=2 d=2 p=2, ZeRO", {2, 2, 2, 2, 1, "1f1b", false, NULL, 0}, 1, DTYPE_F32, DTYPE_F32},
    {"t=2 d=4, ZeRO-3", {2, 4, 1, 2, 1, "1f1b", true, NULL, 0}, 3, DTYPE_F32, DTYPE_F32},
    {"bf16, d=2, ZeRO", {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, DTYPE_BF16, DTYPE_F32},
    {"bf16, d=2 p=2, ZeRO-3", {1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, 3, DTYPE_BF16, DTYPE_F32},
    {"all in bf16, t=2 d=2, ZeRO",
     {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},
     1,
     DTYPE_BF16,
     DTYPE_BF16},
    {"all in bf16", {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 0, DTYPE_BF16, DTYPE_BF16},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static char path[64];

static bool start(Run *run, const Case *c) {
    run_zero = c->zero;
    run_precision = c->precision;
    run_state_dtype = c->state;
    bool fine = run_plan(run, "models/gpt.lua", TINY, N_TINY, &c->layout, 16, false);
    run_zero = 0;
    run_precision = run_state_dtype = DTYPE_F32;
    return fine && run_start(run);
}

static const TrainingPlace PLACE = {.step = FIRST_STEPS,
                                    .samples = 16 * FIRST_STEPS,
                                    .data = "a text",
                                    .recent = {1, 2},
                                    .n_recent = 2};

static bool save_early(const Case *c) {
    Run run;
    bool fine = start(&run, c) && run_steps(&run, FIRST_STEPS, 1e-3) &&
                engine_save_state(run.engine, path, &PLACE, run.diag);
    CHECK(fine, "%s: %s", c->name, diag_text(run.diag));
    run_close(&run);
    return fine;
}

/* Goes on under `c` from the file and compares with `whole`, which never stopped. */
static void go_on(const Case *c, Run *whole, bool exactly) {
    Run run;
    TrainingPlace place = {0};
    bool narrow = c->precision != DTYPE_F32; /* sums over other ranks round otherwise */
    bool fine = start(&run, c) && engine_load_state(run.engine, path, &place, run.diag) &&
                run_steps_from(&run, FIRST_STEPS, STEPS - FIRST_STEPS, 1e-3);
    CHECK(fine, "%s: %s", c->name, diag_text(run.diag));
    CHECK(place.step == PLACE.step && place.samples == PLACE.samples &&
              strcmp(place.data, PLACE.data) == 0 && place.n_recent == 2 && place.recent[0] == 1 &&
              place.recent[1] == 2,
          "%s: step %lld, %lld samples of %s", c->name, (long long)place.step,
          (long long)place.samples, place.data);
    for (int i = FIRST_STEPS; fine && i < STEPS; i++) {
        double error = fabs(run.losses[i] - whole->losses[i]);
        CHECK(exactly ? error == 0 : error < (narrow ? 1e-3 : 1e-5) * whole->losses[i],
              "%s: loss %.9g at step %d, not %.9g", c->name, run.losses[i], i + 1,
              whole->losses[i]);
    }
    for (int i = 0; fine && i < run.n_params; i++) {
        int64_t n = type_elements(&run.types[i]);
        /* Some gradients are nothing but rounding (those of keys' biases). */
        const float *mine = run_weight(&run, i);
        float *theirs = ARENA_ARRAY(run.arena, float, n); /* by name: each plan has its order */
        CHECK(engine_read_parameter(whole->engine, run.names[i], theirs), "no %s", run.names[i]);
        double error = relative_distance(mine, theirs, n);
        if (!exactly && largest(theirs, n) < 1e-4) continue;
        CHECK(exactly ? error == 0 : error < (narrow ? 1e-2 : 1e-4), "%s: %s is %g off", c->name,
              run.names[i], error);
    }
    run_close(&run);
}

static void check_going_on(void) {
    for (int from = 0; from < N_CASES; from += VARIANT_STEP) {
        char name[96];
        snprintf(name, sizeof(name), "a checkpoint of %s is gone on from", CASES[from].name);
        check_begin(name);
        Run whole;
        bool fine = start(&whole, &CASES[from]) && run_steps(&whole, STEPS, 1e-3);
        CHECK(fine, "%s", diag_text(whole.diag));
        if (fine && save_early(&CASES[from])) {
            for (int to = 0; to < N_CASES; to++) {
                if (CASES[to].precision != CASES[from].precision) continue;
                if (to == from || to == 0 || to == from + 1) {
                    go_on(&CASES[to], &whole, to == from);
                }
            }
        }
        run_close(&whole);
    }
}

/* Steps that are taken while a file is written do not get into it. */
static void check_behind(const Case *c) {
    char name[96], *at_once, *behind;
    size_t length = 0, behind_length = 0;
    Run run;
    snprintf(name, sizeof(name), "written behind training is written at once: %s", c->name);
    check_begin(name);
    bool fine = start(&run, c);
    EngineSnapshot *snapshot = fine ? engine_snapshot_create(run.engine, run.diag) : NULL;
    fine = fine && snapshot && run_steps(&run, FIRST_STEPS, 1e-3) &&
           engine_save_state(run.engine, path, &PLACE, run.diag);
    at_once = fine ? file_read(run.arena, path, 1 << 24, &length, run.diag) : NULL;
    unlink(path);
    CHECK(at_once && engine_snapshot_poll(snapshot, true, run.diag) == SNAPSHOT_NONE, "%s",
          diag_text(run.diag));
    for (int round = 0; at_once && round < 2; round++) { /* waited for; asked now and then */
        SnapshotState state = engine_snapshot_begin(snapshot, path, &PLACE, run.diag);
        CHECK(state == SNAPSHOT_WRITING, "%s", diag_text(run.diag));
        CHECK(run_steps(&run, 1, 1e-3), "%s", diag_text(run.diag));
        while (state == SNAPSHOT_WRITING) state = engine_snapshot_poll(snapshot, !round, run.diag);
        CHECK(state == SNAPSHOT_WRITTEN, "%s", diag_text(run.diag));
        behind = file_read(run.arena, path, 1 << 24, &behind_length, run.diag);
        if (round == 0) {
            CHECK(behind && behind_length == length && memcmp(behind, at_once, length) == 0,
                  "another file");
        } else {
            CHECK(behind && memcmp(behind, at_once, length) != 0, "the first one's file");
        }
    }
    if (at_once) {
        CHECK(engine_snapshot_begin(snapshot, "/tmp/perilune-no-such-folder/w", &PLACE, run.diag) ==
                  SNAPSHOT_WRITING,
              "refused at once");
        CHECK(engine_snapshot_poll(snapshot, true, run.diag) == SNAPSHOT_FAILED &&
                  strstr(diag_text(run.diag), "perilune-no-such-folder/w: cannot create"),
              "it says: %s", diag_text(run.diag));
        engine_snapshot_begin(snapshot, path, &PLACE, run.diag); /* ended by destroy */
    }
    engine_snapshot_destroy(snapshot);
    run_close(&run);
    check_end();
}

static void check_refused(const char *says) {
    Run run;
    TrainingPlace place;
    bool fine = start(&run, &CASES[0]);
    CHECK(fine, "%s", diag_text(run.diag));
    CHECK(!engine_load_state(run.engine, path, &place, run.diag), "it was loaded");
    CHECK(strstr(diag_text(run.diag), says), "says %s", diag_text(run.diag));
    run_close(&run);
}

/* The file again with one piece of text replaced by another of its length. */
static void replace(const char *from, const char *to) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length = 0;
    char *bytes = file_read(arena, path, 1 << 24, &length, diag);
    char *at = NULL;
    for (size_t i = 0; bytes && !at && i + strlen(from) <= length; i++) {
        if (memcmp(bytes + i, from, strlen(from)) == 0) at = bytes + i;
    }
    CHECK(at && strlen(from) == strlen(to), "no %s in the file", from);
    if (at) memcpy(at, to, strlen(to));
    CHECK(at && file_write(path, bytes, length, diag), "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void check_refusals(void) {
    check_begin("what cannot be gone on from is refused");
    if (!save_early(&CASES[0])) return;
    replace("\"perilune.seed\":\"7\"", "\"perilune.seed\":\"8\"");
    check_refused("was made with seed 8, the plan has 7");
    replace("\"perilune.seed\":\"8\"", "\"perilune.seed\":\"x\"");
    check_refused("its place in the run is damaged");
    replace("\"perilune.seed\":\"x\"", "\"perilune.seed\":\"7\"");
    replace("\"perilune.samples\":\"48\"", "\"perilune.samples\":\"02\"");
    check_refused("its place in the run is damaged");
    if (!save_early(&CASES[0])) return;
    replace("\"perilune.step\"", "\"perilune.stop\"");
    check_refused("has weights only");
    if (!save_early(&CASES[0])) return;
    replace("\"adam_v/wte\"", "\"adam_v/wtf\"");
    check_refused("has no tensor 'adam_v/wte', which the plan's optimizer needs");
}

/* --- several processes, as on several GPUs: each keeps one rank's memory, forgets the others' ---
 */

/* What the last rank cannot do: see the file, write its part; or the first, begin. SLOW: the last
 * one does not see the file, and the first one's disk takes longer than ranks wait for answers. */
static enum { ALL_WELL, UNSEEN, FULL, NO_FOLDER, SLOW } trouble;
static const double ANSWER_S = 1, SLOW_S = 1.6;
static atomic_int n_slow; /* of the writes that come */

/* In libc's place. Numbers wake threads, more goes to the disk. */
ssize_t write(int fd, const void *bytes, size_t n) {
    if (n > sizeof(uint64_t) && atomic_load(&n_slow) > 0 && atomic_fetch_sub(&n_slow, 1) == 1)
        sleep_s(SLOW_S);
    return syscall(SYS_write, fd, bytes, n);
}

static void make_trouble(int rank, int world) {
    struct rlimit none = {4096, 4096};
    /* The header, a tensor, the next one. */
    if (trouble == SLOW && rank == 0) atomic_store(&n_slow, 3);
    if ((trouble == UNSEEN || trouble == SLOW) && rank == world - 1) {
        int next = dup(STDOUT_FILENO); /* no file is opened any more */
        close(next);
        none.rlim_cur = none.rlim_max = (rlim_t)next;
        setrlimit(RLIMIT_NOFILE, &none);
    } else if (trouble == FULL && rank == world - 1) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &none);
    }
}

static const Case *shared_case;
static bool write_behind;

static bool save_behind(Engine *engine, Diag *diag) {
    EngineSnapshot *snapshot = engine_snapshot_create(engine, diag);
    SnapshotState state =
        snapshot ? engine_snapshot_begin(snapshot, path, &PLACE, diag) : SNAPSHOT_FAILED;
    while (state == SNAPSHOT_WRITING) state = engine_snapshot_poll(snapshot, false, diag);
    engine_snapshot_destroy(snapshot);
    return state == SNAPSHOT_WRITTEN;
}

/* Numbers that tell every element of every tensor. */
static void number_leaves(Engine *engine, Arena *arena) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        for (int n = 0; n < rank->program->graph->n_nodes; n++) {
            Node *node = rank->program->graph->nodes[n];
            if (!engine_is_leaf(rank, node, true)) continue;
            int64_t count = type_elements(&node->types[0]);
            float *whole = ARENA_ARRAY(arena, float, count);
            const char *name = engine_logical_name(rank, node, arena);
            float first = (float)(strlen(name) * 1000 + (unsigned char)name[strlen(name) - 1]);
            for (int64_t i = 0; i < count; i++) whole[i] = first + (float)i;
            engine_set_leaf(engine, rank, node, &(WholeTensor){whole, DTYPE_F32}, arena);
        }
    }
}

/* A process with an engine of its own: this one has no threads yet, which do not survive a fork. */
static bool write_as_rank(Job *job, int rank, char said[SAID_BYTES]) {
    Run run;
    unsigned char *memory[MAX_WORLD] = {NULL};
    Control *control = NULL;
    bool fine = start(&run, shared_case);
    if (fine) number_leaves(run.engine, run.arena);
    if (job->world > 1) {
        control = join(job, rank, said);
        fine = fine && control;
    }
    for (int r = 0; fine && r < run.engine->n_ranks; r++) {
        memory[r] = run.engine->ranks[r].memory;
        if (control && r != rank) run.engine->ranks[r].memory = NULL;
    }
    if (fine) {
        run.engine->control = control;
        run.engine->is_first = rank == 0;
        make_trouble(rank, job->world);
        fine = write_behind ? save_behind(run.engine, run.diag)
                            : engine_save_state(run.engine, path, &PLACE, run.diag);
        snprintf(said, SAID_BYTES, "%s", diag_text(run.diag));
        for (int r = 0; r < run.engine->n_ranks; r++) run.engine->ranks[r].memory = memory[r];
        run.engine->control = NULL;
    }
    run_close(&run);
    if (control) control_close(control);
    control_destroy(control);
    return fine;
}

static Job run_job(int world) {
    Job job = job_create(world, write_as_rank);
    job.options.connect_s = job.options.operation_s = job.options.lost_s = 60; /* busy machines */
    if (trouble == SLOW) job.options.operation_s = ANSWER_S;
    job_start(&job);
    job_finish(&job);
    return job;
}

/* Files in the folder of `path` that begin as it does: itself and what was left beside it. */
static int count_files(void) {
    const char *name = strrchr(path, '/') + 1;
    DIR *dir = opendir("/tmp");
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        n += strncmp(entry->d_name, name, strlen(name)) == 0;
    }
    if (dir) closedir(dir);
    return n;
}

static void check_processes(const Case *c) {
    char name[96], *alone = NULL;
    size_t length = 0;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    snprintf(name, sizeof(name), "four processes write what one would: %s", c->name);
    check_begin(name);
    shared_case = c;
    /* Alone; in parts; through rank 0; the last two behind training. */
    for (int round = 0; round < 5; round++) {
        size_t theirs_length = 0;
        unlink(path);
        trouble = round && round % 2 == 0 ? UNSEEN : ALL_WELL;
        write_behind = round > 2;
        Job job = run_job(round ? 4 : 1);
        check_all_well(&job);
        char *theirs = file_read(arena, path, 1 << 24, &theirs_length, diag);
        CHECK(theirs, "%s", diag_text(diag));
        if (round == 0) {
            alone = theirs;
            length = theirs_length;
        }
        CHECK(theirs && alone && length == theirs_length && memcmp(alone, theirs, length) == 0,
              "round %d: another file", round);
        CHECK(count_files() == 1, "%d files", count_files());
    }
    write_behind = false;
    diag_destroy(diag);
    arena_destroy(arena);
}

static void check_slow_disk(void) {
    check_begin("through rank 0, whose disk takes longer than ranks wait for answers");
    unlink(path);
    shared_case = &CASES[1];
    trouble = SLOW;
    Job job = run_job(4);
    check_all_well(&job);
    CHECK(count_files() == 1, "%d files", count_files());
    trouble = ALL_WELL;
}

static void check_failing_processes(void) {
    check_begin("a part that cannot be written fails all, and leaves the file before");
    static const char OLD[] = "what was there";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CHECK(file_write(path, OLD, sizeof(OLD), diag), "%s", diag_text(diag));
    shared_case = &CASES[2];
    trouble = FULL;
    Job job;
    for (int round = 0; round < 2; round++) {
        write_behind = round;
        job = run_job(4);
        for (int r = 0; r < 4; r++) CHECK(!job.went_well[r], "rank %d is content", r);
        check_said(&job, 3, "cannot write: File too large");
        check_said(&job, 0, "rank 3 (host-3) cannot write its part: /tmp/");
        check_said(&job, 0, "File too large");
    }
    write_behind = false;
    size_t length = 0;
    char *now = file_read(arena, path, 1 << 20, &length, diag);
    CHECK(now && length == sizeof(OLD) && memcmp(now, OLD, length) == 0, "%s", diag_text(diag));
    CHECK(count_files() == 1, "%d files", count_files());

    check_begin("a folder that is not there fails all");
    unlink(path);
    char kept[sizeof(path)];
    memcpy(kept, path, sizeof(path));
    snprintf(path, sizeof(path), "/tmp/perilune-no-such-folder/w");
    trouble = NO_FOLDER;
    job = run_job(4);
    for (int r = 0; r < 4; r++) CHECK(!job.went_well[r], "rank %d is content", r);
    check_said(&job, 0, "perilune-no-such-folder/w: cannot create");
    check_said(&job, 2, "rank 0 cannot write");
    memcpy(path, kept, sizeof(path));
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    snprintf(path, sizeof(path), "/tmp/perilune-checkpoint-%d", (int)getpid());
    run_threads = 2;
    check_processes(&CASES[1]); /* over t and d */
    check_processes(&CASES[2]); /* the optimizer's state over d */
    check_processes(&CASES[9]); /* and in bf16 */
    check_slow_disk();
    check_failing_processes();
    check_behind(&CASES[4]);
    check_behind(&CASES[10]);
    check_behind(&CASES[7]);
    check_going_on();
    check_refusals();
    unlink(path);
    return check_report();
}
