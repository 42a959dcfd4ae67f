#include "frontend/commands/train_rollout.h"

#include "frontend/commands/judge_args.h"
#include "frontend/commands/rollout_share.h"
#include "frontend/progress_line.h"
#include "frontend/units.h"
#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_SIDE_BY_SIDE = 8, /* rows that a product takes with the same bits as alone */
    ROWS_AT_ONCE = 8,         /* of a model that judges */
    MOST_VALIDATED = 256,
    N_OWN_VALUES = 7
};

struct Rollout {
    const CliArgs *args;
    const Plan *plan;
    const TrainPrompts *prompts;
    const EngineOptions *options;
    Engine *engine;
    Arena *arena;
    GenerateWriter writer;
    Judge *judge;
    int64_t judge_bytes;
    bool has_weights;      /* the writer has those that never change */
    int64_t steps;         /* of each rollout */
    int64_t first, n_rows; /* the rows that are there: of the run, first ... first + n_rows */
    int64_t first_of_step;
    int *asked;               /* [steps * global_batch], the prompt of each row */
    float *first_rewards;     /* [steps * global_batch], of what was written before resampling */
    bool *is_replaced;        /* [steps * global_batch] */
    RolloutAnswer *answers;   /* [steps * global_batch] */
    RolloutAnswer *spare;     /* as many, where groups are resampled; else NULL */
    RolloutAnswer *validated; /* [n_validated] */
    int64_t n_validated;
    float *numbers[N_TOKEN_NUMBERS]; /* [steps * global_batch, seq]; NULL: not asked for */
    int32_t *tokens, *labels;        /* [steps * global_batch, seq] */
    StepValue values[OUTPUT_MOST_REPORTED + N_OWN_VALUES];
    double write_seconds, judge_seconds, score_seconds;
    int64_t n_written, n_tokens; /* answers and their tokens, of this process */
};

/* --- options --- */

static bool fail(Diag *diag, const char *text) {
    diag_error(diag, NO_LOC, "%s", text);
    return false;
}

bool rollout_check_options(const CliArgs *args, const Plan *plan, Diag *diag) {
    static const CliOption OURS[] = {OPT_ANSWERS,      OPT_REWARD,        OPT_REWARD_COMMAND,
                                     OPT_REWARD_MODEL, OPT_REWARD_LOAD,   OPT_ROLLOUT_STEPS,
                                     OPT_RESAMPLE,     OPT_ANSWER_LENGTH, OPT_SIDE_BY_SIDE,
                                     OPT_STOP,         OPT_ANSWERS_LOG};
    const bool reads = train_prompts_read_by(plan);
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]) && !reads; i++) {
        if (!cli_given(args, OURS[i])) continue;
        diag_error(diag, NO_LOC,
                   "train: --%s: is for plans that learn by rewards of what they write: --set "
                   "policy=grpo",
                   CLI_OPTIONS[OURS[i]].name);
        return false;
    }
    if (!reads) return true;
    if (!judge_check_args(args, diag)) return false;
    if (!judge_is_given(args)) {
        return fail(diag, "train: who says what answers are worth? give --reward FILE.lua, "
                          "--reward-command COMMAND, or --reward-load FILE of a model");
    }
    if (plan_reads_numbers(plan, TOKEN_REFERENCE_SCORES) && !cli_given(args, OPT_LOAD) &&
        !cli_given(args, OPT_REFERENCE_LOAD)) {
        return fail(diag, "train: kl is the distance from the weights of --load: give --load FILE, "
                          "or --reference-load FILE, or --set kl=0");
    }
    return true;
}

