#include "frontend/commands/train_alike.h"

#include "runtime/data/mix.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OF_TRAINING_DATA = N_OPTIONS, OF_VALIDATION_DATA, OF_TEXTS, N_RECORDED };

/* What a rank says of itself: a hash each, 0: not given. */
typedef struct Record {
    uint64_t of[N_RECORDED];
} Record;

static uint64_t mix_in(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) hash = mix_bits(hash ^ at[i]);
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text) {
    return mix_in(hash, text, strlen(text) + 1);
}

/* A host may have its own paths, cores, and manners. */
static bool may_differ(CliOption option) {
    static const CliOption OWN[] = {OPT_LOG,   OPT_TENSORBOARD, OPT_ANSWERS_LOG, OPT_METRICS,
                                    OPT_QUIET, OPT_THREADS,     OPT_TIMEOUT};
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (option == OWN[i]) return true;
    }
    return false;
}

/* Of files only whether there are any, and how many. */
static uint64_t hash_option(const CliOptionInfo *info, const CliValue *value) {
    uint64_t hash = mix_bits(1);
    if (!value->given) return 0;
    switch (info->kind) {
    case KIND_INT: return mix_in(hash, &value->integer, sizeof(value->integer));
    case KIND_REAL: return mix_in(hash, &value->real, sizeof(value->real));
    case KIND_TEXT: return mix_text(hash, value->text);
    case KIND_READS: return mix_in(hash, &value->n_list, sizeof(value->n_list));
    case KIND_LIST:
        for (int i = 0; i < value->n_list; i++) hash = mix_text(hash, value->list[i]);
        return hash;
    default: return hash;
    }
}

static Record describe(const CliArgs *args, const TrainData *data) {
    enum { MOST_TOKENS = 1 << 20 };
    Record record = {{0}};
    char name[96];
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!may_differ((CliOption)i)) {
            record.of[i] = hash_option(&CLI_OPTIONS[i], &args->values[i]);
        }
    }
    if (!data) return record;
    train_data_name(data, name, sizeof(name));
    record.of[OF_TRAINING_DATA] = mix_text(mix_bits(2), name);
    for (int i = 0; i < data->n_val; i++) {
        const Dataset *val = data->val[i].data;
        snprintf(name, sizeof(name), "%" PRId64 " windows, %.9g", dataset_count_windows(val),
                 dataset_unigram_entropy(val, MOST_TOKENS));
        record.of[OF_VALIDATION_DATA] = mix_text(record.of[OF_VALIDATION_DATA] ^ 3, name);
    }
    return record;
}

/* -1: in nothing. */
static int find_difference(const Record *a, const Record *b) {
    for (int i = 0; i < N_RECORDED; i++) {
        if (a->of[i] != b->of[i]) return i;
    }
    return -1;
}

static void report(const char *command, const char *rank, int at, bool has_it, Diag *diag) {
    if (at >= N_OPTIONS) {
        const char *what = at == OF_TEXTS                  ? "texts"
                           : strcmp(command, "train") != 0 ? "data"
                           : at == OF_TRAINING_DATA        ? "training data"
                                                           : "validation data";
        diag_error(diag, NO_LOC, "%s: %s found other %s than rank 0: give all the same", command,
                   rank, what);
        return;
    }
    diag_error(diag, NO_LOC, "%s: %s was started %s --%s than rank 0: give all the same", command,
               rank, has_it ? "with another" : "otherwise as to", CLI_OPTIONS[at].name);
}

/* False: reported. */
static bool compare(const CliArgs *args, const Record *own, const EngineOptions *options,
                    Diag *diag) {
    const int world = control_world(options->control);
    Record *all = calloc((size_t)world, sizeof(Record));
    if (!all) BUG("out of memory");
    /* Data may have taken one longer than others, to read or to encode. */
    bool met = control_await(options->control) &&
               control_all_gather(options->control, own, sizeof(*own), sizeof(*own), all, NULL);
    bool alike = true;
    for (int r = 1; met && alike && r < world; r++) {
        int at = find_difference(&all[0], &all[r]);
        if (at < 0) continue;
        report(args->command->name, control_show_rank(options->control, r).text, at,
               all[r].of[at] && all[0].of[at], diag);
        alike = false;
    }
    free(all);
    const char *reason = "";
    if (!met && control_failed(options->control, &reason)) diag_error(diag, NO_LOC, "%s", reason);
    return met && alike;
}

bool train_alike_check(const CliArgs *args, const TrainData *data, const EngineOptions *options,
                       Diag *diag) {
    if (!options->control) return true;
    const Record own = describe(args, data);
    return compare(args, &own, options, diag);
}

bool train_alike_texts(const CliArgs *args, uint64_t digest, const EngineOptions *options,
                       Diag *diag) {
    if (!options->control) return true;
    Record own = {{0}};
    own.of[OF_TEXTS] = digest;
    return compare(args, &own, options, diag);
}
