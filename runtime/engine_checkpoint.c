/* Reading checkpoints: whole logical tensors in one safetensors file, whatever the layout was.
 *
 * Weights are tensors by their names in f32; a checkpoint to go on from has the optimizer's state
 * beside them ("adam_m/wte", "loss_scale"), in f32 or bf16, and its place in the run as metadata.
 */
#include "ir/base/file.h"
#include "ir/base/utf8.h"
#include "ir/teacher.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/data/mix.h"
#include "runtime/engine_save.h"
#include "runtime/launch/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run's, and its steps', each of which takes one or more. */
#define MOST_SAMPLES (INT64_C(1) << 53)

/* Where weights come from; what both files have is `trained`'s. */
typedef struct Sources {
    const Safetensors *whole, *trained; /* trained NULL: none */
    const char *whole_path, *trained_path;
    bool adapters_begin; /* neither has any: they are as they are made */
    bool heads_begin;    /* likewise */
    bool averages_begin; /* it has none: they begin with the weights */
    bool of_teacher;     /* `whole` has a teacher's, by the names of its own model */
    bool of_reference;   /* what trains comes from `whole`'s CHECKPOINT_REFERENCE_PREFIX */
} Sources;

/* False, reported: it is in neither, or not in the one that it has to be in. */
static bool find_leaf(const Sources *from, const Node *node, const char *name, SafetensorsInfo *out,
                      const char **out_path, Diag *diag) {
    *out_path = from->trained_path;
    if (from->trained && safetensors_find(from->trained, name, out)) return true;
    if (from->trained && engine_is_adapter(name)) {
        diag_error(diag, (SourceLoc){from->trained_path, 0},
                   "has no tensor '%s', an adapter of the plan's", name);
        return false;
    }
    *out_path = from->whole_path;
    if (safetensors_find(from->whole, name, out)) return true;
    diag_error(diag, (SourceLoc){from->whole_path, 0},
               "has no tensor '%s', which the plan's %s needs", name,
               from->of_teacher       ? "teacher"
               : from->of_reference   ? "reference"
               : node->op == OP_STATE ? "optimizer"
                                      : "model");
    if (safetensors_find_metadata(from->whole, ENGINE_TRAINED_ALONE_KEY)) {
        diag_note(diag, NO_LOC,
                  "it has what was trained, without what was frozen: give it as "
                  "--load-trained, and the base as --load");
    }
    return false;
}

/* What a file has, and what the leaf is. */
static void report_misfit(const RankContext *rank, const Type *whole, const char *who, bool state,
                          const SafetensorsInfo *info, const char *path, Diag *diag) {
    StrBuf out = strbuf_create();
    strbuf_printf(&out, "tensor '%s' is %s[", info->name, safetensors_dtype_name(info->dtype));
    for (int i = 0; i < info->n_dims; i++)
        strbuf_printf(&out, "%s%" PRId64, i ? ", " : "", info->shape[i]);
    strbuf_printf(&out, "]; the %s's is ", who);
    type_print(&out, &rank->program->graph->axes, whole, NULL);
    strbuf_put(&out, state ? ", or the same in bf16" : ", or the same in bf16 or f16");
    diag_error(diag, (SourceLoc){path, 0}, "%s", out.text);
    strbuf_destroy(&out);
}

/* Would 8 bits make something else of them, silently: are they finite, and squares not below 0? */
static bool are_moments(DType kept, DType dtype, const SafetensorsInfo *info) {
    const int64_t n = (int64_t)info->n_bytes / dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0; /* bf16 is the upper half of an f32 */
        if (dtype == DTYPE_F32) {
            memcpy(&bits, (const char *)info->data + 4 * i, 4);
        } else {
            uint16_t low;
            memcpy(&low, (const char *)info->data + 2 * i, 2);
            bits = (uint32_t)low << 16;
        }
        const bool finite = (bits & 0x7f800000) != 0x7f800000;
        if (!finite || (kept == DTYPE_DYN8U && bits > 0x80000000)) return false;
    }
    return true;
}