/* --- opening --- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool open_writer(Rollout *r, CliArgs *args, Diag *diag) {
    GenerateWriter *writer = &r->writer;
    const int64_t slots = cli_int(args, OPT_SIDE_BY_SIDE, DEFAULT_SIDE_BY_SIDE);
    const int64_t n_rows = r->steps * r->plan->global_batch;
    writer->n_texts = (int)(slots < n_rows ? slots : n_rows);
    if (!generate_engine_open_beside(args, r->plan, r->options, writer->n_texts, &writer->engine,
                                     diag) ||
        !generate_engine_create(&writer->engine, r->arena, diag)) {
        return false;
    }
    generate_writer_start(writer, args, &r->prompts->text);
    return true;
}

static int64_t count_validated(const TrainPrompts *prompts) {
    return prompts->n_val < MOST_VALIDATED ? prompts->n_val : MOST_VALIDATED;
}

bool rollout_open(CliArgs *args, const Plan *plan, const TrainPrompts *prompts,
                  const EngineOptions *options, Engine *engine, Rollout **out, Diag *diag) {
    *out = NULL;
    if (!prompts->reads) return true;
    Arena *arena = args->arena;
    Rollout *r = *out = ARENA_NEW(arena, Rollout);
    const int64_t steps = cli_int(args, OPT_ROLLOUT_STEPS, 1);
    const int64_t n_rows = steps * plan->global_batch, n = n_rows * plan->seq;
    *r = (Rollout){.args = args,
                   .plan = plan,
                   .prompts = prompts,
                   .options = options,
                   .engine = engine,
                   .arena = arena,
                   .steps = steps,
                   .n_validated = count_validated(prompts)};
    r->asked = ARENA_ARRAY(arena, int, n_rows);
    r->first_rewards = ARENA_ARRAY(arena, float, n_rows);
    r->is_replaced = ARENA_ARRAY(arena, bool, n_rows);
    r->answers = rollout_answers_create(n_rows, plan->seq, arena);
    if (cli_given(args, OPT_RESAMPLE)) {
        r->spare = rollout_answers_create(n_rows, plan->seq, arena);
    }
    r->validated = rollout_answers_create(r->n_validated, plan->seq, arena);
    r->tokens = ARENA_ARRAY(arena, int32_t, n);
    r->labels = ARENA_ARRAY(arena, int32_t, n);
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (plan_reads_numbers(plan, i)) r->numbers[i] = ARENA_ARRAY(arena, float, n);
    }
    if (!open_writer(r, args, diag)) return false;
    const JudgedModel of = {plan->vocab, prompts->pad, ROWS_AT_ONCE, options};
    r->judge = judge_from_args(args, &of, &r->judge_bytes, diag);
    return r->judge != NULL;
}

void rollout_close(Rollout *r) {
    if (!r) return;
    judge_close(r->judge);
    const int64_t n_rows = r->steps * r->plan->global_batch;
    rollout_answers_release(r->answers, n_rows);
    if (r->spare) rollout_answers_release(r->spare, n_rows);
    rollout_answers_release(r->validated, r->n_validated);
    generate_writer_release(&r->writer);
    engine_destroy(r->writer.engine.engine);
    r->writer.engine.engine = NULL;
}

/* --- writing --- */

/* The answers that this process writes: of `count`, every world-th from its rank on. */
typedef struct Writing {
    Rollout *rollout;
    RolloutAnswer *answers; /* [count] */
    int64_t count, rank, world;
    const int *prompts;     /* [count] */
    const uint64_t *states; /* [count] */
    ProgressLine line;
    int n_done, n_all;
    bool quiet;
} Writing;

static int64_t answer_of(const Writing *w, int64_t task) {
    return w->rank + task * w->world;
}

static GenerateText begin_text(void *user, int64_t task, uint64_t *state) {
    const Writing *w = user;
    const int64_t i = answer_of(w, task);
    *state = w->states[i];
    return generate_text_fork(&w->rollout->prompts->items[w->prompts[i]].begin);
}

static int64_t most_tokens(void *user, int64_t task) {
    const Writing *w = user;
    return train_prompts_room(w->rollout->prompts, w->rollout->plan,
                              w->prompts[answer_of(w, task)]);
}

