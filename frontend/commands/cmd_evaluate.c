/* perilune evaluate: weights and data -> loss, perplexity, bits per byte, and the share of
 * questions whose right answer is the likeliest. */
#include "frontend/commands/engine_args.h"
#include "frontend/commands/evaluate_choices.h"
#include "frontend/commands/generate_engine.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_data.h"
#include "frontend/progress_line.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct SourceResult {
    int64_t n_windows;
    double loss, n_labels, n_bytes; /* loss: summed; n_bytes 0: not known */
} SourceResult;

typedef struct Evaluation {
    CliArgs *args;
    Diag *diag;
    Plan *plan;
    EngineOptions options;
    Engine *engine;
    TrainData data;
    Tokenizer *tokenizer; /* of choices, where there are no data */
    SourceResult sources[BLEND_MOST_SOURCES];
    ChoicesResult *choices; /* [n_choices], as --choices */
    int n_choices;
    int32_t *tokens, *labels; /* [global_batch, plan_row], [global_batch, seq] */
    double seconds;
    int failure;
} Evaluation;

static const Tokenizer *tokenizer_of(const Evaluation *e) {
    return e->data.n_val ? e->data.text.tokenizer : e->tokenizer;
}

/* --- losses --- */

static bool read_windows(Evaluation *e, int source, int64_t first, int64_t step) {
    const int64_t seq = e->plan->seq, row = plan_row(e->plan);
    for (int64_t i = 0; i < e->plan->global_batch; i++) {
        if (!train_data_window(&e->data, source, first + i * step, e->tokens + i * row,
                               e->labels + i * seq, e->diag)) {
            return false;
        }
    }
    return true;
}

/* A batch's loss counts as that of its first n_used windows, which all are alike beyond. */
static bool add_batch(Evaluation *e, SourceResult *to, int64_t n_used) {
    const int64_t seq = e->plan->seq, batch = e->plan->global_batch;
    double loss, share = (double)n_used / (double)batch;
    double n = (double)engine_count_labels(e->engine, e->labels);
    if (!engine_evaluate(e->engine, e->tokens, e->labels, &loss, e->diag)) return false;
    if (n == 0) return true; /* nothing counts, and so does the loss of it */
    if (!isfinite(loss)) {
        diag_error(e->diag, NO_LOC, "evaluate: the loss is not finite; wrong weights?");
        return false;
    }
    to->loss += loss * n * share;
    to->n_labels += n * share;
    to->n_bytes +=
        (double)train_text_count_bytes(&e->data.text, e->engine, e->labels, batch * seq) * share;
    return true;
}

/* Each window once: those that do not fill a batch have one each, of copies. */
static bool evaluate_source(Evaluation *e, int source, ProgressLine *line) {
    SourceResult *to = &e->sources[source];
    const int64_t batch = e->plan->global_batch;
    to->n_windows = dataset_count_windows(e->data.val[source].data);
    int64_t whole = to->n_windows / batch * batch;
    for (int64_t i = 0; i < to->n_windows; i += i < whole ? batch : 1) {
        bool fills = i < whole;
        if (!read_windows(e, source, i, fills) || !add_batch(e, to, fills ? batch : 1)) {
            return false;
        }
        if (line) {
            progress_line_show(line, (int)(i / batch + 1), (int)(to->n_windows / batch + 1),
                               e->data.val[source].name);
        }
    }
    if (to->n_labels > 0) return true;
    diag_error(e->diag, (SourceLoc){e->data.val[source].path, 0}, "no label of it counts");
    return false;
}

static bool evaluate(Evaluation *e) {
    const bool says = e->options.rank == 0 && !cli_given(e->args, OPT_QUIET);
    const CliValue *questions = &e->args->values[OPT_CHOICES];
    ProgressLine line = progress_line_start("batches");
    for (int i = 0; i < e->data.n_val; i++) {
        if (!evaluate_source(e, i, says ? &line : NULL)) return false;
    }
    e->seconds = progress_line_end(&line);
    for (int i = 0; i < e->n_choices; i++) {
        line = progress_line_start("questions");
        bool good =
            evaluate_choices(e->engine, e->plan, tokenizer_of(e), questions->list[i],
                             says ? progress_line_show : NULL, &line, &e->choices[i], e->diag);
        progress_line_end(&line);
        if (!good) return false;
    }
    return true;
}

