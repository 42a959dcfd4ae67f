/* Checkpoints behind training: what is to be written is copied, a thread writes it.
 *
 * The memory is taken and touched before training begins, so that it cannot be lacking later. Of
 * one process it holds the file's tensors, whole, in f32; of several what this one owns of each, in
 * the order of saving_visit_own. Only the engine's thread talks to other processes: before the
 * copy, to open one file (saving_begin), and when it asks how far they are.
 */
#include "runtime/engine_save.h"

#include "ir/base/host.h"
#include "runtime/launch/control.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct EngineSnapshot {
    Engine *engine;
    char *memory;
    size_t bytes;
    Saving saving;
    Diag *diag; /* of the file being written; the thread's until it has ended */
    pthread_t thread;
    bool is_copied;       /* or some of `memory` is no numbers */
    bool is_writing;      /* between begin and the poll that says how it ended */
    atomic_bool is_done;  /* by the thread: all of this process is on its way to the disk */
    bool is_fine;         /* by the thread, before is_done */
    int64_t n_polls, ask; /* since begin; the next one at which processes ask each other */
};

/* --- memory --- */

static bool add_bytes(Saving *s, int item, const RankContext *rank, size_t bytes, void *user) {
    (void)s, (void)item, (void)rank;
    *(size_t *)user += bytes;
    return true;
}

/* Of what comes first, on the first process. */
static size_t beside_bytes(const Saving *s) {
    size_t bytes = 0;
    for (int i = 0; s->engine->is_first && i < s->n_beside; i++) {
        bytes += (size_t)type_elements(&s->engine->beside[i].type) * sizeof(float);
    }
    return bytes;
}

static size_t count_bytes(Engine *engine) {
    Arena *arena = arena_create();
    Saving s = {
        .engine = engine, .list = saving_list(engine, true, arena), .n_beside = engine->n_beside};
    size_t bytes = beside_bytes(&s);
    if (engine->control) saving_visit_own(&s, add_bytes, &bytes);
    for (int i = 0; i < s.list.count && !engine->control; i++) {
        bytes += (size_t)type_elements(&s.list.items[i].node->types[0]) * sizeof(float);
    }
    arena_destroy(arena);
    return bytes;
}

EngineSnapshot *engine_snapshot_create(Engine *engine, Diag *diag) {
    size_t bytes = count_bytes(engine);
    int64_t have = host_memory_bytes();
    int64_t arenas = engine_host_bytes(engine); /* and, on CPUs: */
    if (!engine->plan->cuda) arenas += engine_arena_bytes(engine);
    char *memory = arenas + (int64_t)bytes < have ? malloc(bytes ? bytes : 1) : NULL;
    if (!memory) {
        diag_error(diag, NO_LOC,
                   "checkpoints behind training need %.1f GiB more memory; %s %.1f GiB: do without "
                   "--checkpoint-async",
                   (double)bytes / (1 << 30), host_memory_phrase(), (double)have / (1 << 30));
        return NULL;
    }
    memset(memory, 0, bytes);
    EngineSnapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (!snapshot) BUG("out of memory");
    snapshot->engine = engine;
    snapshot->memory = memory;
    snapshot->bytes = bytes;
    return snapshot;
}

int64_t engine_snapshot_bytes(const EngineSnapshot *snapshot) {
    return (int64_t)snapshot->bytes;
}

/* --- copying, by the engine's thread --- */

static bool copy_share(Saving *s, int item, const RankContext *rank, size_t bytes, void *user) {
    char **next = user;
    Value value = node_value((Node *)s->list.items[item].node, 0);
    memcpy(*next, s->engine->backend->view(s->engine, executor_address(rank, value, 0), bytes),
           bytes);
    *next += bytes;
    return true;
}

static void copy(EngineSnapshot *snapshot) {
    Saving *s = &snapshot->saving;
    char *next = snapshot->memory;
    for (int i = 0; s->engine->is_first && i < s->n_beside; i++) {
        const EngineBeside *item = &s->engine->beside[i];
        const size_t bytes = (size_t)type_elements(&item->type) * sizeof(float);
        memcpy(next, item->values, bytes);
        next += bytes;
    }
    if (s->way == SAVING_PARTS) {
        saving_visit_own(s, copy_share, &next);
        return;
    }
    for (int i = 0; i < s->list.count; i++) {
        const Logical *item = &s->list.items[i];
        engine_assemble(s->engine, item->stage, node_value((Node *)item->node, 0), (float *)next);
        next += (size_t)type_elements(&item->node->types[0]) * sizeof(float);
    }
}

/* --- writing, by the thread --- */

static bool write_share(Saving *s, int item, const RankContext *rank, size_t bytes, void *user) {
    char **next = user;
    bool fine = saving_put_own(s, item, rank, *next);
    *next += bytes;
    return fine;
}

