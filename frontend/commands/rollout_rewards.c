/* What is learned by rewards of what was written (nn.policy): who judges, what each answer is worth
 * beside the others to its prompt, groups that teach nothing, a reference. */
#include "frontend/commands/judge_args.h"
#include "frontend/commands/rollout_state.h"
#include "frontend/units.h"
#include "ir/base/clock.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_ONCE = 8 }; /* of a model that judges */

typedef struct RolloutRewards {
    Judge *judge;
    int64_t judge_bytes;
    float *first;                    /* [n_most], of what was written before resampling */
    bool *is_replaced;               /* [n_most] */
    RolloutAnswer *spare;            /* [n_most], where groups are resampled; else NULL */
    float *numbers[N_TOKEN_NUMBERS]; /* [n_most, seq]; NULL: not asked for */
    double judge_seconds, score_seconds;
} RolloutRewards;

/* --- opening --- */

static bool open_rewards(Rollout *r, CliArgs *args, Diag *diag) {
    const Plan *plan = r->writer.plan;
    RolloutRewards *own = r->rewards = ARENA_NEW(r->arena, RolloutRewards);
    own->first = ARENA_ARRAY(r->arena, float, r->n_most);
    own->is_replaced = ARENA_ARRAY(r->arena, bool, r->n_most);
    if (cli_given(args, OPT_RESAMPLE)) {
        own->spare = rollout_answers_create(r->n_most, plan->seq, r->arena);
    }
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (!plan_reads_numbers(plan, i)) continue;
        own->numbers[i] = ARENA_ARRAY(r->arena, float, r->n_most * plan->seq);
    }
    const JudgedModel of = {plan->vocab, r->writer.prompts->pad, ROWS_AT_ONCE, r->writer.options};
    own->judge = judge_from_args(args, &of, &own->judge_bytes, diag);
    return own->judge != NULL;
}

static void close_rewards(Rollout *r) {
    if (!r->rewards) return;
    judge_close(r->rewards->judge);
    if (r->rewards->spare) rollout_answers_release(r->rewards->spare, r->n_most);
}

/* --- judging --- */

static bool judge_own(void *user, const RolloutRequest *request, RolloutOwn own, Diag *diag) {
    Rollout *r = user;
    const int64_t n = own.count;
    const double start = clock_now();
    JudgedAnswer *judged = calloc((size_t)n + 1, sizeof(*judged));
    float *rewards = calloc((size_t)n + 1, sizeof(*rewards));
    if (!judged || !rewards) BUG("out of memory");
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = rollout_own_at(own, i);
        const RolloutAnswer *answer = &request->answers[at];
        const TrainPrompt *prompt = &r->writer.prompts->items[request->prompts[at]];
        judged[i] = (JudgedAnswer){.record = prompt->record,
                                   .text = answer->text.text,
                                   .length = answer->text.length,
                                   .n_tokens = answer->n_tokens,
                                   .ended = answer->ended,
                                   .asked = prompt->begin.tokens.items,
                                   .n_asked = (int64_t)prompt->begin.n_prompt_tokens,
                                   .tokens = answer->tokens};
    }
    bool good = judge_answers(r->rewards->judge, judged, (int)n, rewards, diag);
    for (int64_t i = 0; i < n && good; i++) {
        request->answers[rollout_own_at(own, i)].reward = rewards[i];
    }
    free(judged);
    free(rewards);
    r->rewards->judge_seconds += clock_now() - start;
    return good;
}

/* `count` answers, each to prompts[i] with its own random numbers, written and judged: by all
 * processes together, for all of them. */
static bool write_answers(Rollout *r, RolloutAnswer *answers, int64_t count, const int *prompts,
                          const uint64_t *states, bool greedy, Diag *diag) {
    const RolloutRequest request = {.answers = answers,
                                    .count = count,
                                    .prompts = prompts,
                                    .states = states,
                                    .greedy = greedy,
                                    .doing = "writing and judging",
                                    .judge = judge_own,
                                    .user = r};
    return rollout_writer_write(&r->writer, &request, diag);
}

/* --- what answers are worth --- */

typedef struct GroupRewards {
    double mean, spread;
} GroupRewards;

/* The spread is that of a sample: over n - 1. From the first on, so that rewards that are all equal
 * have no spread, however large. */
static GroupRewards measure_group(RolloutAnswer *const *answers, int n) {
    const double first = (double)answers[0]->reward;
    GroupRewards group = {.mean = first};
    for (int i = 0; i < n; i++) group.mean += ((double)answers[i]->reward - first) / n;
    for (int i = 0; i < n; i++) {
        double off = (double)answers[i]->reward - group.mean;
        group.spread += n > 1 ? off * off / (n - 1) : 0;
    }
    group.spread = sqrt(group.spread);
    return group;
}

