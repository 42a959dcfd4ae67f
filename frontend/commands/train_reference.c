#include "frontend/commands/train_reference.h"

#include "frontend/commands/engine_args.h"
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
    const EngineOptions *options;
    TrainingPlace *place;
    bool resumed;
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

/* Of a line key=value. */
static bool is_of_training(const char *setting, bool has_adapters) {
    if (!has_adapters && strncmp(setting, "lora", 4) == 0) return true; /* they begin with 0 */
    return plan_setting_is_of_training(setting, strcspn(setting, "=\n"));
}

static uint64_t hash_model(const Plan *plan, bool has_adapters) {
    uint64_t hash = 0;
    for (const char *c = plan->model; *c; c++) hash = mix_bits(hash ^ (unsigned char)*c);
    for (const char *at = plan->settings ? plan->settings : ""; *at;) {
        size_t length = strcspn(at, "\n");
        const bool counts = !is_of_training(at, has_adapters);
        for (size_t i = 0; i < length && counts; i++) {
            hash = mix_bits(hash ^ (unsigned char)at[i]);
        }
        at += length + (at[length] != '\0');
    }
    return hash;
}

/* Weights by which it is computed whatever the run's are. */
static const char *file_of_weights(const Reference *r) {
    return cli_text(r->data->args, OPT_REFERENCE_LOAD, NULL);
}

/* Of the model and the files that the reference's weights come from, or what they are drawn by. The
 * same file's are the same ones, whichever option names it. */
static bool name_weights(Reference *r) {
    const CliArgs *args = r->data->args;
    const char *own = file_of_weights(r), *load = own ? own : cli_text(args, OPT_LOAD, NULL);
    const char *trained = own ? NULL : cli_text(args, OPT_LOAD_TRAINED, NULL);
    uint64_t hash = hash_model(r->data->plan, trained != NULL);
    if (load && !hash_file(load, &hash, r->diag)) return false;
    if (trained && !hash_file(trained, &hash, r->diag)) return false;
    if (!load) hash = mix_bits(hash ^ r->data->plan->seed);
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
        const bool unpaired = r->data->pairs.unpaired;
        diag_error(r->diag, NO_LOC,
                   "the reference gives the %s %s %" PRId64
                   " the log-probability %g; wrong weights?",
                   unpaired ? (i % 2 ? "answer beside" : "answer")
                   : i % 2  ? "rejected"
                            : "chosen",
                   unpaired ? "number" : "answer of pair", i / 2 + 1, (double)r->scores[i]);
        return false;
    }
    return true;
}

static bool score_all(Reference *r, TrainPart **parts, int n_parts, ProgressLine *line) {
    PairScoring how = train_pairs_scoring(&r->data->pairs, r->engine, r->data->plan);
    how.line = line;
    how.all = r->n_pairs;
    for (int i = 0; i < n_parts; i++) {
        if (!train_pairs_score(&how, parts[i]->data, parts[i]->scores, r->diag)) return false;
        how.done += dataset_count_windows(parts[i]->data);
    }
    return true;
}

/* By other weights, which take the place of the run's for that while. */
static bool score_by_file(Reference *r, TrainPart **parts, int n_parts, ProgressLine *line) {
    EngineWeights *own = engine_keep_weights(r->engine, true, r->diag);
    bool good = own && engine_args_load_reference(r->data->args, r->engine, r->diag) &&
                score_all(r, parts, n_parts, line);
    return engine_restore_weights(own, r->diag) && good;
}

/* All processes compute it together; the first one writes it. */
static bool compute(Reference *r, TrainPart **parts, int n_parts, bool quiet) {
    const char *file = file_of_weights(r), *what = r->data->pairs.unpaired ? "answers" : "pairs";
    ProgressLine line = progress_line_start(what);
    bool good = (file ? score_by_file : score_all)(r, parts, n_parts, quiet ? NULL : &line);
    double seconds = progress_line_end(&line);
    if (!good || !check_scores(r)) return false;
    if (r->path && r->options->rank == 0 && !write_file(r)) return false;
    if (quiet) return true;
    printf("before  %" PRId64 " %s by the reference, %s: %.1f s", r->n_pairs, what,
           file ? file : "the weights as they are", seconds);
    printf(r->path ? "; wrote %s\n" : "\n", r->path);
    return true;
}

/* --- all of it --- */

bool train_reference_check(const TrainData *data, Diag *diag) {
    const char *path = cli_text(data->args, OPT_REFERENCE, NULL);
    const bool distance = train_prompts_compare(data->plan);
    const bool loads = cli_given(data->args, OPT_REFERENCE_LOAD);
    if (data->pairs.asks_reference || !(path || (loads && !distance))) return true;
    diag_error(diag, NO_LOC,
               "train: --%s: is of plans whose loss compares with a reference, as preference=dpo's "
               "and kto's%s",
               path ? "reference" : "reference-load", path ? "" : ", or a policy's with kl");
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

/* What a run that goes on was trained with has to be what is asked for now. */
static bool check_weights(const Reference *r) {
    const char *before = r->place->reference;
    if (!r->resumed || !*before || strcmp(before, r->weights) == 0) return true;
    diag_error(r->diag, (SourceLoc){file_of_weights(r), 0},
               "is another reference than the one that this run was trained with");
    return false;
}

/* Reads what is there. *out_read: it is what is needed; else it may be computed. False: reported.
 */
static bool read_what_is_there(Reference *r, bool quiet, bool *out_read) {
    const CliArgs *args = r->data->args;
    const bool needed = r->resumed || cli_given(args, OPT_REFERENCE);
    const bool knows_weights = !r->resumed || cli_given(args, OPT_LOAD) || file_of_weights(r);
    Diag *outer = r->diag;
    bool stale = false;
    if (!needed) r->diag = diag_create();
    bool good = read_file(r, knows_weights, &stale);
    if (!needed) {
        diag_destroy(r->diag);
        r->diag = outer;
        if (!good && !stale) fail(r, "is in the way: " REFERENCE_HERE);
    }
    if (good && !quiet) printf("before  %s: what the reference said\n", r->path);
    *out_read = !engine_args_any(r->options, !good);
    return good || (!needed && stale);
}

bool train_reference_make(TrainData *data, Engine *engine, const EngineOptions *options,
                          bool resumed, bool quiet, TrainingPlace *place, Diag *diag) {
    TrainPart *parts[2 * BLEND_MOST_SOURCES];
    Reference r = {.data = data,
                   .engine = engine,
                   .path = find_path(data->args),
                   .options = options,
                   .place = place,
                   .resumed = resumed,
                   .diag = diag};
    if (!data->pairs.asks_reference) return true;
    int n_parts = list_parts(&r, parts);
    name_pairs(&r, parts, n_parts);
    const bool is_known = r.path || file_of_weights(&r);
    if (is_known && !name_weights(&r)) return false;
    if (file_of_weights(&r) && !check_weights(&r)) return false;
    engine_set_reference(engine, data->reference);
    bool lacks = !r.path || access(r.path, F_OK) != 0, is_read = false;
    if (engine_args_any(options, lacks)) {
        if (resumed && !file_of_weights(&r)) {
            diag_error(
                diag, NO_LOC,
                "train: the run goes on, and what the reference said before it is not there%s%s: "
                "--reference FILE says where it is",
                r.path ? ": " : "", r.path ? r.path : "");
            return false;
        }
    } else if (!read_what_is_there(&r, quiet, &is_read)) {
        return false;
    }
    if (is_read ? !check_scores(&r) : !compute(&r, parts, n_parts, quiet)) return false;
    memcpy(place->reference, r.weights, sizeof(place->reference));
    return true;
}
