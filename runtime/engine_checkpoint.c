/* Checkpoints: whole logical tensors in one safetensors file, whatever the layout was.
 *
 * Weights are tensors by their names in f32; a checkpoint to go on from has the optimizer's state
 * beside them ("adam_m/wte", "loss_scale") and its place in the run as metadata. One process
 * assembles tensor after tensor and streams them. Of several each writes what its ranks hold
 * straight into the file, if all see it; else all of it goes through the first one's memory.
 */
#include "runtime/engine_internal.h"

#include "ir/base/file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/launch/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char STEP_KEY[] = "perilune.step", SAMPLES_KEY[] = "perilune.samples",
                  SEED_KEY[] = "perilune.seed", DATA_KEY[] = "perilune.data";

/* --- loading --- */

static bool load_leaf(Engine *engine, const RankContext *rank, Node *node, const Safetensors *file,
                      const char *path, Arena *arena, Diag *diag) {
    SourceLoc loc = {path, 0};
    SafetensorsInfo info;
    const char *name = engine_logical_name(rank, node, arena);
    Shard shard = engine_leaf_shard(rank, node);
    if (!safetensors_find(file, name, &info)) {
        diag_error(diag, loc, "has no tensor '%s', which the plan's %s needs", name,
                   node->op == OP_STATE ? "optimizer" : "model");
        return false;
    }
    bool fits = info.dtype == SAFETENSORS_F32 && info.n_dims == shard.whole.rank;
    for (int i = 0; fits && i < shard.whole.rank; i++) fits = info.shape[i] == shard.whole.dims[i];
    if (!fits) {
        StrBuf want = strbuf_create();
        type_print(&want, &rank->program->graph->axes, &shard.whole, NULL);
        diag_error(diag, loc, "tensor '%s' does not have the model's shape %s", name, want.text);
        strbuf_destroy(&want);
        return false;
    }
    engine_set_leaf(engine, rank, node, info.data, arena);
    return true;
}

/* What a variable may be after so many steps, counts being whole numbers. */
static bool check_variable(const char *name, double value, int64_t steps, const char *path,
                           Diag *diag) {
    bool scale = strcmp(name, LOSS_SCALE_NAME) == 0;
    double least = scale ? 1 : 0, most = scale ? LOSS_SCALE_MOST : (double)steps;
    if (value >= least && value <= most && (scale || value == floor(value))) return true;
    diag_error(diag, (SourceLoc){path, 0},
               "tensor '%s' is %g; it must be a %snumber from %g to %.10g", name, value,
               scale ? "" : "whole ", least, most);
    return false;
}

/* A run may go on with a loss scale that had none, or none in between: as if every step so far had
 * been an update. A scale that stays as it is is the plan's. */
static bool load_variable(Engine *engine, const RankContext *rank, Node *node,
                          const Safetensors *file, const char *path, int64_t steps, Arena *arena,
                          Diag *diag) {
    SafetensorsInfo info;
    float value;
    const char *name = node_string(node, ATTR_name);
    bool fixed =
        strcmp(name, LOSS_SCALE_NAME) == 0 && plan_loss_scaling(engine->plan).interval == 0;
    if (!fixed && safetensors_find(file, UPDATES_NAME, &info)) {
        if (!load_leaf(engine, rank, node, file, path, arena, diag)) return false;
        safetensors_find(file, name, &info);
        memcpy(&value, info.data, sizeof(value));
        return check_variable(name, (double)value, steps, path, diag);
    }
    bool counts = strcmp(name, UPDATES_NAME) == 0;
    value = counts ? (float)steps : (float)node_float(node, ATTR_value, 0);
    engine_set_variable(engine, rank, node, value);
    return true;
}

/* NULL for place: weights alone. */
static bool load_leaves(Engine *engine, const Safetensors *file, const TrainingPlace *place,
                        const char *path, Diag *diag) {
    Arena *arena = arena_create();
    bool fine = true;
    for (int r = 0; fine && r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; fine && engine_is_local(rank) && n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (!engine_is_leaf(node, place != NULL)) continue;
            fine = node->op == OP_VARIABLE
                       ? load_variable(engine, rank, node, file, path, place->step, arena, diag)
                       : load_leaf(engine, rank, node, file, path, arena, diag);
        }
    }
    arena_destroy(arena);
    return fine;
}

