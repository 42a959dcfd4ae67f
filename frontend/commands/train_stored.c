#include "frontend/commands/train_stored.h"

#include "frontend/units.h"
#include "ir/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool check_shape(const TrainStored *s, const Plan *plan, Diag *diag) {
    const SourceLoc loc = {s->path, 0};
    const int64_t n_words = plan_stored_words(plan);
    if (s->shape.vocab != plan->vocab) {
        diag_error(diag, loc,
                   "its teacher chose among %" PRId64 " words, the plan has %" PRId64
                   ": both need the same tokens",
                   s->shape.vocab, plan->vocab);
    } else if (s->shape.seq != plan->seq) {
        diag_error(diag, loc,
                   "has windows of %" PRId64 " tokens, the plan of %" PRId64
                   ": plan with --set seq=%" PRId64 ", or store them of this length",
                   s->shape.seq, plan->seq, s->shape.seq);
    } else if (s->shape.n_words != n_words) {
        diag_error(diag, loc,
                   "has %" PRId64 " words of each position, the plan reads %" PRId64
                   ": plan with this file",
                   s->shape.n_words, n_words);
    } else {
        return true;
    }
    return false;
}

bool train_stored_open(const CliArgs *args, const Plan *plan, TrainStored *out, Diag *diag) {
    const int64_t n = (int64_t)plan->global_batch * plan->seq * plan_stored_words(plan);
    *out = (TrainStored){.path = cli_text(args, OPT_TEACHER_LOGITS, NULL)};
    if (n == 0 && !out->path) return true;
    if (n == 0 || !out->path) {
        diag_error(diag, NO_LOC,
                   n == 0 ? "--teacher-logits: the plan reads none: make it with --teacher-logits"
                          : "the plan learns from what a teacher said: --teacher-logits FILE, as "
                            "evaluate --store-logits writes it");
        return false;
    }
    out->file = stored_logits_open(out->path, diag);
    if (!out->file) return false;
    out->shape = stored_logits_shape(out->file);
    if (!check_shape(out, plan, diag)) return false;
    out->words = ARENA_ARRAY(args->arena, int32_t, n);
    out->logprobs = ARENA_ARRAY(args->arena, float, n);
    return true;
}

void train_stored_close(TrainStored *stored) {
    stored_logits_close(stored->file);
    stored->file = NULL;
}

static bool fail_unknown(const TrainStored *s, const char *path, Diag *diag) {
    diag_error(diag, (SourceLoc){path, 0},
               "has a window of tokens of which %s says nothing: store what the teacher says of "
               "these data, cut and packed as they are here",
               s->path);
    return false;
}

bool train_stored_has(const TrainStored *s, const Dataset *data, const char *path, bool silent,
                      Arena *arena, Diag *diag) {
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, s->shape.seq);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, s->shape.seq);
    for (int64_t i = 0; i < dataset_count_windows(data); i++) {
        if (!dataset_window(data, i, tokens, labels, diag)) return false;
        if (stored_logits_find(s->file, tokens) >= 0) continue;
        return silent ? false : fail_unknown(s, path, diag);
    }
    return true;
}

bool train_stored_name(TrainStored *s, const Dataset *data, const char *path, Arena *arena,
                       Diag *diag) {
    const int64_t n = s->shape.seq * s->shape.n_words;
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, s->shape.seq);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, s->shape.seq);
    if (!dataset_window(data, 0, tokens, labels, diag) ||
        !train_stored_take(s, path, 0, tokens, false, diag)) {
        return false;
    }
    s->name = hash_bytes(s->words, (size_t)n * sizeof(*s->words), 0);
    s->name = hash_bytes(s->logprobs, (size_t)n * sizeof(*s->logprobs), s->name);
    return true;
}

bool train_stored_take(TrainStored *s, const char *path, int64_t at, const int32_t *tokens,
                       bool validates, Diag *diag) {
    const int64_t row = s->shape.seq * s->shape.n_words;
    if (!s->file || (validates && !s->of_val)) return true; /* what is there is of no meaning */
    const int64_t window = stored_logits_find(s->file, tokens);
    if (window < 0) return fail_unknown(s, path, diag);
    return stored_logits_read(s->file, window, s->words + at * row, s->logprobs + at * row, diag);
}

void train_stored_give(const TrainStored *s, Engine *engine) {
    if (s->file) engine_set_stored(engine, s->words, s->logprobs);
}

int64_t train_stored_bytes(const TrainStored *s, const Plan *plan) {
    if (!s->file) return 0;
    const int64_t each = (int64_t)(sizeof(*s->words) + sizeof(*s->logprobs));
    return plan->global_batch * plan->seq * s->shape.n_words * each;
}

void train_stored_print(const TrainStored *s) {
    char size[32];
    if (!s->file) return;
    units_format_bytes(size, sizeof(size), stored_bytes(&s->shape));
    printf("teacher %s: its %" PRId64 " likeliest words of %" PRId64 ", of %" PRId64
           " windows, %s; %s\n",
           s->path, s->shape.n_words, s->shape.vocab, s->shape.n_windows, size,
           s->of_val ? "of those of validation, too" : "of none of validation");
}
