#include "frontend/commands/train_choices.h"

#include "frontend/commands/evaluate_choices_tell.h"
#include "frontend/commands/generate_open.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/rollout_write.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_alike.h"
#include "frontend/units.h"

#include <ctype.h>
#include <string.h>

enum { MOST_STEM_BYTES = 24 };
static const char NORM[] = "_norm", PERPLEXITY[] = "_perplexity"; /* behind a file's name */

/* Is it `of`, or what another value of `of` is called? */
static bool is_of(const char *name, const char *of) {
    const size_t length = strlen(of);
    if (strncmp(name, of, length) != 0) return false;
    name += length;
    return !*name || strcmp(name, NORM) == 0 || strcmp(name, PERPLEXITY) == 0;
}

static bool is_taken(const TrainChoices *choices, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (is_of(name, choices->names[i]) || is_of(choices->names[i], name)) return true;
    }
    return false;
}

/* choices_arc_easy of data/arc-easy.jsonl, unlike the others'. */
static const char *make_name(const TrainChoices *choices, int n, const char *path, Arena *arena) {
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    const size_t length = strcspn(stem, ".");
    char *name = arena_printf(arena, "choices_%.*s",
                              (int)(length < MOST_STEM_BYTES ? length : MOST_STEM_BYTES), stem);
    for (char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c)) *c = '_';
    }
    const char *unlike = name;
    for (int number = n + 1; is_taken(choices, n, unlike); number++) {
        unlike = arena_printf(arena, "%s_%d", name, number);
    }
    return unlike;
}

bool train_choices_options(const CliArgs *args, const Plan *plan, TrainChoices *out, Diag *diag) {
    const CliValue *files = &args->values[OPT_CHOICES];
    *out = (TrainChoices){.n = files->n_list, .paths = files->list};
    if (!choices_args_way(args, &out->way, diag)) return false;
    if (out->n == 0 && cli_given(args, OPT_NO_CACHE)) {
        diag_error(diag, NO_LOC, "train: --no-cache: is for --choices");
        return false;
    }
    if (out->n == 0) return true;
    if (out->n > TRAIN_MOST_CHOICES) {
        diag_error(diag, NO_LOC, "train: --choices: %d files at most", TRAIN_MOST_CHOICES);
        return false;
    }
    for (int i = 0; i < out->n; i++) {
        out->names[i] = make_name(out, i, out->paths[i], args->arena);
        out->norms[i] = arena_printf(args->arena, "%s%s", out->names[i], NORM);
        out->perplexities[i] = arena_printf(args->arena, "%s%s", out->names[i], PERPLEXITY);
    }
    if (!cli_given(args, OPT_NO_CACHE) && plan_is_model(args->operand)) return true; /* once more */
    return choices_args_check_plan(args, plan, diag);
}

/* For the caches of a plan for decoding, or, where there is none, why. False: reported. */
static bool plan_caches(CliArgs *args, const Plan *plan, const EngineOptions *options,
                        TrainChoices *out, Diag *diag) {
    if (!cli_given(args, OPT_NO_CACHE)) {
        if (!engine_args_crew(args, options, &out->crew, diag)) return false;
        const GenerateBeside beside = {plan, options, out->crew.together,
                                       (int)cli_int(args, OPT_SIDE_BY_SIDE, WRITER_SIDE_BY_SIDE),
                                       true};
        if (!generate_engine_open_beside(args, &beside, &out->caches, diag)) return false;
        if (out->caches.plan) return true;
        choices_args_note_rows(args, options, &out->caches.obstacle);
    }
    const bool of_answers = train_prompts_asked(args, plan); /* options of caches may be theirs */
    return (of_answers || choices_args_check_rows(args, diag)) &&
           choices_args_check_plan(args, plan, diag) && choices_args_check_job(args, options, diag);
}

/* A text's bytes are tokens only where the data's are. */
static bool check_bytes(const CliArgs *args, const Tokenizer *tokenizer, Diag *diag) {
    const CliValue *data = &args->values[OPT_DATA];
    if (tokenizer) return true;
    for (int i = 0; i < data->n_list; i++) {
        if (!train_text_is_tokens(args, data->list[i])) continue;
        diag_error(diag, NO_LOC,
                   "train: --choices are text, and '%s' is tokens: of which --tokenizer FILE?",
                   data->list[i]);
        return false;
    }
    return true;
}