bool engine_load(Engine *engine, const char *path, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    bool fine = file && load_leaves(engine, file, NULL, path, diag);
    if (file) safetensors_close(file);
    return fine;
}

/* A count, 0 to INT64_MAX, in decimal digits. */
static bool read_count(const Safetensors *file, const char *key, uint64_t most, uint64_t *out) {
    const char *text = safetensors_find_metadata(file, key);
    if (!text || !*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0 && *out <= most;
}

static bool load_place(const Engine *engine, const Safetensors *file, const char *path,
                       TrainingPlace *out, Diag *diag) {
    const SourceLoc loc = {path, 0};
    uint64_t step, samples, seed;
    if (!safetensors_find_metadata(file, STEP_KEY)) {
        diag_error(diag, loc,
                   "has weights only, no place to go on from: start anew from them with --load");
        return false;
    }
    if (!read_count(file, STEP_KEY, INT64_MAX, &step) ||
        !read_count(file, SAMPLES_KEY, INT64_MAX, &samples) ||
        !read_count(file, SEED_KEY, UINT64_MAX, &seed)) {
        diag_error(diag, loc, "its place in the run is damaged: '%s', '%s' and '%s' are no counts",
                   STEP_KEY, SAMPLES_KEY, SEED_KEY);
        return false;
    }
    if (seed != engine->plan->seed) {
        diag_error(diag, loc,
                   "was made with seed %" PRIu64 ", the plan has %" PRIu64
                   ": samples and dropout would not be the same run's",
                   seed, engine->plan->seed);
        diag_note(diag, NO_LOC, "plan with --seed %" PRIu64, seed);
        return false;
    }
    const char *data = safetensors_find_metadata(file, DATA_KEY);
    *out = (TrainingPlace){.step = (int64_t)step, .samples = (int64_t)samples};
    snprintf(out->data, sizeof(out->data), "%s", data ? data : "");
    return true;
}

bool engine_load_state(Engine *engine, const char *path, TrainingPlace *out, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    bool fine = file && load_place(engine, file, path, out, diag) &&
                load_leaves(engine, file, out, path, diag);
    if (file) safetensors_close(file);
    return fine;
}

/* --- saving --- */

/* One file on its way. */
typedef struct Saving {
    Engine *engine;
    const char *path;
    LogicalList list;
    SafetensorsWriter *writer; /* declared alike in all processes */
    Diag *diag;
} Saving;

enum { NOBODY = -1, JOB_FAILED = INT_MAX }; /* a failed job says why itself */
enum { ANSWER_BYTES = 200 };

/* The same on all processes: the lowest rank that said no and, unless NULL, what it reported. */
static int first_refusal(Saving *s, bool own, char out_why[ANSWER_BYTES]) {
    int world = s->engine->n_ranks, refusal = NOBODY;
    char answer[ANSWER_BYTES] = "";
    char *all = malloc((size_t)world * ANSWER_BYTES);
    if (!all) BUG("out of memory");
    if (!own) snprintf(answer, sizeof(answer), "no %s", diag_text(s->diag));
    answer[strcspn(answer, "\n")] = '\0';
    if (!control_all_gather(s->engine->control, answer, ANSWER_BYTES, ANSWER_BYTES, all, NULL)) {
        refusal = JOB_FAILED;
    }
    for (int r = world - 1; r >= 0 && refusal != JOB_FAILED; r--) {
        const char *theirs = all + (size_t)r * ANSWER_BYTES;
        if (!theirs[0]) continue;
        refusal = r;
        if (out_why) snprintf(out_why, ANSWER_BYTES, "%.*s", ANSWER_BYTES - 4, theirs + 3);
    }
    free(all);
    return refusal;
}

static bool stream_tensors(Saving *s) {
    int64_t largest = 1;
    for (int i = 0; i < s->list.count; i++) {
        int64_t elements = type_elements(&s->list.items[i].node->types[0]);
        if (elements > largest) largest = elements;
    }
    float *whole = malloc((size_t)largest * sizeof(float));
    bool fine = whole != NULL;
    if (!fine) diag_error(s->diag, (SourceLoc){s->path, 0}, "not enough memory for its tensors");
    if (s->engine->control) fine = first_refusal(s, fine, NULL) == NOBODY;
    if (!fine) {
        free(whole);
        return false;
    }
    if (s->engine->is_first) fine = safetensors_writer_open(s->writer, s->path, s->diag);
    /* Of several processes all take part to the end, whatever became of one of them. */
    for (int i = 0; i < s->list.count; i++) {
        const Logical *item = &s->list.items[i];
        size_t bytes = (size_t)type_elements(&item->node->types[0]) * sizeof(float);
        if (!fine && !s->engine->control) break;
        engine_assemble(s->engine, item->stage, node_value((Node *)item->node, 0), whole);
        if (!fine || !s->engine->is_first) continue;
        fine = safetensors_writer_put(s->writer, item->name, whole, bytes, s->diag);
    }
    free(whole);
    /* What a lost rank should have sent was written as no numbers: that replaces no file. */
    if (s->engine->control) fine = first_refusal(s, fine, NULL) == NOBODY;
    return fine;
}

/* --- of several processes, each its part --- */

typedef struct PartWriting {
    FilePart *part;
    size_t at; /* of the tensor in the file */
    const char *local;
    Diag *diag;
    bool failed;
} PartWriting;

static void put_run(void *user, int64_t local_at, int64_t whole_at, int64_t count) {
    PartWriting *w = user;
    if (w->failed) return;
    w->failed = !file_part_put(w->part, w->at + (size_t)whole_at * sizeof(float),
                               w->local + (size_t)local_at * sizeof(float),
                               (size_t)count * sizeof(float), w->diag);
}

static bool put_own(Saving *s, FilePart *part) {
    Engine *engine = s->engine;
    PartWriting w = {.part = part, .diag = s->diag};
    for (int i = 0; i < s->list.count; i++) {
        const Logical *item = &s->list.items[i];
        Value value = node_value((Node *)item->node, 0);
        w.at = safetensors_writer_offset(s->writer, i);
        for (int r = 0; r < engine->n_ranks && !w.failed; r++) {
            const RankContext *rank = &engine->ranks[r];
            if (!engine_is_local(rank) || !engine_owns(rank, item->stage, value)) continue;
            Shard shard = shard_of(value_type(value), value_sharding(value), &engine->plan->mesh,
                                   rank->coord);
            w.local = engine->backend->view(engine, executor_address(rank, value, 0),
                                            (size_t)type_local_bytes(value_type(value),
                                                                     value_sharding(value),
                                                                     &engine->plan->mesh));
            shard_visit(&shard, put_run, &w);
        }
    }
    return !w.failed;
}

typedef enum PartsEnd { PARTS_WRITTEN, PARTS_FAILED, PARTS_NOT_SEEN } PartsEnd;

/* Where all processes are to write: an absolute path, "" if it could not be opened. */
static bool share_place(Saving *s, char place[PATH_MAX]) {
    memset(place, 0, PATH_MAX);
    if (s->engine->is_first && safetensors_writer_open_parts(s->writer, s->path, s->diag)) {
        const char *temporary = safetensors_writer_temporary(s->writer);
        char folder[PATH_MAX] = "";
        if (temporary[0] != '/' && !getcwd(folder, sizeof(folder))) folder[0] = '\0';
        int n = snprintf(place, PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", temporary);
        if (n >= PATH_MAX) place[0] = '\0';
    }
    return control_broadcast(s->engine->control, 0, place, PATH_MAX) && place[0];
}

static PartsEnd write_parts(Saving *s) {
    char place[PATH_MAX], why[ANSWER_BYTES] = "";
    if (!share_place(s, place)) {
        if (!s->engine->is_first && !control_failed(s->engine->control, NULL))
            diag_error(s->diag, (SourceLoc){s->path, 0}, "rank 0 cannot write");
        return PARTS_FAILED;
    }
    Diag *unseen = diag_create();
    size_t length = safetensors_writer_offset(s->writer, s->list.count);
    FilePart *part = file_part_open(place, length, unseen);
    diag_destroy(unseen);
    int refusal = first_refusal(s, part != NULL, NULL);
    if (refusal != NOBODY) {
        if (part) file_part_close(part, s->diag);
        if (refusal == JOB_FAILED) return PARTS_FAILED;
        if (s->engine->is_first) {
            fprintf(stderr,
                    "note: rank %d does not see %s: all of it goes through rank 0, which takes "
                    "long; a folder that all machines share is faster\n",
                    refusal, s->path);
        }
        return PARTS_NOT_SEEN;
    }
    bool fine = put_own(s, part);
    fine = file_part_close(part, s->diag) && fine;
    refusal = first_refusal(s, fine, why);
    if (refusal == NOBODY) return PARTS_WRITTEN;
    if (fine && refusal != JOB_FAILED) {
        diag_error(s->diag, (SourceLoc){s->path, 0}, "rank %d cannot write its part: %s", refusal,
                   why);
    }
    return PARTS_FAILED;
}

static void declare(Saving *s, const TrainingPlace *place, Arena *arena) {
    s->writer = safetensors_writer_create();
    for (int i = 0; i < s->list.count; i++) {
        const Type *type = &s->list.items[i].node->types[0];
        safetensors_writer_add_tensor(s->writer, s->list.items[i].name, SAFETENSORS_F32, type->dims,
                                      type->rank);
    }
    safetensors_writer_add_metadata(s->writer, "format", "pt");
    safetensors_writer_add_metadata(s->writer, "model", s->engine->plan->model);
    if (s->engine->plan->settings && s->engine->plan->settings[0]) {
        safetensors_writer_add_metadata(s->writer, ENGINE_SETTINGS_KEY, s->engine->plan->settings);
    }
    if (!place) return;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{STEP_KEY, (uint64_t)place->step},
                  {SAMPLES_KEY, (uint64_t)place->samples},
                  {SEED_KEY, s->engine->plan->seed}};
    for (int i = 0; i < 3; i++) {
        safetensors_writer_add_metadata(s->writer, counts[i].key,
                                        arena_printf(arena, "%" PRIu64, counts[i].value));
    }
    safetensors_writer_add_metadata(s->writer, DATA_KEY, place->data);
}

static bool save(Engine *engine, const char *path, const TrainingPlace *place, Diag *diag) {
    Arena *arena = arena_create();
    Saving s = {engine, path, engine_list_leaves(engine, place != NULL, arena), NULL, diag};
    declare(&s, place, arena);
    PartsEnd end = engine->control ? write_parts(&s) : PARTS_NOT_SEEN;
    if (end == PARTS_NOT_SEEN) {
        if (engine->control) {
            safetensors_writer_abandon(s.writer);
            declare(&s, place, arena);
        }
        end = stream_tensors(&s) ? PARTS_WRITTEN : PARTS_FAILED;
    }
    bool fine = end == PARTS_WRITTEN;
    if (fine && engine->is_first) {
        fine = safetensors_writer_commit(s.writer, diag);
    } else {
        safetensors_writer_abandon(s.writer);
    }
    /* All have it, or none. */
    int refusal = engine->control ? first_refusal(&s, fine, NULL) : NOBODY;
    if (fine && refusal != NOBODY && refusal != JOB_FAILED) {
        diag_error(diag, (SourceLoc){path, 0}, "could not be finished");
    }
    fine = fine && refusal == NOBODY;
    arena_destroy(arena);
    return fine;
}

bool engine_save(Engine *engine, const char *path, Diag *diag) {
    return save(engine, path, NULL, diag);
}

bool engine_save_state(Engine *engine, const char *path, const TrainingPlace *place, Diag *diag) {
    return save(engine, path, place, diag);
}