static bool end_text(void *user, int64_t task, const GenerateText *text, bool ended) {
    Writing *w = user;
    Rollout *r = w->rollout;
    RolloutAnswer *answer = &w->answers[answer_of(w, task)];
    answer->ended = ended;
    answer->n_tokens = (int32_t)(text->tokens.count - text->n_prompt_tokens);
    for (int32_t i = 0; i < answer->n_tokens; i++) {
        answer->tokens[i] = text->tokens.items[text->n_prompt_tokens + (size_t)i];
    }
    strbuf_put_bytes(&answer->text, text->text.text + text->n_prompt,
                     text->text.length - text->n_prompt);
    r->n_written++;
    r->n_tokens += answer->n_tokens;
    if (!w->quiet) progress_line_show(&w->line, ++w->n_done, w->n_all, "writing and judging");
    return true;
}

static bool judge_own(Rollout *r, const Writing *w, Diag *diag) {
    const int64_t n = w->n_all;
    JudgedAnswer *judged = calloc((size_t)n + 1, sizeof(*judged));
    float *rewards = calloc((size_t)n + 1, sizeof(*rewards));
    if (!judged || !rewards) BUG("out of memory");
    for (int64_t i = 0; i < n; i++) {
        const RolloutAnswer *answer = &w->answers[answer_of(w, i)];
        const TrainPrompt *prompt = &r->prompts->items[w->prompts[answer_of(w, i)]];
        judged[i] = (JudgedAnswer){.record = prompt->record,
                                   .text = answer->text.text,
                                   .length = answer->text.length,
                                   .n_tokens = answer->n_tokens,
                                   .ended = answer->ended,
                                   .asked = prompt->begin.tokens.items,
                                   .n_asked = (int64_t)prompt->begin.n_prompt_tokens,
                                   .tokens = answer->tokens};
    }
    bool good = judge_answers(r->judge, judged, (int)n, rewards, diag);
    for (int64_t i = 0; i < n && good; i++) w->answers[answer_of(w, i)].reward = rewards[i];
    free(judged);
    free(rewards);
    return good;
}

/* The writer's weights become those that train. */
static bool renew_weights(Rollout *r, Diag *diag) {
    const double start = now();
    bool good = engine_copy_weights(r->engine, r->writer.engine.engine, !r->has_weights, diag);
    r->has_weights = r->has_weights || good;
    r->write_seconds += now() - start;
    return good;
}

/* `count` answers, each to prompts[i] with its own random numbers, written and judged: by all
 * processes together, for all of them. greedy: the likeliest, whatever the numbers. */
static bool write_answers(Rollout *r, RolloutAnswer *answers, int64_t count, const int *prompts,
                          const uint64_t *states, bool greedy, Diag *diag) {
    struct Control *control = r->options->control;
    Writing w = {.rollout = r,
                 .answers = answers,
                 .count = count,
                 .rank = control ? r->options->rank : 0,
                 .world = control ? control_world(control) : 1,
                 .prompts = prompts,
                 .states = states,
                 .line = progress_line_start("answers"),
                 .quiet = cli_given(r->args, OPT_QUIET) || r->options->rank > 0};
    double start = now();
    w.n_all = (int)((count - w.rank + w.world - 1) / w.world);
    for (int64_t i = 0; i < count; i++) answers[i].text.length = 0;
    r->writer.sampler.options = (SamplerOptions){
        .temperature = !greedy, .top_k = r->prompts->text.n_choices, .top_p = 1, .repetition = 1};
    const WriterTasks tasks = {w.n_all, &w, begin_text, most_tokens, end_text};
    bool good = generate_writer_tasks(&r->writer, &tasks, diag);
    r->write_seconds += now() - start;
    start = now();
    good = good && judge_own(r, &w, diag);
    progress_line_end(&w.line);
    r->judge_seconds += now() - start;
    return good && rollout_share(control, r->options->rank, answers, count, r->plan->seq, diag);
}

/* --- rows --- */

