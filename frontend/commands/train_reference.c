#include "frontend/commands/train_reference.h"

#include "frontend/progress_line.h"
#include "ir/base/file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SCORES     "row_scores"
#define OF_WEIGHTS "weights"
#define OF_DATA    "data"

#define REFERENCE_HERE "what the reference says is to be written there: --reference FILE"

enum { FINGERPRINT_BYTES = 24 };

typedef struct Reference {
    TrainData *data;
    Engine *engine;
    const char *path; /* NULL: in memory alone */
    int64_t n_pairs;
    float *scores; /* [n_pairs, 2] */
    char weights[FINGERPRINT_BYTES], pairs[FINGERPRINT_BYTES];
    TrainingPlace *place;
    Diag *diag;
} Reference;

/* --- fingerprints --- */

static bool hash_file(const char *path, uint64_t *hash, Diag *diag) {
    FileMap map;
    if (!file_map(path, &map, diag)) return false;
    *hash = mix_bits(*hash ^ map.length_bytes);
    for (size_t at = 0; at < map.length_bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, map.data + at, map.length_bytes - at < 8 ? map.length_bytes - at : 8);
        *hash = mix_bits(*hash ^ word);
    }
    file_unmap(&map);
    return true;
}

/* What changes nothing of what a model without dropout says. */
static bool is_of_training(const char *setting, size_t length, bool has_adapters) {
    static const char *const OURS[] = {"preference", "beta", "label_smoothing", "gamma", "dropout",
                                       "policy",     "clip", "clip_high",       "kl"};
    if (!has_adapters && strncmp(setting, "lora", 4) == 0) return true; /* they begin with 0 */
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) {
        size_t own = strlen(OURS[i]);
        if (length > own && strncmp(setting, OURS[i], own) == 0 && setting[own] == '=') return true;
    }
    return false;
}

static uint64_t hash_model(const Plan *plan, bool has_adapters) {
    uint64_t hash = 0;
    for (const char *c = plan->model; *c; c++) hash = mix_bits(hash ^ (unsigned char)*c);
    for (const char *at = plan->settings ? plan->settings : ""; *at;) {
        size_t length = strcspn(at, "\n");
        for (size_t i = 0; i < length && !is_of_training(at, length, has_adapters); i++) {
            hash = mix_bits(hash ^ (unsigned char)at[i]);
        }
        at += length + (at[length] != '\0');
    }
    return hash;
}

/* Of the model and the files that its weights come from, or what they are drawn by. */
static bool name_weights(Reference *r) {
    static const CliOption FILES[] = {OPT_LOAD, OPT_LOAD_TRAINED};
    const CliArgs *args = r->data->args;
    uint64_t hash = hash_model(r->data->plan, cli_given(args, OPT_LOAD_TRAINED));
    for (int i = 0; i < 2; i++) {
        if (!cli_given(args, FILES[i])) continue;
        if (!hash_file(cli_text(args, FILES[i], ""), &hash, r->diag)) return false;
    }
    if (!cli_given(args, OPT_LOAD)) hash = mix_bits(hash ^ r->data->plan->seed);
    snprintf(r->weights, sizeof(r->weights), "%016" PRIx64, hash);
    return true;
}

/* The parts in order, each with its windows: --val-fraction changes which is which. */
static void name_pairs(Reference *r, TrainPart **parts, int n_parts) {
    uint64_t hash = r->data->pairs.hash;
    for (int i = 0; i < n_parts; i++) {
        hash = mix_bits(hash ^ (uint64_t)dataset_count_windows(parts[i]->data));
    }
    snprintf(r->pairs, sizeof(r->pairs), "%016" PRIx64, hash);
}

/* --- the file --- */

static bool fail(const Reference *r, const char *why) {
    diag_error(r->diag, (SourceLoc){r->path, 0}, "%s", why);
    return false;
}

static const char NO_REFERENCE[] = "is no file of a reference's log-probabilities";

