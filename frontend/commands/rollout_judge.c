#include "frontend/commands/rollout_judge.h"

#include "frontend/commands/judge_args.h"
#include "frontend/commands/rollout_reference.h"
#include "frontend/units.h"
#include "ir/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_AT_ONCE = 8 }; /* of a model that judges */

/* --- opening --- */

bool rollout_judged_open(Rollout *r, CliArgs *args,
                         bool (*is_dull)(RolloutAnswer *const *group, int n), Diag *diag) {
    const Plan *plan = r->writer.plan;
    RolloutJudged *own = r->judged = ARENA_NEW(r->arena, RolloutJudged);
    own->n_most = rollout_count_answers(r, r->n_most);
    own->is_dull = is_dull;
    own->compares = judge_compares(args);
    own->answers = ARENA_ARRAY(r->arena, RolloutAnswer *, own->n_most);
    own->asked = ARENA_ARRAY(r->arena, int, own->n_most);
    own->first = ARENA_ARRAY(r->arena, float, own->n_most);
    own->is_replaced = ARENA_ARRAY(r->arena, bool, own->n_most);
    if (cli_given(args, OPT_RESAMPLE)) {
        own->spare = rollout_answers_create(own->n_most, plan->seq, r->arena);
    }
    if (own->compares && r->writer.options->rank > 0) return true; /* the first process asks */
    const JudgedModel of = {plan->vocab, r->writer.prompts->pad, ROWS_AT_ONCE, r->writer.options};
    own->judge = judge_from_args(args, &of, &own->judge_bytes, diag);
    return own->judge != NULL;
}

void rollout_judged_close(Rollout *r) {
    if (!r->judged) return;
    judge_close(r->judged->judge);
    if (r->judged->spare) rollout_answers_release(r->judged->spare, r->judged->n_most);
}

/* --- judging --- */

static bool judge_own(void *user, const RolloutRequest *request, CrewShare own, Diag *diag) {
    Rollout *r = user;
    const int64_t n = own.count;
    const double start = clock_now();
    JudgedAnswer *judged = calloc((size_t)n + 1, sizeof(*judged));
    float *rewards = calloc((size_t)n + 1, sizeof(*rewards));
    if (!judged || !rewards) BUG("out of memory");
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = rank_crew_at(own, i);
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
    bool good = judge_answers(r->judged->judge, judged, (int)n, rewards, diag);
    for (int64_t i = 0; i < n && good; i++) {
        request->answers[rank_crew_at(own, i)].reward = rewards[i];
    }
    free(judged);
    free(rewards);
    r->judged->judge_seconds += clock_now() - start;
    return good;
}

/* What a judge compares says: n answers to one prompt, as texts, and of each two of them that
 * differ a pair; returns the end of these. */
static JudgedPair *put_pairs(const RolloutRequest *request, const TrainPrompt *prompt,
                             int64_t first, int n, const GenerateText *texts, JudgedPair *out) {
    JudgedAnswer of[2] = {{.record = prompt->record}, {.record = prompt->record}};
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (rollout_answers_equal(&request->answers[first + i], &request->answers[first + k])) {
                continue;
            }
            for (int side = 0; side < 2; side++) {
                const int64_t at = first + (side ? k : i);
                const GenerateText *text = &texts[at];
                of[side].text = text->text.text + text->n_prompt;
                of[side].length = text->text.length - text->n_prompt;
                of[side].n_tokens = request->answers[at].n_tokens;
                of[side].ended = request->answers[at].ended;
            }
            *out++ = (JudgedPair){of[0], of[1]};
        }
    }
    return out;
}

/* An answer's reward is the share of those to its prompt that it is better than; as good as, or
 * the same as: half. Returns the end of the verdicts. */
static const float *count_wins(RolloutAnswer *group, int n, const float *verdicts) {
    for (int i = 0; i < n; i++) group[i].reward = 0;
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            const bool same = rollout_answers_equal(&group[i], &group[k]);
            const float won = same ? 0.5f : 0.5f + 0.5f * *verdicts++;
            group[i].reward += won; /* halves: exact in any order */
            group[k].reward += 1 - won;
        }
    }
    for (int i = 0; i < n; i++) group[i].reward /= (float)(n - 1);
    return verdicts;
}