/* --- preparing --- */

static bool check_options(const Evaluation *e) {
    if (!cli_given(e->args, OPT_LOAD)) {
        diag_error(e->diag, NO_LOC, "evaluate: which weights? give --load FILE");
        return false;
    }
    if (!cli_given(e->args, OPT_DATA) && e->n_choices == 0) {
        diag_error(e->diag, NO_LOC, "evaluate: on what? give --data FILE or --choices FILE.jsonl");
        return false;
    }
    return !cli_given(e->args, OPT_DATA) || train_data_options(e->args, e->diag);
}

static bool prepare(Evaluation *e) {
    CliArgs *args = e->args;
    e->n_choices = args->values[OPT_CHOICES].n_list;
    if (!check_options(e)) return false;
    e->plan = plan_from_operand(args, e->diag);
    if (!e->plan) return false;
    if (e->n_choices && !generate_engine_check_causal("evaluate", args->arena, e->plan, e->diag)) {
        return false;
    }
    if (e->n_choices && plan_source(e->plan) > 0) {
        diag_error(e->diag, NO_LOC,
                   "evaluate: --choices are behind their prompt, and this model has an encoder for "
                   "it: give --data of prompts with completions");
        return false;
    }
    bool good = cli_given(args, OPT_DATA)
                    ? train_data_open_whole(args, e->plan, &e->data, e->diag)
                    : tokenizer_from_args(args, e->plan->vocab, &e->tokenizer, e->diag);
    for (int i = 0; i < e->n_choices && good; i++) {
        const char *path = args->values[OPT_CHOICES].list[i];
        good = evaluate_choices_check(e->plan, tokenizer_of(e), path, e->diag);
    }
    if (!good) return false;
    e->failure = engine_options_from_args(args, e->plan, &e->options, e->diag);
    if (e->failure != EXIT_DONE) return false;
    e->failure = EXIT_USAGE;
    if (e->n_choices && e->options.control) {
        diag_error(e->diag, NO_LOC, "evaluate: --choices are for one process");
        return false;
    }
    if (e->options.rank == 0 && !cli_try_outputs(args, e->diag)) return false;
    e->engine = engine_create(e->plan, &e->options, e->diag);
    if (!e->engine || !engine_args_load(args, e->engine, NULL, e->diag)) return false;
    int64_t batch = e->plan->global_batch;
    e->tokens = ARENA_ARRAY(args->arena, int32_t, batch * plan_row(e->plan));
    e->labels = ARENA_ARRAY(args->arena, int32_t, batch * e->plan->seq);
    e->choices = ARENA_ARRAY(args->arena, ChoicesResult, e->n_choices + 1);
    return true;
}

/* --- what is told --- */

/* All sources together, each label alike. */
static SourceResult add_up(const Evaluation *e) {
    SourceResult all = {0};
    bool bytes_known = true;
    for (int i = 0; i < e->data.n_val; i++) {
        all.n_windows += e->sources[i].n_windows;
        all.loss += e->sources[i].loss;
        all.n_labels += e->sources[i].n_labels;
        all.n_bytes += e->sources[i].n_bytes;
        bytes_known &= e->sources[i].n_bytes > 0;
    }
    if (!bytes_known) all.n_bytes = 0;
    return all;
}

static double mean_loss(const SourceResult *r) {
    return r->loss / r->n_labels;
}

static double bits_per_byte(const SourceResult *r) {
    return r->loss / r->n_bytes / M_LN2;
}

static void put_source(StrBuf *out, const char *name, const SourceResult *r) {
    strbuf_printf(out, "loss    %.4f a token, perplexity %.6g", mean_loss(r), exp(mean_loss(r)));
    if (r->n_bytes > 0) strbuf_printf(out, ", %.4f bits per byte", bits_per_byte(r));
    strbuf_printf(out, "; %s: %" PRId64 " windows, %.0f labels\n", name, r->n_windows, r->n_labels);
}