bool train_choices_open(CliArgs *args, const TrainData *data, const EngineOptions *options,
                        TrainChoices *out, Diag *diag) {
    const Tokenizer *tokenizer = data->text.tokenizer;
    if (out->n == 0) return true;
    if (!plan_caches(args, data->plan, options, out, diag)) return false;
    if (!tokenizer) {
        if (!tokenizer_from_args(args, data->plan->vocab, &out->tokenizer, diag)) return false;
        tokenizer = out->tokenizer;
    }
    if (!check_bytes(args, tokenizer, diag)) return false;
    if (!choices_args_texts(args, tokenizer, &out->way.texts, diag)) return false;
    uint64_t digest = 0;
    for (int i = 0; i < out->n; i++) {
        if (!evaluate_choices_check(data->plan, &out->way, out->paths[i],
                                    options->control ? &digest : NULL, diag)) {
            return false;
        }
    }
    return train_alike_texts(args, digest, options, diag);
}

bool train_choices_start(TrainChoices *choices, const CliArgs *args, Diag *diag) {
    if (choices->n == 0 || !choices->caches.plan) return true;
    if (!generate_engine_create(&choices->caches, args->arena, diag)) return false;
    choices->scorer = choice_caches_create(choices->caches.decoder, args->arena);
    return true;
}

static void release_results(TrainChoices *choices) {
    for (int i = 0; i < choices->n && i < TRAIN_MOST_CHOICES; i++) {
        evaluate_choices_release(&choices->results[i]);
    }
}

void train_choices_close(TrainChoices *choices) {
    release_results(choices);
    engine_destroy(choices->caches.engine);
    choices->caches.engine = NULL;
    tokenizer_destroy(choices->tokenizer);
    choices->tokenizer = NULL;
}

int64_t train_choices_bytes(const TrainChoices *choices, const Engine *engine, const Plan *plan) {
    const int64_t n = engine_forward_batch(engine) * plan->seq;
    if (choices->scorer) {
        return choice_caches_bytes(choices->caches.decoder) +
               engine_arena_bytes(choices->caches.engine) +
               engine_message_bytes(choices->caches.engine);
    }
    return choices->n ? n * (plan->vocab * (int64_t)sizeof(float) + (int64_t)sizeof(int32_t)) : 0;
}

void train_choices_print_memory(const TrainChoices *choices) {
    char bytes[32];
    if (!choices->scorer) return;
    units_format_bytes(bytes, sizeof(bytes), engine_arena_bytes(choices->caches.engine));
    printf("choices %s of memory more, to score %d side by side\n", bytes, choices->caches.n_texts);
}

/* Who scores them, by the weights as they are. False: reported. */
static bool find_model(TrainChoices *choices, Engine *engine, const Plan *plan, ChoicesModel *out,
                       Diag *diag) {
    *out = (ChoicesModel){.engine = engine, .plan = plan};
    if (!choices->scorer) return true;
    *out = (ChoicesModel){.caches = choices->scorer,
                          .plan = choices->caches.plan,
                          .n_together = choices->caches.n_texts,
                          .crew = choices->crew};
    choice_caches_clear(choices->scorer);
    const bool good =
        engine_copy_weights(engine, choices->caches.engine, !choices->has_weights, diag);
    choices->has_weights |= good;
    return good;
}

static void add_value(TrainChoices *choices, StepMetrics *metrics, const char *name, double value) {
    const int room = sizeof(choices->values) / sizeof(choices->values[0]);
    if (metrics->n_values == room) BUG("more than %d values of a step", room);
    choices->values[metrics->n_values++] = (StepValue){name, value};
}

bool train_choices_score(TrainChoices *choices, Engine *engine, const Plan *plan,
                         StepMetrics *metrics, Diag *diag) {
    ChoicesModel model;
    release_results(choices);
    if (!find_model(choices, engine, plan, &model, diag)) return false;
    for (int i = 0; i < metrics->n_values; i++) choices->values[i] = metrics->values[i];
    for (int i = 0; i < choices->n; i++) {
        ChoicesResult *r = &choices->results[i];
        if (!evaluate_choices(&model, &choices->way, choices->paths[i], NULL, NULL, r, diag)) {
            return false;
        }
        const double n = (double)r->all.n_questions;
        add_value(choices, metrics, choices->names[i], (double)r->all.n_right / n);
        if (r->is_greedy) {
            add_value(choices, metrics, choices->perplexities[i], evaluate_choices_perplexity(r));
        } else if (r->is_normed) {
            add_value(choices, metrics, choices->norms[i],
                      (double)r->all.n_right_per_character / n);
        }
    }
    metrics->values = choices->values;
    metrics->stays = true;
    choices->is_scored = true;
    return true;
}

void train_choices_print(const TrainChoices *choices) {
    StrBuf out = strbuf_create();
    for (int i = 0; choices->is_scored && i < choices->n; i++) {
        evaluate_choices_put(&out, choices->paths[i], &choices->way, &choices->results[i], "");
    }
    fputs(out.text, stdout);
    strbuf_destroy(&out);
}
