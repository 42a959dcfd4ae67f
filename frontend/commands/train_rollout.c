#include "frontend/commands/train_rollout.h"

#include "frontend/commands/judge_args.h"
#include "frontend/commands/rollout_reference.h"
#include "frontend/commands/rollout_state.h"
#include "frontend/units.h"
#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- options --- */

static bool fail(Diag *diag, const char *text) {
    diag_error(diag, NO_LOC, "%s", text);
    return false;
}

static bool refuse(const CliArgs *args, const CliOption *options, size_t n, const char *why,
                   Diag *diag) {
    for (size_t i = 0; i < n; i++) {
        if (!cli_given(args, options[i])) continue;
        diag_error(diag, NO_LOC, "train: --%s: %s", CLI_OPTIONS[options[i]].name, why);
        return false;
    }
    return true;
}

static bool check_student(const Plan *plan, Diag *diag) {
    if (train_prompts_read_by(plan)) {
        return fail(diag, "train: --on-policy: is for students of a --teacher, not for plans that "
                          "learn by rewards or from pairs of what they write");
    }
    return plan_count_teacher(plan) > 0 ||
           fail(diag, "train: --on-policy: a model writes, and from whom does it learn? give "
                      "--teacher MODEL.lua");
}

bool rollout_check_options(const CliArgs *args, const Plan *plan, Diag *diag) {
    static const CliOption OF_REWARDS[] = {OPT_REWARD,      OPT_REWARD_COMMAND, OPT_REWARD_MODEL,
                                           OPT_REWARD_LOAD, OPT_ANSWERS,        OPT_RESAMPLE,
                                           OPT_PREFER,      OPT_PREFER_COMMAND};
    static const CliOption OF_PAIRS[] = {OPT_PAIRS};
    static const CliOption OF_BOTH[] = {OPT_ROLLOUT_STEPS, OPT_ANSWER_LENGTH, OPT_STOP,
                                        OPT_ANSWERS_LOG};
    static const CliOption OF_CACHES[] = {OPT_SIDE_BY_SIDE, OPT_WRITE_OVER};
    const bool reads = train_prompts_read_by(plan), asked = train_prompts_asked(args, plan);
    if (!reads && !refuse(args, OF_REWARDS, sizeof(OF_REWARDS) / sizeof(OF_REWARDS[0]),
                          "is for plans that learn by rewards of what they write: --set "
                          "policy=grpo, or from pairs of it: --set preference=dpo --set "
                          "online=true",
                          diag)) {
        return false;
    }
    if (!train_prompts_in_pairs(plan) &&
        !refuse(args, OF_PAIRS, sizeof(OF_PAIRS) / sizeof(OF_PAIRS[0]),
                "is for plans that learn from pairs of what they write: --set preference=dpo --set "
                "online=true",
                diag)) {
        return false;
    }
    const char *const why = "is for plans that learn by rewards of what they write, --set "
                            "policy=grpo, from pairs of it, --set preference=dpo --set "
                            "online=true, or from a teacher, --on-policy";
    if (!asked && !refuse(args, OF_BOTH, sizeof(OF_BOTH) / sizeof(OF_BOTH[0]), why, diag)) {
        return false;
    }
    if (!asked && !cli_given(args, OPT_CHOICES) &&
        !refuse(args, OF_CACHES, sizeof(OF_CACHES) / sizeof(OF_CACHES[0]),
                "is for answers of what the model writes, and for --choices", diag)) {
        return false;
    }
    if (!rollout_reference_check(args, plan, diag)) return false;
    if (cli_given(args, OPT_ON_POLICY)) return check_student(plan, diag);
    if (!reads) return true;
    if (!judge_check_args(args, diag)) return false;
    if (!judge_is_given(args)) {
        return fail(diag, "train: who says what answers are worth? give --reward FILE.lua, "
                          "--reward-command COMMAND, or --reward-load FILE of a model; or who "
                          "compares them, --prefer FILE.lua or --prefer-command COMMAND");
    }
    if (!train_prompts_compare(plan) || cli_given(args, OPT_LOAD) ||
        cli_given(args, OPT_REFERENCE_LOAD)) {
        return true;
    }
    return fail(diag, train_prompts_in_pairs(plan)
                          ? "train: answers are compared with what the weights of --load say of "
                            "them: give --load FILE, or --reference-load FILE"
                          : "train: kl is the distance from the weights of --load: give --load "
                            "FILE, or --reference-load FILE, or --set kl=0");
}

/* --- opening --- */

