/* What is learned by rewards of what was written (nn.policy): what each answer is worth beside the
 * others to its prompt, and what the weights and a reference say of it. */
#include "frontend/commands/rollout_judge.h"
#include "frontend/commands/rollout_reference.h"

typedef struct RolloutRewards {
    float *numbers[N_TOKEN_NUMBERS]; /* [n_most, seq]; NULL: not asked for */
} RolloutRewards;

/* --- opening --- */

static bool is_dull(RolloutAnswer *const *group, int n) {
    return rollout_measure_group(group, n).spread == 0;
}

static bool open_rewards(Rollout *r, CliArgs *args, Diag *diag) {
    const Plan *plan = r->writer.plan;
    RolloutRewards *own = r->rewards = ARENA_NEW(r->arena, RolloutRewards);
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (!plan_reads_numbers(plan, i)) continue;
        own->numbers[i] = ARENA_ARRAY(r->arena, float, r->n_most * plan->seq);
    }
    return rollout_judged_open(r, args, is_dull, diag);
}

/* --- what answers are worth --- */

static void fill(float *numbers, int64_t seq, int64_t row, double value) {
    for (int64_t i = 0; numbers && i < seq; i++) numbers[row * seq + i] = (float)value;
}

/* What each answer is worth beside the others to its prompt (Shao et al. 2024, section 4.1.2). */
static void put_advantages(Rollout *r) {
    const double least_spread = 1e-4;
    const int n = r->writer.prompts->n_answers;
    for (int64_t first = 0; first < r->n_rows; first += n) {
        const GroupRewards group = rollout_measure_group(r->answers + first, n);
        for (int64_t row = first; row < first + n; row++) {
            const double more = (double)r->answers[row]->reward - group.mean;
            fill(r->rewards->numbers[TOKEN_CENTERED_REWARDS], r->writer.plan->seq, row, more);
            fill(r->rewards->numbers[TOKEN_ADVANTAGES], r->writer.plan->seq, row,
                 more / (group.spread + least_spread));
        }
    }
}

static bool make_rewards(Rollout *r, Diag *diag) {
    RolloutRewards *own = r->rewards;
    const int64_t seq = r->writer.plan->seq;
    if (!rollout_judged_make(r, diag)) return false;
    for (int64_t i = 0; i < r->n_rows; i++) {
        r->answers[i] = r->judged->answers[i];
        r->asked[i] = r->judged->asked[i];
        rollout_put_row(r, &r->writer.prompts->items[r->asked[i]], r->answers[i],
                        r->tokens + i * seq, r->labels + i * seq);
    }
    put_advantages(r);
    if (own->numbers[TOKEN_REFERENCE_SCORES] &&
        !rollout_score_reference(r, BY_TOKEN, own->numbers[TOKEN_REFERENCE_SCORES], diag)) {
        return false;
    }
    /* With a single step the ratios are 1: nothing has changed since. */
    return r->steps == 1 || !own->numbers[TOKEN_OLD_SCORES] ||
           rollout_score(r, BY_TOKEN, own->numbers[TOKEN_OLD_SCORES], diag);
}

static void give_numbers(Rollout *r, int64_t row) {
    const int64_t at = row * r->writer.plan->seq;
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        const float *numbers = r->rewards->numbers[i];
        engine_set_numbers(r->writer.engine, i, numbers ? numbers + at : NULL);
    }
}

/* --- words --- */

static void put_reward(const Rollout *r, int64_t row, StrBuf *out) {
    strbuf_printf(out, "\"reward\": %.7g, ", (double)r->answers[row]->reward);
}

const RolloutKind ROLLOUT_REWARDS = {.open = open_rewards,
                                     .close = rollout_judged_close,
                                     .make = make_rewards,
                                     .give = give_numbers,
                                     .validate = rollout_judged_validate,
                                     .values_before = rollout_judged_values,
                                     .put_line = put_reward,
                                     .bytes = rollout_judged_bytes,
                                     .print = rollout_judged_print,
                                     .print_end = rollout_judged_print_end};