static bool load_leaf(Engine *engine, const RankContext *rank, Node *node, const Sources *from,
                      Arena *arena, Diag *diag) {
    SafetensorsInfo info;
    const char *name = engine_leaf_name(rank, node, arena), *path;
    Shard shard = engine_leaf_shard(rank, node);
    shard.whole.dtype = DTYPE_F32;                      /* as files have it */
    if (engine_is_teachers(node) != from->of_teacher) { /* of no concern, or as it is made */
        if (!from->of_teacher && !engine->teacher[0])
            engine_set_leaf(engine, rank, node, NULL, arena);
        return true;
    }
    if (from->of_teacher) name = teacher_own_name(name);
    if (from->of_reference && node_is_frozen(node)) return true;
    if (from->of_reference) name = arena_printf(arena, CHECKPOINT_REFERENCE_PREFIX "%s", name);
    if ((from->adapters_begin && engine_is_adapter(name)) ||
        (from->heads_begin && engine_is_head(name))) {
        engine_set_leaf(engine, rank, node, NULL, arena);
        return true;
    }
    if (from->averages_begin && engine_is_average(node)) name += strlen(EMA_PREFIX);
    if (!find_leaf(from, node, name, &info, &path, diag)) return false;
    bool state = node->op == OP_STATE && !node_is_copy(node);
    DType dtype = DTYPE_F32;
    bool fits = node->op == OP_VARIABLE
                    ? info.dtype == SAFETENSORS_F32
                    : tensor_dtype(&info, &dtype) && (!state || dtype != DTYPE_F16);
    fits = fits && info.n_dims == shard.whole.rank;
    for (int i = 0; fits && i < shard.whole.rank; i++) fits = info.shape[i] == shard.whole.dims[i];
    if (!fits) {
        report_misfit(rank, &shard.whole, from->of_teacher ? "teacher" : "model", state, &info,
                      path, diag);
        return false;
    }
    const DType kept = node->types[0].dtype;
    if (dtype_is_moment(kept) && !are_moments(kept, dtype, &info)) {
        diag_error(diag, (SourceLoc){path, 0}, "tensor '%s' has numbers that are no %s moments",
                   info.name, kept == DTYPE_DYN8U ? "second" : "first");
        return false;
    }
    engine_set_leaf(engine, rank, node, &(WholeTensor){info.data, dtype}, arena);
    file_map_forget(info.data, info.n_bytes);
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
static bool load_variable(Engine *engine, const RankContext *rank, Node *node, const Sources *from,
                          int64_t steps, Arena *arena, Diag *diag) {
    SafetensorsInfo info;
    float value;
    const char *name = node_string(node, ATTR_name);
    bool fixed =
        strcmp(name, LOSS_SCALE_NAME) == 0 && plan_loss_scaling(engine->plan).interval == 0;
    if (!fixed && safetensors_find(from->whole, UPDATES_NAME, &info)) {
        if (!load_leaf(engine, rank, node, from, arena, diag)) return false;
        safetensors_find(from->whole, name, &info);
        memcpy(&value, info.data, sizeof(value));
        return check_variable(name, (double)value, steps, from->whole_path, diag);
    }
    bool counts = strcmp(name, UPDATES_NAME) == 0;
    value = counts ? (float)steps : (float)node_float(node, ATTR_value, 0);
    engine_set_variable(engine, rank, node, value);
    return true;
}

/* NULL for place: weights alone. */
static bool load_leaves(Engine *engine, const Sources *from, const TrainingPlace *place,
                        Diag *diag) {
    Arena *arena = arena_create();
    bool fine = true;
    for (int r = 0; fine && r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; fine && engine_is_local(rank) && n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (node->op == OP_VARIABLE && !place && !from->of_teacher) {
                engine_set_variable(engine, rank, node, (float)node_float(node, ATTR_value, 0));
            }
            if (!engine_is_leaf(rank, node, place != NULL)) continue;
            fine = node->op == OP_VARIABLE
                       ? load_variable(engine, rank, node, from, place->step, arena, diag)
                       : load_leaf(engine, rank, node, from, arena, diag);
        }
    }
    arena_destroy(arena);
    return fine;
}

