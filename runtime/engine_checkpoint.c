/* Reading checkpoints: whole logical tensors in one safetensors file, whatever the layout was.
 *
 * Weights are tensors by their names in f32; a checkpoint to go on from has the optimizer's state
 * beside them ("adam_m/wte", "loss_scale") and its place in the run as metadata.
 */
#include "runtime/engine_save.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool load_leaf(Engine *engine, const RankContext *rank, Node *node, const Safetensors *file,
                      const char *path, Arena *arena, Diag *diag) {
    SourceLoc loc = {path, 0};
    SafetensorsInfo info;
    Shard shard = engine_leaf_shard(rank, node);
    const char *name = engine_logical_name(rank, node, arena);
    if (node_is_copy(node)) { /* "name.bf16" of "name" */
        size_t length = strlen(name) - strlen(dtype_name(shard.whole.dtype)) - 1;
        name = arena_strndup(arena, name, length);
        shard.whole.dtype = DTYPE_F32;
    }
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
            if (node->op == OP_VARIABLE && !place) {
                engine_set_variable(engine, rank, node, (float)node_float(node, ATTR_value, 0));
            }
            bool copy = rank->plan->context && engine_is_own_copy(graph, node);
            if (!engine_is_leaf(node, place != NULL) && !copy) continue;
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
    if (!safetensors_find_metadata(file, CHECKPOINT_STEP_KEY)) {
        diag_error(diag, loc,
                   "has weights only, no place to go on from: start anew from them with --load");
        return false;
    }
    if (!read_count(file, CHECKPOINT_STEP_KEY, INT64_MAX, &step) ||
        !read_count(file, CHECKPOINT_SAMPLES_KEY, INT64_MAX, &samples) ||
        !read_count(file, CHECKPOINT_SEED_KEY, UINT64_MAX, &seed)) {
        diag_error(diag, loc, "its place in the run is damaged: '%s', '%s' and '%s' are no counts",
                   CHECKPOINT_STEP_KEY, CHECKPOINT_SAMPLES_KEY, CHECKPOINT_SEED_KEY);
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
    const char *data = safetensors_find_metadata(file, CHECKPOINT_DATA_KEY);
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
