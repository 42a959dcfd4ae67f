#include "frontend/commands/train_checkpoint.h"

#include "frontend/commands/engine_args.h"
#include "frontend/commands/train_prompts.h"
#include "frontend/units.h"
#include "ir/base/clock.h"
#include "ir/base/file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

bool train_checkpoint_options(const CliArgs *args, TrainCheckpoint *out, Diag *diag) {
    bool go_on = cli_given(args, OPT_CONTINUE);
    const char *from = cli_text(args, OPT_RESUME, NULL);
    *out = (TrainCheckpoint){.to = cli_text(args, OPT_CHECKPOINT, NULL),
                             .if_there = go_on,
                             .async = cli_given(args, OPT_CHECKPOINT_ASYNC),
                             .every = cli_int(args, OPT_CHECKPOINT_EVERY, 0)};
    out->written_step = -1;
    out->from = go_on ? out->to : from;
    const char *lacking = go_on ? "continue" : out->every ? "checkpoint-every" : NULL;
    if (lacking && !out->to) {
        diag_error(diag, NO_LOC, "--%s: of which file? give --checkpoint FILE", lacking);
    } else if (out->async && !out->every) {
        diag_error(diag, NO_LOC,
                   "--checkpoint-async: the run's last checkpoint is waited for; give "
                   "--checkpoint-every N");
    } else if (go_on && from) {
        diag_error(diag, NO_LOC, "--continue and --resume: one of them");
    } else {
        return train_keep_options(args, &out->keep, diag);
    }
    return false;
}

/* SIGKILL leaves what was being written. */
static void note_unfinished(const char *path) {
    char name[256];
    int n = file_count_unfinished(path, name, sizeof(name));
    if (n == 0) return;
    fprintf(stderr, "note: %s%s beside %s %s of a run that was killed while it wrote: delete %s\n",
            name, n > 1 ? " and others" : "", path, n > 1 ? "are" : "is", n > 1 ? "them" : "it");
}

static struct stat look_at(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st : (struct stat){0};
}

/* A run that is started twice, or has not quite ended: the two would write over each other. */
static void note_replaced(TrainCheckpoint *checkpoint) {
    const struct stat now = look_at(checkpoint->to), *then = &checkpoint->seen;
    bool same = now.st_ino == then->st_ino && now.st_dev == then->st_dev &&
                now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
    if (now.st_ino == 0 || same || checkpoint->told_replaced) return;
    checkpoint->told_replaced = true;
    fprintf(
        stderr,
        "note: %s was replaced by another program since this run read or wrote it: does another "
        "run write it, too?\n",
        checkpoint->to);
}

bool train_checkpoint_check(const CliArgs *args, const Plan *plan, Diag *diag) {
    if (!cli_given(args, OPT_RESUME) || !cli_given(args, OPT_LOAD)) return true;
    if (train_prompts_compare(plan)) return true;
    diag_error(diag, NO_LOC, "--load and --resume: a checkpoint has weights of its own");
    return false;
}

bool train_checkpoint_load(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet, bool *out_resumed,
                           Diag *diag) {
    struct stat st;
    TrainingPlace place;
    *out_resumed = false;
    if (checkpoint->to && !quiet) note_unfinished(checkpoint->to);
    if (checkpoint->to) checkpoint->seen = look_at(checkpoint->to);
    if (!checkpoint->from) return true;
    bool is_there = stat(checkpoint->from, &st) == 0;
    /* On one alone: not all see the folder, which loading says. */
    if (checkpoint->if_there && !engine_args_any(options, is_there)) return true;
    if (!engine_load_state(engine, checkpoint->from, &place, diag)) return false;
    if (!quiet) engine_args_note_settings(engine, checkpoint->from);
    if (!quiet && strcmp(place.data, checkpoint->place.data) != 0) {
        fprintf(stderr, "note: %s was trained on other data (%s): goes on with this (%s)\n",
                checkpoint->from, place.data, checkpoint->place.data);
    }
    if (!quiet && place.averages_begun) {
        fprintf(stderr, "note: %s has no averages of weights: they begin with its weights\n",
                checkpoint->from);
    }
    if (!quiet && place.averages_left) {
        fprintf(stderr,
                "note: %s has averages of weights, which the plan does not keep: they stay "
                "behind\n",
                checkpoint->from);
    }
    if (!quiet && place.n_left) {
        fprintf(stderr,
                "note: %s has %d weight%s that the plan's model has not, and that stay behind: "
                "'%s'%s\n",
                checkpoint->from, place.n_left, place.n_left == 1 ? "" : "s", place.left,
                place.n_left == 1 ? "" : " and so on");
    }
    memcpy(place.data, checkpoint->place.data, sizeof(place.data));
    checkpoint->place = place;
    *out_resumed = true;
    return true;
}