static bool is_listed(const LogicalList *list, const char *name) {
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) return true;
    }
    return false;
}

/* Adapters, and anything that was trained, of which the model knows nothing: without them it would
 * be another model. */
static bool check_strangers(const Sources *from, const LogicalList *list, Diag *diag) {
    for (int f = 0; f < 2; f++) {
        const Safetensors *file = f ? from->trained : from->whole;
        for (int i = 0; file && i < safetensors_count(file); i++) {
            const char *name = safetensors_at(file, i)->name;
            if ((!f && !engine_is_adapter(name)) || is_listed(list, name)) continue;
            if (strchr(name, '/')) continue; /* a checkpoint's state of one */
            diag_error(diag, (SourceLoc){f ? from->trained_path : from->whole_path, 0},
                       "has a tensor '%s', which the plan's model has not: make the plan with its "
                       "settings, --set-from",
                       name);
            return false;
        }
    }
    return true;
}

/* --- one file for all processes --- */

enum { DIGEST_BYTES = 256 }; /* at each end of a tensor: of two runs' weights hardly one is alike */

static uint64_t mix_in(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) hash = mix_bits(hash ^ at[i]);
    return hash;
}

/* Of what the file says and of some of its numbers; never 0. */
static uint64_t digest(const Safetensors *file) {
    uint64_t hash = mix_bits(1);
    for (int i = 0; i < safetensors_count_metadata(file); i++) {
        const char *key, *value;
        safetensors_metadata_at(file, i, &key, &value);
        hash = mix_in(hash, key, strlen(key) + 1);
        hash = mix_in(hash, value, strlen(value) + 1);
    }
    for (int i = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        size_t part = info->n_bytes < DIGEST_BYTES ? info->n_bytes : DIGEST_BYTES;
        hash = mix_in(hash, info->name, strlen(info->name) + 1);
        hash = mix_in(hash, &info->n_bytes, sizeof(info->n_bytes));
        hash = mix_in(hash, info->data, part);
        hash = mix_in(hash, (const char *)info->data + info->n_bytes - part, part);
    }
    return hash ? hash : 1;
}

/* Every process reads the file for itself: all have to find the same one. `file` is NULL where it
 * could not be read, which is reported. All processes call it; false in all or none. */
static bool agree_on_file(const Engine *engine, const Safetensors *file, const char *path,
                          Diag *diag) {
    if (!engine->control) return file != NULL;
    const uint64_t own = file ? digest(file) : 0;
    uint64_t *all = calloc((size_t)engine->n_ranks, sizeof(*all));
    if (!all) BUG("out of memory");
    const char *reason = "the job has failed";
    /* One may have waited for its disk. */
    bool met = control_await(engine->control) &&
               control_all_gather(engine->control, &own, sizeof(own), sizeof(own), all, NULL);
    bool alike = met && own;
    if (!met && control_failed(engine->control, &reason)) diag_error(diag, NO_LOC, "%s", reason);
    for (int r = 0; alike && r < engine->n_ranks; r++) {
        if (all[r] == all[0] && all[r]) continue;
        alike = false;
        diag_error(diag, (SourceLoc){path, 0},
                   all[r] ? "%s has another file of this name than rank 0: every process "
                            "reads it, so give all the same"
                          : "%s cannot read it: every process does, so it has to be on every "
                            "machine, or in a folder that all share",
                   control_show_rank(engine->control, r).text);
    }
    free(all);
    return alike;
}

/* How many adapters, or parameters of a head, begin as they are made: all, where the files have
 * none. */
static int count_beginning(const Sources *from, const LogicalList *list,
                           bool is_one(const char *name)) {
    int n = 0;
    SafetensorsInfo info;
    for (int i = 0; i < list->count; i++) {
        const char *name = list->items[i].name;
        if (!is_one(name)) continue;
        if (from->trained || safetensors_find(from->whole, name, &info)) return 0;
        n++;
    }
    return n;
}