/* A row: the prompt, the answer, padding. */
static void put_row(Rollout *r, int64_t row, const TrainPrompt *prompt,
                    const RolloutAnswer *answer) {
    const int64_t seq = r->plan->seq, asked = (int64_t)prompt->begin.n_prompt_tokens;
    int32_t *tokens = r->tokens + row * seq, *labels = r->labels + row * seq;
    for (int64_t i = 0; i < seq; i++) {
        tokens[i] = i < asked                      ? (int32_t)prompt->begin.tokens.items[i]
                    : i < asked + answer->n_tokens ? (int32_t)answer->tokens[i - asked]
                                                   : (int32_t)r->prompts->pad;
    }
    for (int64_t i = 0; i < seq; i++) {
        bool counts = i + 1 >= asked && i + 1 < asked + answer->n_tokens;
        labels[i] = counts ? tokens[i + 1] : DATASET_NO_LABEL;
    }
}

typedef struct GroupRewards {
    double mean, spread;
} GroupRewards;

/* The spread is that of a sample: over n - 1. From the first on, so that rewards that are all equal
 * have no spread, however large. */
static GroupRewards measure_group(const RolloutAnswer *answers, int n) {
    const double first = (double)answers[0].reward;
    GroupRewards group = {.mean = first};
    for (int i = 0; i < n; i++) group.mean += ((double)answers[i].reward - first) / n;
    for (int i = 0; i < n; i++) {
        double off = (double)answers[i].reward - group.mean;
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
    const int n = r->prompts->n_answers;
    for (int64_t first = 0; first < r->n_rows; first += n) {
        const GroupRewards group = measure_group(r->answers + first, n);
        for (int64_t row = first; row < first + n; row++) {
            const double more = (double)r->answers[row].reward - group.mean;
            fill(r->numbers[TOKEN_CENTERED_REWARDS], r->plan->seq, row, more);
            fill(r->numbers[TOKEN_ADVANTAGES], r->plan->seq, row,
                 more / (group.spread + least_spread));
        }
    }
}

/* What the weights, as they are, say of all rows. */
static bool score_rows(Rollout *r, float *out, Diag *diag) {
    const int64_t at_once = engine_forward_batch(r->engine), seq = r->plan->seq;
    const double start = now();
    bool good = true;
    for (int64_t row = 0; good && row < r->n_rows; row += at_once) {
        good = engine_token_scores(r->engine, r->tokens + row * seq, r->labels + row * seq,
                                   out + row * seq, diag);
    }
    r->score_seconds += now() - start;
    return good;
}

/* The same by the weights that training began with, or --reference-load's, which take the place of
 * these for a while. */
static bool score_reference(Rollout *r, float *out, Diag *diag) {
    const bool others = cli_given(r->args, OPT_REFERENCE_LOAD); /* frozen ones, too */
    EngineWeights *own = engine_keep_weights(r->engine, others, diag);
    bool good =
        own && engine_args_load_reference(r->args, r->engine, diag) && score_rows(r, out, diag);
    return engine_restore_weights(own, diag) && good;
}

/* Random numbers of a row, and the prompt of its group, by how often the group was written before.
 */
static void draw_row(const Rollout *r, int64_t row, int attempt, int *out_prompt,
                     uint64_t *out_state) {
    const int64_t at = r->first + row;
    const uint64_t seed = (uint64_t)r->plan->seed;
    const uint64_t own = attempt ? mix_bits(mix_bits(seed) ^ (uint64_t)attempt) : seed;
    *out_prompt = train_prompts_pick(r->prompts, own, at / r->prompts->n_answers);
    *out_state = mix_bits(mix_bits(own) + (uint64_t)at);
}

static void swap_answers(RolloutAnswer *a, RolloutAnswer *b) {
    const RolloutAnswer kept = *a;
    *a = *b;
    *b = kept;
}

/* The first rows of groups whose answers are all worth the same. */
static int64_t find_dull(const Rollout *r, int64_t *out) {
    const int n = r->prompts->n_answers;
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
    const int n = r->prompts->n_answers, n_attempts = (int)cli_int(r->args, OPT_RESAMPLE, 0);
    Arena *arena = arena_create();
    int64_t *dull = ARENA_ARRAY(arena, int64_t, r->n_rows / n);
    int *prompts = ARENA_ARRAY(arena, int, r->n_rows);
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, r->n_rows);
    bool good = true;
    for (int attempt = 1; good && attempt <= n_attempts; attempt++) {
        const int64_t n_dull = find_dull(r, dull), n_anew = n_dull * n;
        if (n_dull == 0) break;
        for (int64_t i = 0; i < n_anew; i++) {
            draw_row(r, dull[i / n] + i % n, attempt, &prompts[i], &states[i]);
        }
        good = write_answers(r, r->spare, n_anew, prompts, states, false, diag);
        for (int64_t i = 0; good && i < n_anew; i++) {
            const int64_t row = dull[i / n] + i % n;
            swap_answers(&r->answers[row], &r->spare[i]);
            r->asked[row] = prompts[i];
            r->is_replaced[row] = true;
        }
    }
    arena_destroy(arena);
    return good;
}