static void fill(float *numbers, int64_t seq, int64_t row, double value) {
    for (int64_t i = 0; numbers && i < seq; i++) numbers[row * seq + i] = (float)value;
}

/* What each answer is worth beside the others to its prompt (Shao et al. 2024, section 4.1.2). */
static void put_advantages(Rollout *r) {
    const double least_spread = 1e-4;
    const int n = r->writer.prompts->n_answers;
    for (int64_t first = 0; first < r->n_rows; first += n) {
        const GroupRewards group = measure_group(r->answers + first, n);
        for (int64_t row = first; row < first + n; row++) {
            const double more = (double)r->answers[row]->reward - group.mean;
            fill(r->rewards->numbers[TOKEN_CENTERED_REWARDS], r->writer.plan->seq, row, more);
            fill(r->rewards->numbers[TOKEN_ADVANTAGES], r->writer.plan->seq, row,
                 more / (group.spread + least_spread));
        }
    }
}

/* What the weights, as they are, say of all rows. */
static bool score_rows(Rollout *r, float *out, Diag *diag) {
    const int64_t at_once = engine_forward_batch(r->writer.engine), seq = r->writer.plan->seq;
    const double start = clock_now();
    bool good = true;
    for (int64_t row = 0; good && row < r->n_rows; row += at_once) {
        good = engine_token_scores(r->writer.engine, r->tokens + row * seq, r->labels + row * seq,
                                   out + row * seq, diag);
    }
    r->rewards->score_seconds += clock_now() - start;
    return good;
}

/* The same by the weights that training began with, or --reference-load's, which take the place of
 * these for a while. */
static bool score_reference(Rollout *r, float *out, Diag *diag) {
    const bool others = cli_given(r->writer.args, OPT_REFERENCE_LOAD); /* frozen ones, too */
    EngineWeights *own = engine_keep_weights(r->writer.engine, others, diag);
    bool good = own && engine_args_load_reference(r->writer.args, r->writer.engine, diag) &&
                score_rows(r, out, diag);
    return engine_restore_weights(own, diag) && good;
}

static void swap_answers(RolloutAnswer *a, RolloutAnswer *b) {
    const RolloutAnswer kept = *a;
    *a = *b;
    *b = kept;
}

/* The first rows of groups whose answers are all worth the same. */
static int64_t find_dull(const Rollout *r, int64_t *out) {
    const int n = r->writer.prompts->n_answers;
    int64_t n_dull = 0;
    for (int64_t row = 0; row < r->n_rows; row += n) {
        if (measure_group(r->answers + row, n).spread == 0) out[n_dull++] = row;
    }
    return n_dull;
}

/* Groups that teach nothing are written again, for other prompts, up to --resample times (Yu et al.
 * 2025, section 3.2). Which prompt follows from the seed, the group and the attempt, and all
 * processes know all rewards: they go on alike, and so does a run from a checkpoint. */
static bool replace_dull_groups(Rollout *r, Diag *diag) {
    const int n = r->writer.prompts->n_answers,
              n_attempts = (int)cli_int(r->writer.args, OPT_RESAMPLE, 0);
    Arena *arena = arena_create();
    int64_t *dull = ARENA_ARRAY(arena, int64_t, r->n_rows / n);
    int *prompts = ARENA_ARRAY(arena, int, r->n_rows);
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, r->n_rows);
    bool good = true;
    for (int attempt = 1; good && attempt <= n_attempts; attempt++) {
        const int64_t n_dull = find_dull(r, dull), n_anew = n_dull * n;
        if (n_dull == 0) break;
        for (int64_t i = 0; i < n_anew; i++) {
            rollout_draw(r, dull[i / n] + i % n, attempt, &prompts[i], &states[i]);
        }
        good = write_answers(r, r->rewards->spare, n_anew, prompts, states, false, diag);
        for (int64_t i = 0; good && i < n_anew; i++) {
            const int64_t row = dull[i / n] + i % n;
            swap_answers(r->answers[row], &r->rewards->spare[i]);
            r->asked[row] = prompts[i];
            r->rewards->is_replaced[row] = true;
        }
    }
    arena_destroy(arena);
    return good;
}