bool rollout_open(CliArgs *args, const Plan *plan, const TrainPrompts *prompts,
                  const EngineOptions *options, Engine *engine, const RolloutPlace *place,
                  Rollout **out, Diag *diag) {
    *out = NULL;
    if (!prompts->reads) return true;
    Arena *arena = args->arena;
    Rollout *r = *out = ARENA_NEW(arena, Rollout);
    const int64_t steps = cli_int(args, OPT_ROLLOUT_STEPS, 1);
    const int64_t n_rows = steps * plan->global_batch, n = n_rows * plan->seq;
    *r = (Rollout){.kind = prompts->on_policy  ? &ROLLOUT_STUDENT
                           : prompts->in_pairs ? &ROLLOUT_PAIRS
                                               : &ROLLOUT_REWARDS,
                   .arena = arena,
                   .writer = {.args = args,
                              .plan = plan,
                              .prompts = prompts,
                              .options = options,
                              .engine = engine},
                   .steps = steps,
                   .n_most = n_rows};
    r->n_validated =
        prompts->n_val < ROLLOUT_MOST_VALIDATED ? prompts->n_val : ROLLOUT_MOST_VALIDATED;
    r->asked = ARENA_ARRAY(arena, int, n_rows);
    r->answers = ARENA_ARRAY(arena, RolloutAnswer *, n_rows);
    r->written = rollout_answers_create(rollout_count_answers(r, n_rows), plan->seq, arena);
    r->validated = rollout_answers_create(r->n_validated, plan->seq, arena);
    r->tokens = ARENA_ARRAY(arena, int32_t, n);
    r->labels = ARENA_ARRAY(arena, int32_t, n);
    return rollout_writer_open(&r->writer, args, rollout_count_answers(r, n_rows), diag) &&
           r->kind->open(r, args, diag) && rollout_reference_open(r, place, diag);
}

void rollout_close(Rollout *r) {
    if (!r) return;
    if (r->kind->close) r->kind->close(r);
    rollout_reference_close(r);
    rollout_answers_release(r->written, rollout_count_answers(r, r->n_most));
    rollout_answers_release(r->validated, r->n_validated);
    rollout_writer_close(&r->writer);
}

/* --- rows --- */

void rollout_put_row(const Rollout *r, const TrainPrompt *prompt, const RolloutAnswer *answer,
                     int32_t *tokens, int32_t *labels) {
    const int64_t seq = r->writer.plan->seq, asked = (int64_t)prompt->begin.n_prompt_tokens;
    for (int64_t i = 0; i < seq; i++) {
        tokens[i] = i < asked                      ? (int32_t)prompt->begin.tokens.items[i]
                    : i < asked + answer->n_tokens ? (int32_t)answer->tokens[i - asked]
                                                   : (int32_t)r->writer.prompts->pad;
    }
    for (int64_t i = 0; i < seq; i++) {
        bool counts = i + 1 >= asked && i + 1 < asked + answer->n_tokens;
        labels[i] = counts ? tokens[i + 1] : DATASET_NO_LABEL;
    }
}

void rollout_draw(const Rollout *r, int64_t answer, int attempt, int *out_prompt,
                  uint64_t *out_state) {
    const int64_t at = rollout_count_answers(r, r->first) + answer;
    const uint64_t seed = (uint64_t)r->writer.plan->seed;
    const uint64_t own = attempt ? mix_bits(mix_bits(seed) ^ (uint64_t)attempt) : seed;
    *out_prompt = train_prompts_pick(r->writer.prompts, own, at / r->writer.prompts->n_answers);
    *out_state = mix_bits(mix_bits(own) + (uint64_t)at);
}

bool rollout_batch(Rollout *r, int64_t sample, int32_t *tokens, int32_t *labels, Diag *diag) {
    const int64_t seq = r->writer.plan->seq, n = r->writer.plan->global_batch * seq;
    if (sample < r->first || sample >= r->first + r->n_rows) {
        r->first = sample;
        r->n_rows = r->n_most;
        if (!r->kind->make(r, diag)) return false;
    }
    r->first_of_step = sample - r->first;
    const int64_t at = r->first_of_step * seq;
    memcpy(tokens, r->tokens + at, (size_t)n * sizeof(*tokens));
    memcpy(labels, r->labels + at, (size_t)n * sizeof(*labels));
    if (r->kind->give) r->kind->give(r, r->first_of_step);
    return true;
}

/* --- validation --- */

void rollout_pick_validated(const Rollout *r, int *out_prompts, uint64_t *out_states) {
    const TrainPrompts *prompts = r->writer.prompts;
    for (int64_t i = 0; i < r->n_validated; i++) {
        out_prompts[i] = prompts->n_train + (int)(i * prompts->n_val / r->n_validated);
        out_states[i] = 0;
    }
}

bool rollout_validate(Rollout *r, RolloutValidation *out, Diag *diag) {
    *out = ROLLOUT_NOT_VALIDATED;
    return r->kind->validate(r, out, diag);
}

