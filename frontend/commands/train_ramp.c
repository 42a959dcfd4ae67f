#include "frontend/commands/train_ramp.h"

#include "frontend/commands/plan_args.h"
#include "frontend/commands/train_pairs.h"
#include "frontend/commands/train_prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* "64:1000" at *at, which moves behind it. False: it is none. */
static bool read_stage(const char **at, int64_t *out_batch, int64_t *out_last_step) {
    int64_t *const numbers[2] = {out_batch, out_last_step};
    const char ends[2] = {':', '\0'};
    for (int i = 0; i < 2; i++) {
        char *end;
        if (**at < '0' || **at > '9') return false;
        errno = 0;
        *numbers[i] = strtoll(*at, &end, 10);
        bool last = ends[i] == '\0' && *end == ',';
        if (errno || *numbers[i] == 0 || (*end != ends[i] && !last)) return false;
        *at = *end ? end + 1 : end;
        if (last && !**at) return false; /* nothing behind the comma */
    }
    return true;
}

static bool fail(Diag *diag, const char *text) {
    diag_error(diag, NO_LOC, "train: --batch-ramp: %s", text);
    return false;
}

/* What cannot have plans of several batches. */
static bool check_run(const CliArgs *args, const Plan *full, Diag *diag) {
    if (!plan_is_model(args->operand)) {
        return fail(diag, "a plan has one batch: give MODEL.lua with its options");
    }
    if (cli_given(args, OPT_CLUSTER)) {
        return fail(diag, "the search is for one batch: give the layout by --mesh");
    }
    if (train_pairs_of(full, args->arena).reads || train_prompts_asked(args, full)) {
        return fail(diag, "is not for answers, neither in pairs nor to prompts");
    }
    return true;
}

/* The plan that the options ask for, but for the batch. */
static Plan *plan_with(CliArgs *args, int64_t batch, Diag *diag) {
    CliArgs *own = ARENA_NEW(args->arena, CliArgs);
    *own = *args;
    own->values[OPT_GLOBAL_BATCH] = (CliValue){.given = true, .integer = batch};
    return plan_from_operand(own, diag);
}

bool train_ramp_from_args(CliArgs *args, const Plan *full, TrainRamp *out, Diag *diag) {
    const char *text = cli_text(args, OPT_BATCH_RAMP, NULL), *at = text;
    int64_t batch = 0, last_step = 0;
    int capacity = 0;
    *out = (TrainRamp){0};
    if (!text) return true;
    if (!check_run(args, full, diag)) return false;
    do {
        const int64_t batch_before = batch, step_before = last_step;
        if (!read_stage(&at, &batch, &last_step)) {
            diag_error(
                diag, NO_LOC,
                "train: --batch-ramp: '%s' is not BATCH:LAST_STEP,... as in 64:1000,128:3000",
                text);
            return false;
        }
        if (batch <= batch_before || batch >= full->global_batch || last_step <= step_before) {
            diag_error(diag, NO_LOC,
                       "train: --batch-ramp: '%s': batches and steps must rise, and batches stay "
                       "below the global batch of %d",
                       text, full->global_batch);
            return false;
        }
        RampStage stage = {last_step, plan_with(args, batch, diag)};
        if (!stage.plan) {
            diag_note(diag, NO_LOC, "for the batch of %" PRId64 " of --batch-ramp", batch);
            return false;
        }
        ARENA_PUSH(args->arena, out->stages, out->count, capacity, stage);
    } while (*at);
    return true;
}

Plan *train_ramp_at(const TrainRamp *ramp, Plan *full, int64_t step) {
    for (int i = 0; i < ramp->count; i++) {
        if (step <= ramp->stages[i].last_step) return ramp->stages[i].plan;
    }
    return full;
}

static int64_t arena_bytes(const Plan *plan) {
    int64_t most = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const int64_t bytes = plan->stages[s].arena_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

Plan *train_ramp_largest(const TrainRamp *ramp, Plan *full) {
    Plan *most = full;
    for (int i = 0; i < ramp->count; i++) {
        if (arena_bytes(ramp->stages[i].plan) > arena_bytes(most)) most = ramp->stages[i].plan;
    }
    return most;
}

void train_ramp_print(const TrainRamp *ramp, const Plan *full) {
    if (ramp->count == 0) return;
    printf("ramp    batches of ");
    for (int i = 0; i < ramp->count; i++) {
        printf("%d up to step %" PRId64 ", ", ramp->stages[i].plan->global_batch,
               ramp->stages[i].last_step);
    }
    printf("then %d\n", full->global_batch);
}