/* All groups, by this process. */
static bool compare_all(Rollout *r, const RolloutRequest *request, Diag *diag) {
    const int n = r->writer.prompts->n_answers;
    const int64_t n_groups = request->count / n, n_pairs = n_groups * n * (n - 1) / 2;
    GenerateText *texts = calloc((size_t)request->count + 1, sizeof(*texts));
    JudgedPair *pairs = calloc((size_t)n_pairs + 1, sizeof(*pairs));
    float *verdicts = calloc((size_t)n_pairs + 1, sizeof(*verdicts));
    if (!texts || !pairs || !verdicts) BUG("out of memory");
    for (int64_t i = 0; i < request->count; i++) {
        texts[i] =
            rollout_text_of(&r->writer.prompts->items[request->prompts[i]], &request->answers[i]);
    }
    JudgedPair *end = pairs;
    for (int64_t g = 0; g < n_groups; g++) {
        end = put_pairs(request, &r->writer.prompts->items[request->prompts[g * n]], g * n, n,
                        texts, end);
    }
    const bool good = judge_pairs(r->judged->judge, pairs, (int)(end - pairs), verdicts, diag);
    const float *said = verdicts;
    for (int64_t g = 0; g < n_groups && good; g++) {
        said = count_wins(request->answers + g * n, n, said);
    }
    for (int64_t i = 0; i < request->count; i++) generate_text_release(&texts[i]);
    free(texts);
    free(pairs);
    free(verdicts);
    return good;
}

/* The first process compares for all: a group's answers may come from several. */
static bool compare(Rollout *r, const RolloutRequest *request, Diag *diag) {
    const EngineOptions *options = r->writer.options;
    const double start = clock_now();
    const bool good = options->rank > 0 || compare_all(r, request, diag);
    r->judged->judge_seconds += clock_now() - start;
    return good && rollout_share_rewards(options->control, request->answers, request->count, diag);
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
                                    .judge = r->judged->compares ? NULL : judge_own,
                                    .user = r};
    return rollout_writer_write(&r->writer, &request, diag) &&
           (!r->judged->compares || compare(r, &request, diag));
}

/* --- groups --- */

/* From the first on, so that rewards that are all equal have no spread, however large. */
GroupRewards rollout_measure_group(RolloutAnswer *const *answers, int n) {
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

static void swap_answers(RolloutAnswer *a, RolloutAnswer *b) {
    const RolloutAnswer kept = *a;
    *a = *b;
    *b = kept;
}

/* The first answers of groups that teach nothing. */
static int64_t find_dull(const Rollout *r, int64_t n_answers, int64_t *out) {
    const int n = r->writer.prompts->n_answers;
    int64_t n_dull = 0;
    for (int64_t first = 0; first < n_answers; first += n) {
        if (r->judged->is_dull(r->judged->answers + first, n)) out[n_dull++] = first;
    }
    return n_dull;
}

/* Groups that teach nothing are written again, for other prompts, up to --resample times (Yu et al.
 * 2025, section 3.2). Which prompt follows from the seed, the group and the attempt, and all
 * processes know all rewards: they go on alike, and so does a run from a checkpoint. */
static bool replace_dull_groups(Rollout *r, int64_t n_answers, Diag *diag) {
    RolloutJudged *own = r->judged;
    const int n = r->writer.prompts->n_answers,
              n_attempts = (int)cli_int(r->writer.args, OPT_RESAMPLE, 0);
    Arena *arena = arena_create();
    int64_t *dull = ARENA_ARRAY(arena, int64_t, n_answers / n);
    int *prompts = ARENA_ARRAY(arena, int, n_answers);
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, n_answers);
    bool good = true;
    for (int attempt = 1; good && attempt <= n_attempts; attempt++) {
        const int64_t n_dull = find_dull(r, n_answers, dull), n_anew = n_dull * n;
        if (n_dull == 0) break;
        for (int64_t i = 0; i < n_anew; i++) {
            rollout_draw(r, dull[i / n] + i % n, attempt, &prompts[i], &states[i]);
        }
        good = write_answers(r, own->spare, n_anew, prompts, states, false, diag);
        for (int64_t i = 0; good && i < n_anew; i++) {
            const int64_t at = dull[i / n] + i % n;
            swap_answers(own->answers[at], &own->spare[i]);
            own->asked[at] = prompts[i];
            own->is_replaced[at] = true;
        }
    }
    arena_destroy(arena);
    return good;
}

