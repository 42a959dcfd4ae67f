#include "frontend/commands/train_choices.h"

#include "frontend/commands/evaluate_choices_tell.h"
#include "frontend/commands/tokenizer_args.h"

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
    return choices_args_check_plan(args, plan, diag);
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

bool train_choices_open(const CliArgs *args, const TrainData *data, const EngineOptions *options,
                        TrainChoices *out, Diag *diag) {
    const Tokenizer *tokenizer = data->text.tokenizer;
    if (out->n == 0) return true;
    if (!choices_args_check_job(args, options, diag)) return false;
    if (!tokenizer) {
        if (!tokenizer_from_args(args, data->plan->vocab, &out->tokenizer, diag)) return false;
        tokenizer = out->tokenizer;
    }
    if (!check_bytes(args, tokenizer, diag)) return false;
    if (!choices_args_texts(args, tokenizer, &out->way.texts, diag)) return false;
    for (int i = 0; i < out->n; i++) {
        if (!evaluate_choices_check(data->plan, &out->way, out->paths[i], NULL, diag)) return false;
    }
    return true;
}

static void release_results(TrainChoices *choices) {
    for (int i = 0; i < choices->n && i < TRAIN_MOST_CHOICES; i++) {
        evaluate_choices_release(&choices->results[i]);
    }
}

void train_choices_close(TrainChoices *choices) {
    release_results(choices);
    tokenizer_destroy(choices->tokenizer);
    choices->tokenizer = NULL;
}

int64_t train_choices_bytes(const TrainChoices *choices, const Engine *engine, const Plan *plan) {
    const int64_t n = engine_forward_batch(engine) * plan->seq;
    return choices->n ? n * (plan->vocab * (int64_t)sizeof(float) + (int64_t)sizeof(int32_t)) : 0;
}

static void add_value(TrainChoices *choices, StepMetrics *metrics, const char *name, double value) {
    const int room = sizeof(choices->values) / sizeof(choices->values[0]);
    if (metrics->n_values == room) BUG("more than %d values of a step", room);
    choices->values[metrics->n_values++] = (StepValue){name, value};
}

bool train_choices_score(TrainChoices *choices, Engine *engine, const Plan *plan,
                         StepMetrics *metrics, Diag *diag) {
    release_results(choices);
    for (int i = 0; i < metrics->n_values; i++) choices->values[i] = metrics->values[i];
    for (int i = 0; i < choices->n; i++) {
        ChoicesResult *r = &choices->results[i];
        const ChoicesModel model = {.engine = engine, .plan = plan};
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