/* Of "key=value" lines; "" where the key is not there. */
static const char *find_setting(Arena *arena, const char *settings, const char *key) {
    size_t length = strlen(key);
    for (const char *at = settings; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        if (strncmp(at, key, length) != 0 || at[length] != '=') continue;
        return arena_strndup(arena, at + length + 1, strcspn(at + length + 1, "\n"));
    }
    return "";
}

/* Adapters count by settings: others would make another model of them. */
static bool check_adapters(const Engine *engine, const Sources *from, Arena *arena, Diag *diag) {
    static const char *const KEYS[] = {"lora", "lora_alpha", "lora_rslora"};
    const Safetensors *file = from->trained ? from->trained : from->whole;
    const char *path = from->trained ? from->trained_path : from->whole_path;
    const char *theirs = safetensors_find_metadata(file, ENGINE_SETTINGS_KEY);
    bool any = false;
    for (int i = 0; i < safetensors_count(file); i++) {
        any |= engine_is_adapter(safetensors_at(file, i)->name);
    }
    for (size_t i = 0; theirs && any && i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        const char *is = find_setting(arena, engine->plan->settings, KEYS[i]);
        const char *was = find_setting(arena, theirs, KEYS[i]);
        if (!is[0] || !was[0] || strcmp(is, was) == 0) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "its adapters were trained with %s=%s, the plan has %s=%s: make the plan with "
                   "their settings, --set-from",
                   KEYS[i], was, KEYS[i], is);
        return false;
    }
    return true;
}

/* How weights are trained and on what, or what no file loads with where it differs. */
static bool may_differ(const char *key, size_t length) {
    static const char *const OWN[] = {"masked", "seq", "documents", "padding", "positions"};
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (length == strlen(OWN[i]) && strncmp(key, OWN[i], length) == 0) return true;
    }
    return plan_setting_is_of_training(key, length) ||
           (length >= 4 && strncmp(key, "lora", 4) == 0);
}

const char *engine_unlike_settings(const Engine *engine, const char *path, Arena *arena) {
    enum { MOST = 4, MOST_SHOWN = 200 }; /* settings; bytes of what the file says of one */
    Diag *unseen = diag_create();
    Safetensors *file = engine->is_first ? safetensors_open(path, unseen) : NULL;
    const char *theirs = file ? safetensors_find_metadata(file, ENGINE_SETTINGS_KEY) : NULL;
    const char *was = "", *is = "";
    int n = 0;
    for (const char *at = theirs ? engine->plan->settings : NULL; at && *at;) {
        const char *end = at + strcspn(at, "\n"), *equals = memchr(at, '=', (size_t)(end - at));
        size_t length = equals ? (size_t)(equals - at) : 0;
        const char *key = arena_strndup(arena, at, length);
        const char *own = find_setting(arena, engine->plan->settings, key);
        const char *other = find_setting(arena, theirs, key);
        at = *end ? end + 1 : end;
        if (!own[0] || !other[0] || strcmp(own, other) == 0 || may_differ(key, length)) continue;
        bool begins = strcmp(key, "classes") == 0 && strcmp(other, "none") == 0;
        if (begins) continue; /* of a base that wrote text */
        if (n++ >= MOST) continue;
        char shown[MOST_SHOWN];
        snprintf(shown, sizeof(shown), "%s", other);
        utf8_keep_printable(shown);
        was = arena_printf(arena, "%s%s%s=%s", was, n > 1 ? ", " : "", key, shown);
        is = arena_printf(arena, "%s%s%s=%s", is, n > 1 ? ", " : "", key, own);
    }
    if (file) safetensors_close(file);
    diag_destroy(unseen);
    if (n == 0) return NULL;
    return arena_printf(arena, "%s%s; the plan's model has %s", was, n > MOST ? " and more" : "",
                        is);
}

