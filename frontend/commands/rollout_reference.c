#include "frontend/commands/rollout_reference.h"

#include "frontend/commands/engine_args.h"
#include "ir/base/clock.h"
#include "runtime/engine_reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct RolloutReference {
    int64_t every, step;   /* step 0: that of the beginning */
    EngineReference *kept; /* of another step, or once is_kept the beginning's */
    bool is_kept;          /* there is one */
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

/* The step that a checkpoint's reference is of; 0: the beginning's. False: reported. */
static bool read_step(const RolloutPlace *where, int64_t *out_step, Diag *diag) {
    const TrainingPlace *place = where->place;
    long long step = 0;
    int length = 0;
    *out_step = 0;
    if (!where->from || strncmp(place->reference, CHECKPOINT_REFERENCE_RENEWED,
                                strlen(CHECKPOINT_REFERENCE_RENEWED)) != 0)
        return true;
    if (sscanf(place->reference, CHECKPOINT_REFERENCE_RENEWED "%lld%n", &step, &length) == 1 &&
        place->reference[length] == '\0' && step > 0 && step <= place->step) {
        *out_step = step;
        return true;
    }
    diag_error(diag, (SourceLoc){where->from, 0},
               "says '%s' of its reference, which is no step up to its own, %" PRId64
               ": is the file damaged?",
               place->reference, place->step);
    return false;
}

bool rollout_reference_open(Rollout *r, const RolloutPlace *where, Diag *diag) {
    const CliArgs *args = r->writer.args;
    const int64_t every = cli_int(args, OPT_RENEW_REFERENCE, 0);
    int64_t step;
    if (!read_step(where, &step, diag)) return false;
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
                              .is_kept = step > 0,
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
    bool good = own && engine_args_load_reference(r->writer.args, r->writer.engine, diag);
    if (good && r->reference && !others) { /* so that the next rollout reads no file */
        good = r->reference->is_kept = engine_reference_renew(r->reference->kept, diag);
    }
    good = good && rollout_score(r, by, out, diag);
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

static bool score_by_any(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    RolloutReference *own = r->reference;
    if (own && is_due(own)) {
        if (!engine_reference_renew(own->kept, diag)) return false;
        own->is_kept = true;
        own->step = own->place->step;
        snprintf(own->place->reference, sizeof(own->place->reference),
                 CHECKPOINT_REFERENCE_RENEWED "%" PRId64, own->step);
        return rollout_score(r, by, out, diag); /* they are the same weights */
    }
    return own && own->is_kept ? score_by_kept(r, by, out, diag) : score_by_file(r, by, out, diag);
}

/* Which is the only word on weights that say nothing finite: the loss would not know why. */
bool rollout_score_reference(Rollout *r, ScoredBy by, float *out, Diag *diag) {
    const int64_t seq = r->writer.plan->seq, n = r->n_rows * (by == BY_ROW ? 1 : seq);
    if (!score_by_any(r, by, out, diag)) return false;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(out[i]) || (by == BY_TOKEN && r->labels[i] < 0)) continue;
        const int64_t row = by == BY_ROW ? i : i / seq;
        diag_error(diag, r->writer.prompts->items[r->asked[row]].loc,
                   "the reference gives an answer the log-probability %g; wrong weights?",
                   isnan(out[i]) ? (double)NAN : (double)out[i]); /* some have a sign */
        return false;
    }
    return true;
}

/* --- words --- */

int64_t rollout_reference_step(const Rollout *r) {
    return r->reference ? r->reference->step : -1;
}

int64_t rollout_reference_bytes(const Rollout *r) {
    const bool others = cli_given(r->writer.args, OPT_REFERENCE_LOAD);
    if (!train_prompts_compare(r->writer.plan)) return 0;
    return engine_weights_bytes(r->writer.engine, others) + /* the run's, meanwhile */
           (r->reference ? engine_reference_bytes(r->reference->kept) : 0);
}