/* --- a rollout --- */

bool rollout_judged_make(Rollout *r, Diag *diag) {
    RolloutJudged *own = r->judged;
    const int64_t n = rollout_count_answers(r, r->n_rows);
    uint64_t *states = calloc((size_t)n, sizeof(*states));
    if (!states) BUG("out of memory");
    for (int64_t i = 0; i < n; i++) {
        rollout_draw(r, i, 0, &own->asked[i], &states[i]);
        own->answers[i] = &r->written[i];
    }
    bool good = rollout_writer_renew(&r->writer, diag) &&
                write_answers(r, r->written, n, own->asked, states, false, diag);
    free(states);
    for (int64_t i = 0; i < n; i++) {
        own->first[i] = own->answers[i]->reward;
        own->is_replaced[i] = false;
    }
    return good && replace_dull_groups(r, n, diag);
}

/* Of one answer to a prompt, which is beside no other, who compares says nothing. */
bool rollout_judged_validate(Rollout *r, RolloutValidation *out, Diag *diag) {
    const int64_t n = r->n_validated;
    if (r->judged->compares) return true;
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

int rollout_judged_values(Rollout *r, const RolloutValidation *val, StepValue *out) {
    const RolloutJudged *own = r->judged;
    const int n = r->writer.prompts->n_answers;
    const int64_t first = rollout_count_answers(r, r->first_of_step);
    const int64_t n_answers = rollout_count_answers(r, r->writer.plan->global_batch);
    const double count = (double)n_answers;
    double reward = 0, spread = 0, replaced = 0, dull = 0;
    int at = 0;
    for (int64_t i = first; i < first + n_answers; i++) {
        reward += (double)own->first[i] / count;
        replaced += (double)own->is_replaced[i] / count;
    }
    for (int64_t i = first; i < first + n_answers; i += n) {
        spread += rollout_measure_group(own->answers + i, n).spread * n / count;
        dull += (double)own->is_dull(own->answers + i, n) * n / count;
    }
    out[at++] = (StepValue){"reward", reward};
    if (val && !isnan(val->reward)) out[at++] = (StepValue){"val_reward", val->reward};
    out[at++] = (StepValue){"reward_spread", spread};
    if (rollout_reference_step(r) >= 0) {
        out[at++] = (StepValue){"reference_step", (double)rollout_reference_step(r)};
    }
    if (own->spare) {
        out[at++] = (StepValue){"resampled", replaced};
        out[at++] = (StepValue){"dull", dull};
    }
    return at;
}

int64_t rollout_judged_bytes(const Rollout *r) {
    return r->judged->judge_bytes + rollout_reference_bytes(r);
}

void rollout_judged_print(const Rollout *r) {
    char bytes[32];
    if (r->judged->judge_bytes > 0) {
        units_format_bytes(bytes, sizeof(bytes), r->judged->judge_bytes);
        printf("        %s more, for the model that judges them\n", bytes);
    }
    if (rollout_reference_bytes(r) > 0) {
        units_format_bytes(bytes, sizeof(bytes), rollout_reference_bytes(r));
        printf("        %s more at most, of the host's, for the reference\n", bytes);
    }
}

void rollout_judged_print_end(const Rollout *r) {
    printf(", judged in %.1f s", r->judged->judge_seconds);
    if (r->score_seconds > 0) printf(", scored in %.1f s", r->score_seconds);
}
