#include "frontend/commands/rollout_reference.h"

#include "frontend/commands/engine_args.h"
#include "ir/base/clock.h"
#include "runtime/engine_reference.h"

#include <inttypes.h>
#include <stdio.h>

/* How a checkpoint names one: by the step whose weights it has. */
#define RENEWED "renewed at "

typedef struct RolloutReference {
    int64_t every, step;   /* step 0: that of the beginning */
    EngineReference *kept; /* of another step */
    TrainingPlace *place;
} RolloutReference;

/* --- opening --- */

bool rollout_reference_check(const CliArgs *args, const Plan *plan, Diag *diag) {
    const int64_t every = cli_int(args, OPT_RENEW_REFERENCE, 0);
    const int64_t steps = cli_int(args, OPT_ROLLOUT_STEPS, 1);
    if (every == 0) return true;
    if (!train_prompts_compare(plan)) {
        diag_error(diag, NO_LOC,
                   "train: --renew-reference: is for answers that the model writes and that are "
                   "compared with a reference: --set preference=dpo --set online=true, or a policy "
                   "with --set kl=X");
        return false;
    }
    if (every % steps == 0) return true;
    diag_error(diag, NO_LOC,
               "train: --renew-reference: %" PRId64 " steps are no multiple of the %" PRId64
               " of --rollout-steps, of which each rollout has one reference",
               every, steps);
    return false;
}

/* The step that a checkpoint's reference is of; 0: the beginning's. */
static int64_t read_step(const TrainingPlace *place) {
    long long step;
    if (sscanf(place->reference, RENEWED "%lld", &step) != 1 || step <= 0 || step > place->step) {
        return 0;
    }
    return step;
}

bool rollout_reference_open(Rollout *r, const RolloutPlace *where, Diag *diag) {
    const CliArgs *args = r->writer.args;
    const int64_t every = cli_int(args, OPT_RENEW_REFERENCE, 0);
    const int64_t step = where->from ? read_step(where->place) : 0;
    if (every == 0 && step > 0) {
        diag_error(diag, (SourceLoc){where->from, 0},
                   "its reference has the weights of step %" PRId64
                   ": give the --renew-reference N that it was trained with",
                   step);
        return false;
    }
    if (every == 0) return true;
    RolloutReference *own = r->reference = ARENA_NEW(r->arena, RolloutReference);
    const bool saved = cli_given(args, OPT_CHECKPOINT);
    *own = (RolloutReference){.every = every,
                              .step = step,
                              .kept = engine_reference_create(r->writer.engine, saved),
                              .place = where->place};
    return step == 0 || engine_reference_load(own->kept, where->from, diag);
}

void rollout_reference_close(Rollout *r) {
    if (r->reference) engine_reference_destroy(r->reference->kept);
    r->reference = NULL;
}

/* --- what weights say --- */

bool rollout_score(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    Engine *engine = r->writer.engine;
    const int64_t at_once = engine_forward_batch(engine), seq = r->writer.plan->seq;
    const double start = clock_now();
    bool good = true;
    for (int64_t row = 0; good && row < r->n_rows; row += at_once) {
        const int32_t *tokens = r->tokens + row * seq, *labels = r->labels + row * seq;
        good = by == BY_ROW ? engine_row_scores(engine, tokens, labels, out + row, diag)
                            : engine_token_scores(engine, tokens, labels, out + row * seq, diag);
    }
    r->score_seconds += clock_now() - start;
    return good;
}

static bool score_by_file(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    const bool others = cli_given(r->writer.args, OPT_REFERENCE_LOAD); /* frozen ones, too */
    EngineWeights *own = engine_keep_weights(r->writer.engine, others, diag);
    bool good = own && engine_args_load_reference(r->writer.args, r->writer.engine, diag) &&
                rollout_score(r, by, out, diag);
    return engine_restore_weights(own, diag) && good;
}

static bool score_by_kept(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    EngineReference *kept = r->reference->kept;
    const bool good = engine_reference_swap(kept, diag) && rollout_score(r, by, out, diag);
    return engine_reference_swap(kept, diag) && good;
}

/* A run that was stopped within a rollout goes on with another, so that these may begin between two
 * times that it is due. */
static bool is_due(const RolloutReference *reference) {
    const int64_t done = reference->place->step, every = reference->every;
    return done / every > reference->step / every;
}

bool rollout_score_reference(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    RolloutReference *own = r->reference;
    if (own && is_due(own)) {
        if (!engine_reference_renew(own->kept, diag)) return false;
        own->step = own->place->step;
        snprintf(own->place->reference, sizeof(own->place->reference), RENEWED "%" PRId64,
                 own->step);
        return rollout_score(r, by, out, diag); /* they are the same weights */
    }
    return own && own->step > 0 ? score_by_kept(r, by, out, diag) : score_by_file(r, by, out, diag);
}

/* --- words --- */

int64_t rollout_reference_step(const Rollout *r) {
    return r->reference ? r->reference->step : -1;
}

int64_t rollout_reference_bytes(const Rollout *r) {
    return r->reference ? engine_reference_bytes(r->reference->kept) : 0;
}