static bool make_rewards(Rollout *r, Diag *diag) {
    RolloutRewards *own = r->rewards;
    const int64_t seq = r->writer.plan->seq;
    uint64_t *states = calloc((size_t)r->n_rows, sizeof(*states));
    if (!states) BUG("out of memory");
    for (int64_t i = 0; i < r->n_rows; i++) {
        rollout_draw(r, i, 0, &r->asked[i], &states[i]);
        r->answers[i] = &r->written[i];
    }
    bool good = rollout_writer_renew(&r->writer, diag) &&
                write_answers(r, r->written, r->n_rows, r->asked, states, false, diag);
    free(states);
    for (int64_t i = 0; i < r->n_rows; i++) {
        own->first[i] = r->answers[i]->reward;
        own->is_replaced[i] = false;
    }
    good = good && replace_dull_groups(r, diag);
    if (!good) return false;
    for (int64_t i = 0; i < r->n_rows; i++) {
        rollout_put_row(r, &r->writer.prompts->items[r->asked[i]], r->answers[i],
                        r->tokens + i * seq, r->labels + i * seq);
    }
    put_advantages(r);
    if (own->numbers[TOKEN_REFERENCE_SCORES] &&
        !score_reference(r, own->numbers[TOKEN_REFERENCE_SCORES], diag)) {
        return false;
    }
    /* With a single step the ratios are 1: nothing has changed since. */
    return r->steps == 1 || !own->numbers[TOKEN_OLD_SCORES] ||
           score_rows(r, own->numbers[TOKEN_OLD_SCORES], diag);
}

static void give_numbers(Rollout *r, int64_t row) {
    const int64_t at = row * r->writer.plan->seq;
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        const float *numbers = r->rewards->numbers[i];
        engine_set_numbers(r->writer.engine, i, numbers ? numbers + at : NULL);
    }
}

static bool validate_rewards(Rollout *r, RolloutValidation *out, Diag *diag) {
    const int64_t n = r->n_validated;
    Arena *arena = arena_create();
    int *prompts = ARENA_ARRAY(arena, int, n + 1);
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, n + 1);
    rollout_pick_validated(r, prompts, states);
    bool good = rollout_writer_renew(&r->writer, diag) &&
                write_answers(r, r->validated, n, prompts, states, true, diag);
    out->reward = 0;
    for (int64_t i = 0; i < n && good; i++) {
        out->reward += (double)r->validated[i].reward / (double)n;
    }
    arena_destroy(arena);
    return good;
}

/* --- words --- */

static int values_before(Rollout *r, const RolloutValidation *val, StepValue *out) {
    const int n_rows = r->writer.plan->global_batch, n = r->writer.prompts->n_answers;
    const RolloutRewards *own = r->rewards;
    double reward = 0, spread = 0, replaced = 0, dull = 0;
    int at = 0;
    for (int i = 0; i < n_rows; i++) {
        reward += (double)own->first[r->first_of_step + i] / n_rows;
        replaced += (double)own->is_replaced[r->first_of_step + i] / n_rows;
    }
    for (int i = 0; i < n_rows; i += n) {
        const double group = measure_group(r->answers + r->first_of_step + i, n).spread;
        spread += group * n / n_rows;
        dull += (double)(group == 0) * n / n_rows;
    }
    out[at++] = (StepValue){"reward", reward};
    if (val) out[at++] = (StepValue){"val_reward", val->reward};
    out[at++] = (StepValue){"reward_spread", spread};
    if (own->spare) {
        out[at++] = (StepValue){"resampled", replaced};
        out[at++] = (StepValue){"dull", dull};
    }
    return at;
}

static void put_reward(const Rollout *r, int64_t row, StrBuf *out) {
    strbuf_printf(out, "\"reward\": %.7g, ", (double)r->answers[row]->reward);
}

static int64_t judge_bytes(const Rollout *r) {
    return r->rewards->judge_bytes;
}

static void print_judge(const Rollout *r) {
    char bytes[32];
    if (r->rewards->judge_bytes == 0) return;
    units_format_bytes(bytes, sizeof(bytes), r->rewards->judge_bytes);
    printf("        %s more, for the model that judges them\n", bytes);
}

static void print_judged(const Rollout *r) {
    printf(", judged in %.1f s", r->rewards->judge_seconds);
    if (r->rewards->score_seconds > 0) printf(", scored in %.1f s", r->rewards->score_seconds);
}

const RolloutKind ROLLOUT_REWARDS = {.open = open_rewards,
                                     .close = close_rewards,
                                     .make = make_rewards,
                                     .give = give_numbers,
                                     .validate = validate_rewards,
                                     .values_before = values_before,
                                     .put_line = put_reward,
                                     .bytes = judge_bytes,
                                     .print = print_judge,
                                     .print_end = print_judged};