/* NULL: it fits. */
static const char *why_unfit(const Reference *r, const Safetensors *file, bool knows_weights,
                             SafetensorsInfo *out) {
    const char *weights = safetensors_find_metadata(file, OF_WEIGHTS);
    const char *pairs = safetensors_find_metadata(file, OF_DATA);
    bool found = safetensors_find(file, SCORES, out) && out->dtype == SAFETENSORS_F32 &&
                 out->n_dims == 2 && out->shape[1] == 2;
    if (!found || !weights || !pairs) return NO_REFERENCE;
    if (strcmp(pairs, r->pairs) != 0 || out->shape[0] != r->n_pairs) {
        return "has the reference's log-probabilities of other pairs, or of other parts of them: "
               "give the data, seq and --val-fraction that it was made with, or another file";
    }
    const char *before = r->place->reference; /* what the checkpoint was trained with */
    bool others = knows_weights && strcmp(weights, r->weights) != 0;
    if (others || (*before && strcmp(weights, before) != 0)) {
        return "has the log-probabilities of another reference: give the --load that it was made "
               "with, or another file";
    }
    return NULL;
}

/* Of another run's, which may be written over where its name is ours, *out_stale is set. */
static bool read_file(Reference *r, bool knows_weights, bool *out_stale) {
    SafetensorsInfo info;
    Safetensors *file = safetensors_open(r->path, r->diag);
    if (!file) return false;
    const char *why = why_unfit(r, file, knows_weights, &info);
    if (!why) {
        memcpy(r->scores, info.data, info.n_bytes);
        snprintf(r->weights, sizeof(r->weights), "%s", safetensors_find_metadata(file, OF_WEIGHTS));
    }
    safetensors_close(file);
    *out_stale = why && why != NO_REFERENCE;
    return !why || fail(r, why);
}

static bool write_file(const Reference *r) {
    SafetensorsWriter *writer = safetensors_writer_create();
    int64_t shape[2] = {r->n_pairs, 2};
    safetensors_writer_add_tensor(writer, SCORES, SAFETENSORS_F32, shape, 2);
    safetensors_writer_add_metadata(writer, OF_WEIGHTS, r->weights);
    safetensors_writer_add_metadata(writer, OF_DATA, r->pairs);
    if (safetensors_writer_open(writer, r->path, r->diag) &&
        safetensors_writer_put(writer, SCORES, r->scores,
                               (size_t)r->n_pairs * 2 * sizeof(*r->scores), r->diag)) {
        return safetensors_writer_commit(writer, r->diag);
    }
    safetensors_writer_abandon(writer);
    return false;
}

/* --- computing --- */

static bool check_scores(const Reference *r) {
    for (int64_t i = 0; i < 2 * r->n_pairs; i++) {
        if (r->scores[i] > -1e30f && r->scores[i] <= 0) continue;
        diag_error(r->diag, NO_LOC,
                   "the reference gives the %s answer of pair %" PRId64
                   " the log-probability %g; wrong weights?",
                   i % 2 ? "rejected" : "chosen", i / 2 + 1, (double)r->scores[i]);
        return false;
    }
    return true;
}

static bool compute(Reference *r, TrainPart **parts, int n_parts, bool quiet) {
    ProgressLine line = progress_line_start("pairs");
    int64_t done = 0;
    bool good = true;
    for (int i = 0; good && i < n_parts; i++) {
        PairScoring how = {.engine = r->engine,
                           .plan = r->data->plan,
                           .line = quiet ? NULL : &line,
                           .done = done,
                           .all = r->n_pairs};
        good = train_pairs_score(&how, parts[i]->data, parts[i]->scores, r->diag);
        done += dataset_count_windows(parts[i]->data);
    }
    double seconds = progress_line_end(&line);
    if (!good || !check_scores(r)) return false;
    if (r->path && !write_file(r)) return false;
    if (quiet) return true;
    printf("before  %" PRId64 " pairs by the reference, the weights as they are: %.1f s",
           r->n_pairs, seconds);
    printf(r->path ? "; wrote %s\n" : "\n", r->path);
    return true;
}