static void put_choices(StrBuf *out, const char *path, const ChoicesResult *r) {
    double n = (double)r->n_questions;
    strbuf_printf(out,
                  "choices %.2f %% right, %.2f %% per byte; by chance %.2f %%; %s: %" PRId64
                  " questions\n",
                  100 * (double)r->n_right / n, 100 * (double)r->n_right_per_byte / n,
                  100 * r->by_chance / n, path, r->n_questions);
    if (r->n_cut == 0) return;
    strbuf_printf(out,
                  "        the beginning of %" PRId64 " of %" PRId64
                  " prompts did not fit the sequence\n",
                  r->n_cut, r->n_choices);
}

static void put_text(const Evaluation *e, StrBuf *out) {
    for (int i = 0; i < e->data.n_val; i++) {
        put_source(out, e->data.val[i].name, &e->sources[i]);
    }
    SourceResult all = add_up(e);
    if (e->data.n_val > 1) put_source(out, "all", &all);
    if (e->data.n_val && e->seconds > 0) {
        double tokens = (double)all.n_windows * (double)plan_row(e->plan);
        strbuf_printf(out, "speed   %.0f tokens in %.1f s, %.0f tokens/s\n", tokens, e->seconds,
                      tokens / e->seconds);
    }
    for (int i = 0; i < e->n_choices; i++) {
        put_choices(out, e->args->values[OPT_CHOICES].list[i], &e->choices[i]);
    }
}

static void put_json_source(StrBuf *out, const SourceResult *r) {
    strbuf_printf(out,
                  "\"windows\": %" PRId64 ", \"labels\": %.0f, \"loss\": %.9g, "
                  "\"perplexity\": %.9g",
                  r->n_windows, r->n_labels, mean_loss(r), exp(mean_loss(r)));
    if (r->n_bytes > 0) strbuf_printf(out, ", \"bits_per_byte\": %.9g", bits_per_byte(r));
}

static void put_json(const Evaluation *e, StrBuf *out) {
    SourceResult all = add_up(e);
    strbuf_put(out, "{");
    if (e->data.n_val) {
        put_json_source(out, &all);
        strbuf_printf(out, ", \"seconds\": %.6g, \"sources\": [", e->seconds);
        for (int i = 0; i < e->data.n_val; i++) {
            strbuf_put(out, i ? ", {\"path\": " : "{\"path\": ");
            json_put_text(out, e->data.val[i].path);
            strbuf_put(out, ", ");
            put_json_source(out, &e->sources[i]);
            strbuf_put(out, "}");
        }
        strbuf_put(out, "]");
    }
    for (int i = 0; i < e->n_choices; i++) {
        const ChoicesResult *r = &e->choices[i];
        double n = (double)r->n_questions;
        strbuf_put(out, i               ? ", {\"path\": "
                        : e->data.n_val ? ", \"choices\": [{\"path\": "
                                        : "\"choices\": [{\"path\": ");
        json_put_text(out, e->args->values[OPT_CHOICES].list[i]);
        strbuf_printf(out,
                      ", \"questions\": %" PRId64 ", \"right\": %.9g, \"right_per_byte\": %.9g, "
                      "\"by_chance\": %.9g, \"cut_prompts\": %" PRId64 "}",
                      r->n_questions, (double)r->n_right / n, (double)r->n_right_per_byte / n,
                      r->by_chance / n, r->n_cut);
    }
    strbuf_put(out, e->n_choices ? "]}\n" : "}\n");
}

static bool tell(const Evaluation *e) {
    if (e->options.rank > 0) return true; /* the first process talks */
    StrBuf out = strbuf_create();
    if (cli_given(e->args, OPT_JSON)) {
        put_json(e, &out);
    } else {
        put_text(e, &out);
    }
    bool written = cli_write(cli_text(e->args, OPT_OUTPUT, "-"), &out, e->diag);
    strbuf_destroy(&out);
    return written;
}

int cmd_evaluate(CliArgs *args) {
    Evaluation e = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&e)) {
        status = e.failure;
    } else if (!evaluate(&e) || !tell(&e)) {
        status = EXIT_FAILED;
    }
    if (status == EXIT_FAILED || status == EXIT_USAGE) engine_args_explain(&e.options, e.diag);
    cli_fail(e.diag, status);
    engine_destroy(e.engine);
    bool together = engine_args_release(&e.options, status == EXIT_DONE);
    tokenizer_destroy(e.tokenizer);
    train_data_close(&e.data);
    diag_destroy(e.diag);
    return together ? status : EXIT_FAILED;
}