static bool write_rollout(Rollout *r, int64_t sample, Diag *diag) {
    Arena *arena = arena_create();
    r->first = sample;
    r->n_rows = r->steps * r->plan->global_batch;
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, r->n_rows);
    for (int64_t i = 0; i < r->n_rows; i++) draw_row(r, i, 0, &r->asked[i], &states[i]);
    bool good = renew_weights(r, diag) &&
                write_answers(r, r->answers, r->n_rows, r->asked, states, false, diag);
    arena_destroy(arena);
    for (int64_t i = 0; i < r->n_rows; i++) {
        r->first_rewards[i] = r->answers[i].reward;
        r->is_replaced[i] = false;
    }
    good = good && replace_dull_groups(r, diag);
    if (!good) return false;
    for (int64_t i = 0; i < r->n_rows; i++) {
        put_row(r, i, &r->prompts->items[r->asked[i]], &r->answers[i]);
    }
    put_advantages(r);
    if (r->numbers[TOKEN_REFERENCE_SCORES] &&
        !score_reference(r, r->numbers[TOKEN_REFERENCE_SCORES], diag)) {
        return false;
    }
    /* With a single step the ratios are 1: nothing has changed since. */
    return r->steps == 1 || !r->numbers[TOKEN_OLD_SCORES] ||
           score_rows(r, r->numbers[TOKEN_OLD_SCORES], diag);
}

bool rollout_batch(Rollout *r, int64_t sample, int32_t *tokens, int32_t *labels, Diag *diag) {
    const int64_t seq = r->plan->seq, n = r->plan->global_batch * seq;
    if ((sample < r->first || sample >= r->first + r->n_rows) && !write_rollout(r, sample, diag)) {
        return false;
    }
    r->first_of_step = sample - r->first;
    const int64_t at = r->first_of_step * seq;
    memcpy(tokens, r->tokens + at, (size_t)n * sizeof(*tokens));
    memcpy(labels, r->labels + at, (size_t)n * sizeof(*labels));
    for (TokenNumbers i = 0; i < N_TOKEN_NUMBERS; i++) {
        engine_set_numbers(r->engine, i, r->numbers[i] ? r->numbers[i] + at : NULL);
    }
    return true;
}

bool rollout_validate(Rollout *r, double *out_reward, Diag *diag) {
    const int64_t n = r->n_validated;
    Arena *arena = arena_create();
    int *prompts = ARENA_ARRAY(arena, int, n + 1);
    uint64_t *states = ARENA_ARRAY(arena, uint64_t, n + 1);
    *out_reward = 0;
    for (int64_t i = 0; i < n; i++) {
        prompts[i] = r->prompts->n_train + (int)(i * r->prompts->n_val / n);
    }
    bool good =
        renew_weights(r, diag) && write_answers(r, r->validated, n, prompts, states, true, diag);
    for (int64_t i = 0; i < n && good; i++) {
        *out_reward += (double)r->validated[i].reward / (double)n;
    }
    arena_destroy(arena);
    return good;
}

/* --- words --- */

/* What another process has written comes as tokens alone. */
static GenerateText text_of(const TrainPrompt *prompt, const RolloutAnswer *answer) {
    GenerateText text = generate_text_fork(&prompt->begin);
    for (int32_t i = 0; i < answer->n_tokens; i++) {
        generate_text_add(&text, (int)answer->tokens[i]);
    }
    return text;
}

