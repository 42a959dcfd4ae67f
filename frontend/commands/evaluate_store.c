#include "frontend/commands/evaluate_store.h"

#include "frontend/commands/choice_scores.h"
#include "frontend/progress_line.h"
#include "frontend/units.h"
#include "ir/base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(Diag *diag, const char *why) {
    diag_error(diag, NO_LOC, "evaluate: %s", why);
    return false;
}

bool evaluate_store_options(const CliArgs *args, Diag *diag) {
    static const CliOption NOT_WITH[] = {OPT_CHOICES, OPT_PREDICTIONS, OPT_JSON,
                                         OPT_OUTPUT,  OPT_TEACHER,     OPT_TEACHER_LOAD};
    if (!cli_given(args, OPT_STORE_LOGITS)) {
        if (!cli_given(args, OPT_STORE_TOP) && !cli_given(args, OPT_STORE_DTYPE)) return true;
        return fail(diag, "--store-top, --store-dtype: where to? give --store-logits FILE");
    }
    const char *dtype = cli_text(args, OPT_STORE_DTYPE, "f16");
    if (strcmp(dtype, "f16") != 0 && strcmp(dtype, "f32") != 0) {
        diag_error(diag, NO_LOC, "--store-dtype: '%s' is none of f16, f32", dtype);
        return false;
    }
    if (!cli_given(args, OPT_DATA)) return fail(diag, "--store-logits: of what? give --data FILE");
    for (size_t i = 0; i < sizeof(NOT_WITH) / sizeof(NOT_WITH[0]); i++) {
        if (!cli_given(args, NOT_WITH[i])) continue;
        diag_error(diag, NO_LOC,
                   "evaluate: --store-logits: stores what a model says of --data; "
                   "without --%s",
                   CLI_OPTIONS[NOT_WITH[i]].name);
        return false;
    }
    return true;
}

bool evaluate_store_check(const CliArgs *args, const Plan *plan, const TrainData *data,
                          bool several, Diag *diag) {
    if (!cli_given(args, OPT_STORE_LOGITS)) return true;
    const int64_t n_words = cli_int(args, OPT_STORE_TOP, 64);
    if (several) {
        return fail(diag, "--store-logits: is for one process, whose threads or virtual ranks are "
                          "all ranks: of several, each has some logits only");
    }
    if (data->source.reads || data->classes.reads || data->pairs.reads || data->hidden.rate > 0 ||
        data->diffusion.hides || data->images.reads) {
        return fail(diag, "--store-logits: is of decoders that learn from texts, not from pairs, "
                          "classes, images, hidden tokens or what an encoder reads");
    }
    if (!cli_given(args, OPT_STORE_TOP) || n_words <= plan->vocab) return true;
    diag_error(diag, NO_LOC, "evaluate: --store-top %" PRId64 ": the model has %" PRId64 " words",
               n_words, plan->vocab);
    return false;
}

/* One run over the data. */
typedef struct Storing {
    const CliArgs *args;
    Engine *engine;
    TrainData *data;
    int32_t *tokens, *labels;
    float *logits; /* [at_once, seq, vocab] */
    Diag *diag;
    StoredWriter *writer;
    StoredShape shape;
    ProgressLine line;
    double start, loss, n_labels;
    int64_t n_done;
    bool says;
} Storing;

/* The line has windows a second and the time that is left. */
static void show(Storing *s) {
    char text[48];
    const double seconds = fmax(clock_now() - s->start, 1e-6);
    snprintf(text, sizeof(text), "%.0f tokens/s",
             (double)s->n_done * (double)s->shape.seq / seconds);
    progress_line_show(&s->line, (int)s->n_done, (int)s->shape.n_windows, text);
}

/* The loss of what is stored, of labels that count. */
static void add_loss(Storing *s, int64_t n) {
    const int64_t vocab = s->shape.vocab;
    double loss = 0, n_labels = 0;
#pragma omp parallel for schedule(static) reduction(+ : loss, n_labels)
    for (int64_t t = 0; t < n * s->shape.seq; t++) {
        if (s->labels[t] < 0 || !engine_counts_label(s->engine, s->labels[t])) continue;
        loss -= log_probability(s->logits + t * vocab, vocab, s->labels[t]);
        n_labels++;
    }
    s->loss += loss;
    s->n_labels += n_labels;
}