/* --- words --- */

/* What another process has written comes as tokens alone. */
GenerateText rollout_text_of(const TrainPrompt *prompt, const RolloutAnswer *answer) {
    GenerateText text = generate_text_fork(&prompt->begin);
    for (int32_t i = 0; i < answer->n_tokens; i++) {
        generate_text_add(&text, (int)answer->tokens[i]);
    }
    return text;
}

static void put_answer(const Rollout *r, int64_t row, int64_t step, StrBuf *line, StrBuf *out) {
    const TrainPrompt *prompt = &r->writer.prompts->items[r->asked[row]];
    const RolloutAnswer *answer = r->answers[row];
    GenerateText text = rollout_text_of(prompt, answer);
    json_t *record = json_copy(prompt->record);
    json_object_del(record, "step");
    json_object_del(record, "reward");
    const JudgedAnswer judged = {.record = record,
                                 .text = text.text.text + text.n_prompt,
                                 .length = text.text.length - text.n_prompt,
                                 .n_tokens = answer->n_tokens,
                                 .ended = answer->ended};
    line->text[line->length = 0] = '\0';
    judged_answer_put(line, &judged);
    strbuf_printf(out, "{\"step\":%" PRId64 ", ", step);
    if (r->kind->put_line) r->kind->put_line(r, row, out);
    strbuf_put(out, line->text + 1);
    json_decref(record);
    generate_text_release(&text);
}

void rollout_put_answers(const Rollout *r, int64_t step, StrBuf *out) {
    StrBuf line = strbuf_create();
    if (r->kind->put_lines) r->kind->put_lines(r, step, out);
    for (int64_t i = 0; i < r->writer.plan->global_batch && !r->kind->put_lines; i++) {
        const int64_t row = r->first_of_step + i;
        if (r->answers[row]) put_answer(r, row, step, &line, out);
    }
    strbuf_destroy(&line);
}

/* How long the step's answers are; of none there is nothing to say. */
static int put_lengths(const Rollout *r, StepValue *out) {
    double tokens = 0, ended = 0, n = 0;
    RolloutAnswer *const *answers = r->answers + r->first_of_step;
    for (int i = 0; i < r->writer.plan->global_batch; i++) n += answers[i] != NULL;
    for (int i = 0; i < r->writer.plan->global_batch; i++) {
        tokens += answers[i] ? (double)answers[i]->n_tokens / n : 0;
        ended += answers[i] ? (double)answers[i]->ended / n : 0;
    }
    if (n == 0) return 0;
    out[0] = (StepValue){"answer_tokens", tokens};
    out[1] = (StepValue){"ended", ended};
    return 2;
}

const StepValue *rollout_values(Rollout *r, const StepValue *values, int n_values,
                                const RolloutValidation *val, int *out_n) {
    const RolloutKind *kind = r->kind;
    int at = kind->values_before ? kind->values_before(r, val, r->values) : 0;
    at += put_lengths(r, r->values + at);
    for (int i = 0; i < n_values; i++) r->values[at++] = values[i];
    if (kind->values_after) at += kind->values_after(r, val, r->values + at);
    *out_n = at;
    return r->values;
}

void rollout_print(const Rollout *r) {
    char bytes[32];
    if (!r) return;
    units_format_bytes(bytes, sizeof(bytes), engine_arena_bytes(r->writer.texts.engine.engine));
    printf("answers %s of memory more, to write %d side by side; of %" PRId64 " tokens at most\n",
           bytes, r->writer.texts.n_texts, r->writer.prompts->length);
    if (r->kind->print) r->kind->print(r);
}

int64_t rollout_bytes(const Rollout *r) {
    if (!r) return 0;
    const Engine *writer = r->writer.texts.engine.engine;
    return engine_arena_bytes(writer) + engine_message_bytes(writer) +
           (r->kind->bytes ? r->kind->bytes(r) : 0);
}

void rollout_print_validation(const RolloutValidation *val) {
    if (!isnan(val->reward)) printf(", reward %.4f in validation", val->reward);
    if (!isnan(val->loss)) printf(", %.4f in validation", val->loss);
    if (!isnan(val->kl)) {
        printf(", %.4f from the teacher %s", val->kl, isnan(val->loss) ? "in validation" : "there");
    }
}

void rollout_print_end(const Rollout *r) {
    if (!r || r->writer.n_written == 0) return;
    printf("answers %" PRId64 ", %" PRId64 " tokens: written in %.1f s", r->writer.n_written,
           r->writer.n_tokens, r->writer.seconds);
    if (r->kind->print_end) r->kind->print_end(r);
    printf(r->writer.options->control ? ", of this process\n" : "\n");
}