static bool write_whole(Saving *s, const char *beside, char *next) {
    bool fine = safetensors_writer_open(s->writer, s->path, s->diag) &&
                saving_put_beside(s, (const float *)(const void *)beside);
    for (int i = 0; fine && i < s->list.count; i++) {
        const Logical *item = &s->list.items[i];
        const int64_t n = type_elements(&item->node->types[0]);
        size_t bytes = saving_pack(item->node, (float *)(void *)next, n);
        fine = safetensors_writer_put(s->writer, item->name, next, bytes, s->diag);
        next += (size_t)n * sizeof(float);
    }
    return fine;
}

/* One process' file is complete and under its name then; of several, each one's part is written and
 * on the disk. */
static void *write_all(void *user) {
    EngineSnapshot *snapshot = user;
    Saving *s = &snapshot->saving;
    char *beside = snapshot->memory, *next = beside + beside_bytes(s);
    if (s->way == SAVING_PARTS) {
        snapshot->is_fine = snapshot->is_copied &&
                            saving_put_beside(s, (const float *)(const void *)beside) &&
                            saving_visit_own(s, write_share, &next) && saving_close_own(s);
    } else {
        snapshot->is_fine = saving_end(s, snapshot->is_copied && write_whole(s, beside, next));
    }
    atomic_store(&snapshot->is_done, true);
    return NULL;
}

/* Signals are the engine's thread's. */
static bool start_thread(EngineSnapshot *snapshot) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool fine = pthread_create(&snapshot->thread, NULL, write_all, snapshot) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return fine;
}

/* --- what training calls --- */

static SnapshotState end(EngineSnapshot *snapshot, bool fine, Diag *diag) {
    if (!fine) diag_append(diag, snapshot->diag);
    diag_destroy(snapshot->diag);
    snapshot->diag = NULL;
    snapshot->is_writing = false;
    return fine ? SNAPSHOT_WRITTEN : SNAPSHOT_FAILED;
}

SnapshotState engine_snapshot_begin(EngineSnapshot *snapshot, const char *path,
                                    const TrainingPlace *place, Diag *diag) {
    Engine *engine = snapshot->engine;
    if (snapshot->is_writing) BUG("a checkpoint is being written");
    snapshot->diag = diag_create();
    saving_begin(&snapshot->saving, engine, path, false, place, snapshot->diag);
    if (engine->control && snapshot->saving.way != SAVING_PARTS) {
        bool fine = snapshot->saving.way == SAVING_WHOLE && saving_stream(&snapshot->saving);
        return end(snapshot, saving_end(&snapshot->saving, fine), diag);
    }
    copy(snapshot);
    snapshot->is_copied = !engine_copy_failed(engine, snapshot->diag);
    snapshot->n_polls = 0;
    snapshot->ask = 1;
    snapshot->is_fine = false;
    atomic_store(&snapshot->is_done, false);
    snapshot->is_writing = true;
    if (start_thread(snapshot)) return SNAPSHOT_WRITING;
    write_all(snapshot); /* then now */
    snapshot->thread = pthread_self();
    return SNAPSHOT_WRITING;
}

/* Of several processes: have all written their parts? A failed job's are all waited for. */
static bool all_done(EngineSnapshot *snapshot) {
    struct Control *control = snapshot->engine->control;
    bool done = atomic_load(&snapshot->is_done);
    if (!control) return done;
    if (++snapshot->n_polls < snapshot->ask) return false;
    snapshot->ask *= 2;
    int world = snapshot->engine->n_ranks;
    char own = done, *all = malloc((size_t)world);
    if (!all) BUG("out of memory");
    done = !control_all_gather(control, &own, 1, 1, all, NULL) || !memchr(all, 0, (size_t)world);
    free(all);
    return done;
}

SnapshotState engine_snapshot_poll(EngineSnapshot *snapshot, bool wait, Diag *diag) {
    if (!snapshot->is_writing) return SNAPSHOT_NONE;
    if (!wait && !all_done(snapshot)) return SNAPSHOT_WRITING;
    if (!pthread_equal(snapshot->thread, pthread_self())) pthread_join(snapshot->thread, NULL);
    bool fine = snapshot->is_fine;
    if (snapshot->engine->control) fine = saving_end(&snapshot->saving, fine);
    return end(snapshot, fine, diag);
}

void engine_snapshot_destroy(EngineSnapshot *snapshot) {
    if (!snapshot) return;
    if (snapshot->is_writing) {
        Diag *unseen = diag_create();
        engine_snapshot_poll(snapshot, true, unseen);
        diag_destroy(unseen);
    }
    free(snapshot->memory);
    free(snapshot);
}
