#include "frontend/commands/train_checkpoint.h"

#include "frontend/commands/engine_args.h"
#include "frontend/units.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool train_checkpoint_options(const CliArgs *args, TrainCheckpoint *out, Diag *diag) {
    bool go_on = cli_given(args, OPT_CONTINUE);
    const char *from = cli_text(args, OPT_RESUME, NULL);
    *out = (TrainCheckpoint){.to = cli_text(args, OPT_CHECKPOINT, NULL),
                             .if_there = go_on,
                             .every = cli_int(args, OPT_CHECKPOINT_EVERY, 0)};
    out->from = go_on ? out->to : from;
    const char *lacking = go_on ? "continue" : out->every ? "checkpoint-every" : NULL;
    if (lacking && !out->to) {
        diag_error(diag, NO_LOC, "--%s: of which file? give --checkpoint FILE", lacking);
    } else if (go_on && from) {
        diag_error(diag, NO_LOC, "--continue and --resume: one of them");
    } else if (out->from && cli_given(args, OPT_LOAD)) {
        diag_error(diag, NO_LOC, "--load and --%s: a checkpoint has weights of its own",
                   go_on ? "continue" : "resume");
    } else {
        return true;
    }
    return false;
}

void train_checkpoint_name_data(TrainCheckpoint *checkpoint, const Dataset *train, double entropy) {
    snprintf(checkpoint->place.data, sizeof(checkpoint->place.data),
             "%" PRId64 " tokens, unigram entropy %.9g", dataset_count_tokens(train), entropy);
}

bool train_checkpoint_load(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet, bool *out_resumed,
                           Diag *diag) {
    struct stat st;
    TrainingPlace place;
    *out_resumed = false;
    if (!checkpoint->from) return true;
    bool is_there = stat(checkpoint->from, &st) == 0;
    if (checkpoint->if_there && !engine_args_agree(options, is_there)) return true;
    if (!engine_load_state(engine, checkpoint->from, &place, diag)) return false;
    if (!quiet && strcmp(place.data, checkpoint->place.data) != 0) {
        fprintf(stderr, "note: %s was trained on other data (%s): goes on with this (%s)\n",
                checkpoint->from, place.data, checkpoint->place.data);
    }
    checkpoint->place.step = place.step;
    checkpoint->place.samples = place.samples;
    *out_resumed = true;
    return true;
}

void train_checkpoint_save(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet) {
    struct timespec begin, end;
    struct stat st;
    Diag *diag = diag_create();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    checkpoint->last_failed = !engine_save_state(engine, checkpoint->to, &checkpoint->place, diag);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (checkpoint->last_failed && options->rank == 0) { /* it knows the others' reasons */
        diag_print(diag, stderr);
        fprintf(stderr, "no checkpoint at step %" PRId64 "; training goes on\n",
                checkpoint->place.step);
    } else if (!checkpoint->last_failed && !quiet) {
        char size[32];
        double seconds =
            (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        units_format_bytes(size, sizeof(size), stat(checkpoint->to, &st) == 0 ? st.st_size : 0);
        fprintf(stderr, "checkpoint %s: step %" PRId64 ", %s, %.2f s\n", checkpoint->to,
                checkpoint->place.step, size, seconds);
    }
    diag_destroy(diag);
}