/* --- all of it --- */

bool train_reference_check(const TrainData *data, const EngineOptions *options, Diag *diag) {
    const char *path = cli_text(data->args, OPT_REFERENCE, NULL);
    if (path && !data->pairs.asks_reference) {
        diag_error(
            diag, NO_LOC,
            "train: --reference: is of plans with preference=dpo or ipo, whose loss compares "
            "with it");
        return false;
    }
    if (!data->pairs.asks_reference || !options->control) return true;
    if (path && access(path, R_OK) == 0) return true;
    diag_error(diag, NO_LOC,
               "train: what the reference says of the pairs is computed by one process: first run "
               "a plan of one with --steps 1 --reference FILE and the same data, --load and seq, "
               "then give that file to all");
    return false;
}

/* Whose scores they are, and where. */
static int list_parts(Reference *r, TrainPart *parts[2 * BLEND_MOST_SOURCES]) {
    int n = 0;
    for (int i = 0; i < r->data->n_train; i++) parts[n++] = &r->data->train[i];
    for (int i = 0; i < r->data->n_val; i++) parts[n++] = &r->data->val[i];
    for (int i = 0; i < n; i++) r->n_pairs += dataset_count_windows(parts[i]->data);
    r->scores = ARENA_ARRAY(r->data->args->arena, float, 2 * r->n_pairs);
    float *at = r->scores;
    for (int i = 0; i < n; i++) {
        parts[i]->scores = at;
        at += 2 * dataset_count_windows(parts[i]->data);
    }
    return n;
}

static const char *find_path(const CliArgs *args) {
    const char *named = cli_text(args, OPT_REFERENCE, NULL);
    const char *checkpoint = cli_text(args, OPT_CHECKPOINT, NULL);
    if (!checkpoint) checkpoint = cli_text(args, OPT_RESUME, NULL);
    if (named || !checkpoint) return named;
    return arena_printf(args->arena, "%s.reference", checkpoint);
}

bool train_reference_make(TrainData *data, Engine *engine, const EngineOptions *options,
                          bool resumed, bool quiet, TrainingPlace *place, Diag *diag) {
    TrainPart *parts[2 * BLEND_MOST_SOURCES];
    const CliArgs *args = data->args;
    Reference r = {
        .data = data, .engine = engine, .path = find_path(args), .place = place, .diag = diag};
    if (!data->pairs.asks_reference) return true;
    int n_parts = list_parts(&r, parts);
    name_pairs(&r, parts, n_parts);
    if (r.path && !name_weights(&r)) return false;
    engine_set_reference(engine, data->reference);
    bool is_there = r.path && access(r.path, F_OK) == 0, stale = false;
    if (resumed && !is_there) {
        diag_error(
            diag, NO_LOC,
            "train: the run goes on, and what the reference said before it is not there%s%s: "
            "--reference FILE says where it is",
            r.path ? ": " : "", r.path ? r.path : "");
        return false;
    }
    if (is_there) {
        bool needed = resumed || cli_given(args, OPT_REFERENCE) || options->control;
        Diag *why = needed ? diag : diag_create();
        r.diag = why;
        bool good = read_file(&r, !resumed || cli_given(args, OPT_LOAD), &stale);
        r.diag = diag;
        if (!needed && !good && !stale) fail(&r, "is in the way: " REFERENCE_HERE);
        if (!needed) diag_destroy(why);
        if (good && !quiet) printf("before  %s: what the reference said\n", r.path);
        if (!good && (needed || !stale)) return false;
        is_there = good;
    }
    if (is_there ? !check_scores(&r) : !compute(&r, parts, n_parts, quiet)) return false;
    memcpy(place->reference, r.weights, sizeof(place->reference));
    return true;
}