bool train_checkpoint_prepare(TrainCheckpoint *checkpoint, Engine *engine, Diag *diag) {
    if (!checkpoint->async) return true;
    checkpoint->snapshot = engine_snapshot_create(engine, diag);
    return checkpoint->snapshot;
}

/* What became of one; `diag` says why it failed, on rank 0 also the others' reasons. */
static void tell(TrainCheckpoint *checkpoint, const EngineOptions *options, Progress *progress,
                 bool failed, int64_t step, const Diag *diag) {
    struct stat st;
    char size[32];
    checkpoint->last_failed = failed;
    checkpoint->seen = look_at(checkpoint->to);
    progress_finish(progress);
    if (failed && options->rank == 0) {
        diag_print(diag, stderr);
        fprintf(stderr, "no checkpoint at step %" PRId64 "%s\n", step,
                checkpoint->ends ? "" : "; training goes on");
    }
    if (!failed) {
        checkpoint->written_step = step;
        train_keep_put(&checkpoint->keep, &checkpoint->place, step, options->rank == 0,
                       checkpoint->ends);
    }
    if (failed || checkpoint->quiet) return;
    units_format_bytes(size, sizeof(size), stat(checkpoint->to, &st) == 0 ? st.st_size : 0);
    fprintf(stderr, "checkpoint %s: step %" PRId64 ", %s, %.2f s", checkpoint->to, step, size,
            clock_now() - checkpoint->begun);
    if (checkpoint->async) fprintf(stderr, "; training waited %.2f s", checkpoint->waited);
    fprintf(stderr, "\n");
}

/* wait: until what is being written is there, if anything is. */
static void look(TrainCheckpoint *checkpoint, const EngineOptions *options, Progress *progress,
                 bool wait) {
    Diag *diag = diag_create();
    double before = clock_now();
    SnapshotState state = engine_snapshot_poll(checkpoint->snapshot, wait, diag);
    checkpoint->waited += clock_now() - before;
    if (state == SNAPSHOT_WRITTEN || state == SNAPSHOT_FAILED) {
        tell(checkpoint, options, progress, state == SNAPSHOT_FAILED, checkpoint->writing_step,
             diag);
    }
    diag_destroy(diag);
}

void train_checkpoint_save(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, Progress *progress, bool is_last) {
    Diag *diag = diag_create();
    int64_t step = checkpoint->place.step;
    SnapshotState state = SNAPSHOT_WRITING;
    checkpoint->ends = is_last;
    if (checkpoint->async) look(checkpoint, options, progress, true); /* one at a time */
    if (options->rank == 0) note_replaced(checkpoint);
    train_keep_begin(&checkpoint->keep, &checkpoint->place);
    checkpoint->begun = clock_now();
    if (checkpoint->async && !is_last) {
        state =
            engine_snapshot_begin(checkpoint->snapshot, checkpoint->to, &checkpoint->place, diag);
        checkpoint->writing_step = step;
    } else {
        bool fine = engine_save_state(engine, checkpoint->to, &checkpoint->place, diag);
        state = fine ? SNAPSHOT_WRITTEN : SNAPSHOT_FAILED;
    }
    checkpoint->waited = clock_now() - checkpoint->begun;
    if (state != SNAPSHOT_WRITING) {
        tell(checkpoint, options, progress, state == SNAPSHOT_FAILED, step, diag);
    }
    diag_destroy(diag);
}

void train_checkpoint_poll(TrainCheckpoint *checkpoint, const EngineOptions *options,
                           Progress *progress) {
    if (checkpoint->snapshot) look(checkpoint, options, progress, false);
}

void train_checkpoint_end(TrainCheckpoint *checkpoint, const EngineOptions *options,
                          Progress *progress) {
    if (!checkpoint->snapshot) return;
    checkpoint->ends = true;
    look(checkpoint, options, progress, true);
    engine_snapshot_destroy(checkpoint->snapshot);
    checkpoint->snapshot = NULL;
}