bool engine_load_files(Engine *engine, const WeightFiles *files, WeightsBegun *out_begun,
                       Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = engine_list_leaves(engine, false);
    Safetensors *whole = safetensors_open(files->whole, diag), *trained = NULL;
    bool fine = agree_on_file(engine, whole, files->whole, diag);
    if (fine && files->trained) {
        trained = safetensors_open(files->trained, diag);
        fine = agree_on_file(engine, trained, files->trained, diag);
    }
    Sources from = {.whole = whole,
                    .trained = trained,
                    .whole_path = files->whole,
                    .trained_path = files->trained};
    fine =
        fine && check_strangers(&from, &list, diag) && check_adapters(engine, &from, arena, diag);
    WeightsBegun begun = {0};
    if (fine) begun.adapters = count_beginning(&from, &list, engine_is_adapter);
    if (fine && out_begun) begun.head = count_beginning(&from, &list, engine_is_head);
    from.adapters_begin = begun.adapters > 0;
    from.heads_begin = begun.head > 0;
    fine = fine && load_leaves(engine, &from, NULL, diag);
    if (out_begun) *out_begun = begun;
    if (whole) safetensors_close(whole);
    if (trained) safetensors_close(trained);
    arena_destroy(arena);
    return fine;
}

/* Adapters of which the plan's teacher knows nothing: without them it would be another model. */
static bool check_teacher(const Safetensors *file, const LogicalList *list, const char *path,
                          Arena *arena, Diag *diag) {
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        const char *here = arena_printf(arena, TEACHER_PARAMS "%s", name);
        if (!engine_is_adapter(name) || is_listed(list, here)) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "has a tensor '%s', which the plan's teacher has not: plan with its settings, "
                   "--teacher-set-from",
                   name);
        return false;
    }
    return true;
}

bool engine_load_teacher(Engine *engine, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = engine_list_leaves(engine, false);
    Safetensors *file = safetensors_open(path, diag);
    const Sources from = {.whole = file, .whole_path = path, .of_teacher = true};
    bool fine = agree_on_file(engine, file, path, diag) &&
                check_teacher(file, &list, path, arena, diag) &&
                load_leaves(engine, &from, NULL, diag);
    if (fine) snprintf(engine->teacher, sizeof(engine->teacher), "%016" PRIx64, digest(file));
    if (file) safetensors_close(file);
    arena_destroy(arena);
    return fine;
}

bool engine_load_kept_reference(Engine *engine, const char *path, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    const Sources from = {.whole = file, .whole_path = path, .of_reference = true};
    bool fine = agree_on_file(engine, file, path, diag) && load_leaves(engine, &from, NULL, diag);
    if (file) safetensors_close(file);
    return fine;
}

bool engine_load(Engine *engine, const char *path, Diag *diag) {
    return engine_load_files(engine, &(WeightFiles){path, NULL}, NULL, diag);
}