/* Windows first .. first + n - 1 of a source, and the first one again where less than at_once. */
static bool store_some(Storing *s, int source, int64_t first, int64_t n, int64_t at_once) {
    const int64_t seq = s->shape.seq;
    for (int64_t i = 0; i < at_once; i++) {
        if (!train_data_window(s->data, source, i < n ? first + i : first, i, s->tokens, s->labels,
                               s->diag)) {
            return false;
        }
    }
    if (!engine_logits(s->engine, s->tokens, s->logits, s->diag)) return false;
    for (int64_t i = 0; i < n; i++) {
        if (!stored_writer_put(s->writer, s->tokens + i * seq, s->logits + i * seq * s->shape.vocab,
                               s->diag)) {
            return false;
        }
    }
    add_loss(s, n);
    s->n_done += n;
    if (s->says) show(s);
    return true;
}

static bool store_all(Storing *s) {
    const int64_t at_once = engine_forward_batch(s->engine);
    for (int source = 0; source < s->data->n_val; source++) {
        const int64_t n = dataset_count_windows(s->data->val[source].data);
        for (int64_t first = 0; first < n; first += at_once) {
            const int64_t count = n - first < at_once ? n - first : at_once;
            if (!store_some(s, source, first, count, at_once)) return false;
        }
    }
    return true;
}

static StoredShape shape_of(const CliArgs *args, const TrainData *data) {
    const Plan *plan = data->plan;
    const int64_t n_words = cli_int(args, OPT_STORE_TOP, 64);
    StoredShape shape = {.seq = plan->seq,
                         .n_words = n_words < plan->vocab ? n_words : plan->vocab,
                         .vocab = plan->vocab,
                         .is_f32 = strcmp(cli_text(args, OPT_STORE_DTYPE, "f16"), "f32") == 0};
    for (int i = 0; i < data->n_val; i++) {
        shape.n_windows += dataset_count_windows(data->val[i].data);
    }
    return shape;
}

bool evaluate_store(const CliArgs *args, Engine *engine, TrainData *data, int32_t *tokens,
                    int32_t *labels, Diag *diag) {
    const char *path = cli_text(args, OPT_STORE_LOGITS, "");
    Storing s = {.args = args,
                 .engine = engine,
                 .data = data,
                 .tokens = tokens,
                 .labels = labels,
                 .diag = diag,
                 .shape = shape_of(args, data),
                 .says = !cli_given(args, OPT_QUIET)};
    char size[32];
    units_format_bytes(size, sizeof(size), stored_bytes(&s.shape));
    if (s.says) {
        printf("stores  %" PRId64 " of %" PRId64 " words at each of %" PRId64
               " positions of %" PRId64 " windows: %s\n",
               s.shape.n_words, s.shape.vocab, s.shape.seq, s.shape.n_windows, size);
        fflush(stdout);
    }
    s.logits = malloc((size_t)(engine_forward_batch(engine) * s.shape.seq * s.shape.vocab) *
                      sizeof(float));
    if (!s.logits) BUG("out of memory");
    s.writer = stored_writer_open(path, &s.shape, data->plan->model, diag);
    s.line = progress_line_start("windows");
    s.start = clock_now();
    const bool good = s.writer && store_all(&s);
    const double seconds = progress_line_end(&s.line);
    free(s.logits);
    if (!good) {
        stored_writer_abandon(s.writer);
        return false;
    }
    if (!stored_writer_commit(s.writer, diag)) return false;
    if (!s.says) return true;
    const double n_tokens = (double)s.shape.n_windows * (double)s.shape.seq;
    printf("wrote   %s in %.1f s, %.0f tokens/s", path, seconds, n_tokens / fmax(seconds, 1e-6));
    if (s.n_labels > 0) printf("; the model's loss there %.4f", s.loss / s.n_labels);
    printf("\n");
    return true;
}
