#include "frontend/commands/train_keep.h"

#include "ir/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool train_keep_options(const CliArgs *args, TrainKeep *out, Diag *diag) {
    *out = (TrainKeep){.to = cli_text(args, OPT_CHECKPOINT, NULL),
                       .inputs = {cli_text(args, OPT_RESUME, NULL), cli_text(args, OPT_LOAD, NULL),
                                  cli_text(args, OPT_SET_FROM, NULL)},
                       .n_last = (int)cli_int(args, OPT_CHECKPOINT_KEEP, 1),
                       .every = cli_int(args, OPT_CHECKPOINT_KEEP_EVERY, 0)};
    int64_t written_every = cli_int(args, OPT_CHECKPOINT_EVERY, 0);
    const char *given = out->every                             ? "checkpoint-keep-every"
                        : cli_given(args, OPT_CHECKPOINT_KEEP) ? "checkpoint-keep"
                                                               : NULL;
    if (given && (!out->to || !written_every)) {
        diag_error(diag, NO_LOC, "--%s: give --checkpoint FILE and --checkpoint-every N", given);
        return false;
    }
    if (out->every && out->every % written_every != 0) {
        diag_error(diag, NO_LOC,
                   "--checkpoint-keep-every %" PRId64 ": is no multiple of --checkpoint-every "
                   "%" PRId64 ", so that there would be none at such a step",
                   out->every, written_every);
        return false;
    }
    return true;
}

/* run.ckpt: run-500.ckpt; run: run-500. */
static const char *name_at(const TrainKeep *keep, int64_t step, Arena *arena) {
    const char *slash = strrchr(keep->to, '/'), *dot = strrchr(keep->to, '.');
    const char *name = slash ? slash + 1 : keep->to;
    size_t n = dot && dot > name ? (size_t)(dot - keep->to) : strlen(keep->to);
    return arena_printf(arena, "%.*s-%" PRId64 "%s", (int)n, keep->to, step, keep->to + n);
}

static bool stays(const TrainKeep *keep, int64_t step) {
    return keep->every && step % keep->every == 0;
}

static bool is_input(const TrainKeep *keep, const char *name) {
    struct stat of_name, st;
    if (stat(name, &of_name) != 0) return false;
    for (int i = 0; i < 3; i++) {
        if (keep->inputs[i] && stat(keep->inputs[i], &st) == 0 && st.st_dev == of_name.st_dev &&
            st.st_ino == of_name.st_ino) {
            return true;
        }
    }
    return false;
}

static void forget(TrainingPlace *place, int i) {
    memmove(&place->recent[i], &place->recent[i + 1],
            (size_t)(--place->n_recent - i) * sizeof(place->recent[0]));
}

/* The oldest; only what is the checkpoint that its name says. */
static void take_away(const TrainKeep *keep, TrainingPlace *place, bool first, Arena *arena) {
    const char *name = name_at(keep, place->recent[0], arena);
    if (first && !is_input(keep, name) && engine_checkpoint_step(name) == place->recent[0]) {
        unlink(name);
    }
    forget(place, 0);
}

void train_keep_begin(const TrainKeep *keep, TrainingPlace *place) {
    for (int i = place->n_recent - 1; i >= 0; i--) {
        if (place->recent[i] == place->step || stays(keep, place->recent[i])) forget(place, i);
    }
    if (keep->n_last == 1 || stays(keep, place->step)) return;
    if (place->n_recent == CHECKPOINT_MOST_RECENT) forget(place, 0);
    place->recent[place->n_recent++] = place->step;
}

void train_keep_put(TrainKeep *keep, TrainingPlace *place, int64_t step, bool first, bool ends) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *name = name_at(keep, step, arena);
    bool for_good = stays(keep, step);
    if (first && (for_good || keep->n_last > 1)) {
        if (is_input(keep, name)) {
            fprintf(stderr, "note: %s is what this run began from: it stays as it is\n", name);
        } else if (!file_link(keep->to, name, diag)) {
            keep->failed = true;
            diag_print(diag, stderr);
            fprintf(stderr, "the checkpoint of step %" PRId64 " is not kept%s\n", step,
                    ends ? "" : "; training goes on");
        }
    }
    int most = keep->n_last > 1 ? keep->n_last : 0; /* names */
    while (place->n_recent > most) take_away(keep, place, first, arena);
    diag_destroy(diag);
    arena_destroy(arena);
}