/* A count, 0 to INT64_MAX, in decimal digits. */
static bool read_count(const Safetensors *file, const char *key, uint64_t most, uint64_t *out) {
    const char *text = safetensors_find_metadata(file, key);
    if (!text || !*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0 && *out <= most;
}

/* Steps up to the checkpoint's own; what is none ends them. */
static void read_recent(const char *text, TrainingPlace *out) {
    while (text && out->n_recent < CHECKPOINT_MOST_RECENT) {
        char *end;
        long long step = strtoll(text, &end, 10);
        if (end == text || step <= 0 || step > out->step) return;
        out->recent[out->n_recent++] = step;
        text = end;
    }
}

/* "N ROW" and the norms before; what is damaged is none. */
static void read_spikes(const Safetensors *file, TrainingPlace *out) {
    const char *text = safetensors_find_metadata(file, CHECKPOINT_SPIKES_KEY);
    long long count = 0, row = 0;
    if (text && sscanf(text, "%lld %lld", &count, &row) == 2 && count >= 0 && count < out->step &&
        row >= 0 && row <= count) {
        out->n_spikes = count;
        out->n_spikes_in_row = row < INT32_MAX ? (int)row : INT32_MAX;
    }
    text = safetensors_find_metadata(file, CHECKPOINT_NORMS_KEY);
    while (text && out->n_norms < CHECKPOINT_MOST_NORMS) {
        char *end;
        const uint32_t bits = (uint32_t)strtoul(text, &end, 16);
        float norm;
        memcpy(&norm, &bits, sizeof(norm));
        if (end == text || !(norm >= 0) || !isfinite(norm)) return;
        out->norms[out->n_norms++] = norm;
        text = end;
    }
}

/* What is damaged is none. */
static void read_noise(const Safetensors *file, TrainingPlace *out) {
    const char *text = safetensors_find_metadata(file, CHECKPOINT_NOISE_KEY);
    NoiseScale noise = {0};
    char *end;
    if (!text) return;
    noise.n = strtoll(text, &end, 10);
    bool fine = end != text && noise.n > 0 && noise.n <= out->step;
    for (int i = 0; fine && i < N_NOISE_SUMS; i++) {
        text = end;
        noise.sums[i] = strtod(text, &end);
        fine = end != text && isfinite(noise.sums[i]);
    }
    fine = fine && noise.sums[NOISE_WEIGHT] >= 1 && noise.sums[NOISE_SQUARED_WEIGHT] >= 1;
    if (fine) out->noise = noise;
}

/* Parts' turns, if they meet one by one: none was later, and what is to be merged is so yet. */
static bool read_parts(const Safetensors *file, const char *path, TrainingPlace *out, Diag *diag) {
    const char *text = safetensors_find_metadata(file, CHECKPOINT_PARTS_KEY);
    int64_t numbers[1 + 2 * OUTER_MOST_PARTS];
    int n = 0;
    for (char *end; text && *text && n < 1 + 2 * OUTER_MOST_PARTS; text = end + (*end == ' ')) {
        errno = 0;
        numbers[n] = strtoll(text, &end, 10);
        if (end == text || errno || numbers[n] < 0) break;
        n++;
    }
    if (!text) return true;
    bool fine = !*text && n > 1 && numbers[0] <= OUTER_MOST_PARTS && n == 1 + 2 * numbers[0];
    for (int i = 1; fine && i < n; i += 2) {
        out->turns[i / 2] = (PartTurn){.met = numbers[i], .merge = numbers[i + 1]};
        fine = numbers[i] <= out->step && (numbers[i + 1] == 0 || numbers[i + 1] >= out->step);
    }
    out->n_parts = fine ? (int)numbers[0] : 0;
    if (fine) return true;
    diag_error(diag, (SourceLoc){path, 0}, "its place among islands is damaged: '%s'",
               CHECKPOINT_PARTS_KEY);
    return false;
}

/* "1 2 500 8000 5": numbers that can be, or the file is damaged. */
static bool read_island(const Safetensors *file, const char *path, TrainingPlace *out, Diag *diag) {
    const char *text = safetensors_find_metadata(file, CHECKPOINT_ISLAND_KEY);
    int64_t numbers[5];
    int n = 0;
    for (char *end; text && *text && n < 5; n++, text = end + (*end == ' ')) {
        errno = 0;
        numbers[n] = strtoll(text, &end, 10);
        if (end == text || errno || numbers[n] < 0) break;
    }
    if (!text) return true;
    if (n < 5 || *text || numbers[0] >= numbers[1] || numbers[1] > INT_MAX ||
        numbers[2] > out->step || numbers[3] > out->samples ||
        numbers[4] / OUTER_MOST_PARTS > numbers[2]) {
        diag_error(diag, (SourceLoc){path, 0}, "its place among islands is damaged: '%s'",
                   CHECKPOINT_ISLAND_KEY);
        return false;
    }
    out->island = (int)numbers[0];
    out->n_islands = (int)numbers[1];
    out->met_step = numbers[2];
    out->met_samples = numbers[3];
    out->n_meetings = numbers[4];
    return read_parts(file, path, out, diag);
}

bool engine_is_place_key(const char *key) {
    static const char *const KEYS[] = {
        CHECKPOINT_STEP_KEY,   CHECKPOINT_SAMPLES_KEY,   CHECKPOINT_SEED_KEY,
        CHECKPOINT_DATA_KEY,   CHECKPOINT_REFERENCE_KEY, CHECKPOINT_TEACHER_KEY,
        CHECKPOINT_RECENT_KEY, CHECKPOINT_SPIKES_KEY,    CHECKPOINT_NORMS_KEY,
        CHECKPOINT_ISLAND_KEY, CHECKPOINT_PARTS_KEY,     CHECKPOINT_NOISE_KEY,
    };
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        if (strcmp(key, KEYS[i]) == 0) return true;
    }
    return false;
}