void rollout_put_answers(const Rollout *r, int64_t step, StrBuf *out) {
    StrBuf line = strbuf_create();
    for (int64_t i = 0; i < r->plan->global_batch; i++) {
        const int64_t row = r->first_of_step + i;
        const int p = r->asked[row];
        const RolloutAnswer *answer = &r->answers[row];
        GenerateText text = text_of(&r->prompts->items[p], answer);
        json_t *record = json_copy(r->prompts->items[p].record);
        json_object_del(record, "step");
        json_object_del(record, "reward");
        const JudgedAnswer judged = {.record = record,
                                     .text = text.text.text + text.n_prompt,
                                     .length = text.text.length - text.n_prompt,
                                     .n_tokens = answer->n_tokens,
                                     .ended = answer->ended};
        line.text[line.length = 0] = '\0';
        judged_answer_put(&line, &judged);
        strbuf_printf(out, "{\"step\":%" PRId64 ", \"reward\": %.7g, %s", step,
                      (double)answer->reward, line.text + 1);
        json_decref(record);
        generate_text_release(&text);
    }
    strbuf_destroy(&line);
}

const StepValue *rollout_values(Rollout *r, const StepValue *values, int n_values,
                                double val_reward, int *out_n) {
    const int n_rows = r->plan->global_batch, n = r->prompts->n_answers;
    const RolloutAnswer *answers = r->answers + r->first_of_step;
    double reward = 0, spread = 0, tokens = 0, ended = 0, replaced = 0, dull = 0;
    for (int i = 0; i < n_rows; i++) {
        reward += (double)r->first_rewards[r->first_of_step + i] / n_rows;
        replaced += (double)r->is_replaced[r->first_of_step + i] / n_rows;
        tokens += (double)answers[i].n_tokens / n_rows;
        ended += (double)answers[i].ended / n_rows;
    }
    for (int i = 0; i < n_rows; i += n) {
        const double group = measure_group(answers + i, n).spread;
        spread += group * n / n_rows;
        dull += (double)(group == 0) * n / n_rows;
    }
    int at = 0;
    r->values[at++] = (StepValue){"reward", reward};
    if (!isnan(val_reward)) r->values[at++] = (StepValue){"val_reward", val_reward};
    r->values[at++] = (StepValue){"reward_spread", spread};
    if (r->spare) {
        r->values[at++] = (StepValue){"resampled", replaced};
        r->values[at++] = (StepValue){"dull", dull};
    }
    r->values[at++] = (StepValue){"answer_tokens", tokens};
    r->values[at++] = (StepValue){"ended", ended};
    for (int i = 0; i < n_values; i++) r->values[at++] = values[i];
    *out_n = at;
    return r->values;
}

void rollout_print(const Rollout *r) {
    char bytes[32];
    if (!r) return;
    units_format_bytes(bytes, sizeof(bytes), engine_arena_bytes(r->writer.engine.engine));
    printf("answers %s of memory more, to write %d side by side; of %" PRId64 " tokens at most\n",
           bytes, r->writer.n_texts, r->prompts->length);
    if (r->judge_bytes == 0) return;
    units_format_bytes(bytes, sizeof(bytes), r->judge_bytes);
    printf("        %s more, for the model that judges them\n", bytes);
}

int64_t rollout_bytes(const Rollout *r) {
    return r ? engine_arena_bytes(r->writer.engine.engine) + r->judge_bytes : 0;
}

void rollout_print_end(const Rollout *r) {
    if (!r || r->n_written == 0) return;
    printf("answers %" PRId64 ", %" PRId64 " tokens: written in %.1f s, judged in %.1f s",
           r->n_written, r->n_tokens, r->write_seconds, r->judge_seconds);
    if (r->score_seconds > 0) printf(", scored in %.1f s", r->score_seconds);
    printf(r->options->control ? ", of this process\n" : "\n");
}