int64_t engine_checkpoint_step(const char *path) {
    Diag *quiet = diag_create();
    uint64_t step;
    Safetensors *file = safetensors_open(path, quiet);
    bool found = file && read_count(file, CHECKPOINT_STEP_KEY, MOST_SAMPLES, &step);
    if (file) safetensors_close(file);
    diag_destroy(quiet);
    return found ? (int64_t)step : -1;
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
    if (!read_count(file, CHECKPOINT_STEP_KEY, MOST_SAMPLES, &step) ||
        !read_count(file, CHECKPOINT_SAMPLES_KEY, MOST_SAMPLES, &samples) || samples < step ||
        !read_count(file, CHECKPOINT_SEED_KEY, UINT64_MAX, &seed)) {
        diag_error(diag, loc,
                   "its place in the run is damaged: '%s', '%s' and '%s' are no counts of a run",
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
    const char *teacher = safetensors_find_metadata(file, CHECKPOINT_TEACHER_KEY);
    if (teacher && engine->teacher[0] && strcmp(teacher, engine->teacher) != 0) {
        diag_error(diag, loc,
                   "was trained with another teacher's weights: give the --teacher-load that it "
                   "was made with");
        return false;
    }
    const char *data = safetensors_find_metadata(file, CHECKPOINT_DATA_KEY);
    *out = (TrainingPlace){.step = (int64_t)step, .samples = (int64_t)samples};
    snprintf(out->data, sizeof(out->data), "%s", data ? data : "");
    utf8_keep_printable(out->data);
    const char *reference = safetensors_find_metadata(file, CHECKPOINT_REFERENCE_KEY);
    snprintf(out->reference, sizeof(out->reference), "%s", reference ? reference : "");
    read_recent(safetensors_find_metadata(file, CHECKPOINT_RECENT_KEY), out);
    read_spikes(file, out);
    read_noise(file, out);
    return read_island(file, path, out, diag);
}

static bool has_averages(const Safetensors *file) {
    for (int i = 0; i < safetensors_count(file); i++) {
        if (strncmp(safetensors_at(file, i)->name, EMA_PREFIX, strlen(EMA_PREFIX)) == 0)
            return true;
    }
    return false;
}

/* A run may begin to average on its way, or give it up: how many averages the plan has that begin,
 * with the weights of the file. */
static int count_averages_begun(const Engine *engine, const Safetensors *file) {
    LogicalList list = engine_list_leaves(engine, true);
    int n = 0;
    for (int i = 0; i < list.count; i++) n += engine_is_average(list.items[i].node);
    return has_averages(file) ? 0 : n;
}

/* A model of fewer weights (bias=false) may go on from one of more, but not in silence. */
static void count_left(const Safetensors *file, const LogicalList *list, TrainingPlace *out) {
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        if (strchr(name, '/') || is_listed(list, name)) continue;
        if (out->n_left++ == 0) snprintf(out->left, sizeof(out->left), "%s", name);
        utf8_keep_printable(out->left);
    }
}

bool engine_load_state(Engine *engine, const char *path, TrainingPlace *out, Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = engine_list_leaves(engine, false);
    Safetensors *file = safetensors_open(path, diag);
    Sources from = {.whole = file, .whole_path = path};
    bool fine = agree_on_file(engine, file, path, diag) &&
                load_place(engine, file, path, out, diag) && check_strangers(&from, &list, diag) &&
                check_adapters(engine, &from, arena, diag);
    if (fine) {
        out->averages_begun = count_averages_begun(engine, file);
        out->averages_left = plan_ema_decay(engine->plan) == 0 && has_averages(file);
        from.averages_begin = out->averages_begun > 0;
    }
    fine = fine && load_leaves(engine, &from, out, diag);
    if (fine) count_left(file, &list, out);
    if (fine) engine->n_spikes = out->n_spikes;
    if (file) safetensors_close(file);
    arena_destroy(arena);
    return fine;
}
