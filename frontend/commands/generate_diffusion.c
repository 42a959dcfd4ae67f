#include "frontend/commands/generate_diffusion.h"

#include "frontend/commands/evaluate_choices.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_LENGTH = 500 };
#define NEVER (-1e30f) /* a logit of what is not chosen; finite, as all must be */

bool generate_diffusion_check(const CliArgs *args, bool diffuses, Diag *diag) {
    static const CliOption OWN[] = {OPT_DIFFUSION_STEPS, OPT_DIFFUSION_BLOCK, OPT_DIFFUSION_ORDER,
                                    OPT_DIFFUSION_SURE};
    const char *order = cli_text(args, OPT_DIFFUSION_ORDER, "sure");
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]) && !diffuses; i++) {
        if (!cli_given(args, OWN[i])) continue;
        diag_error(diag, NO_LOC,
                   "generate: --%s: is for models that learn by diffusion (--set diffusion=)",
                   CLI_OPTIONS[OWN[i]].name);
        return false;
    }
    if (strcmp(order, "sure") != 0 && strcmp(order, "random") != 0) {
        diag_error(diag, NO_LOC, "generate: --diffusion-order: '%.40s' is none of sure and random",
                   order);
        return false;
    }
    if (strcmp(order, "random") == 0 && cli_given(args, OPT_DIFFUSION_SURE)) {
        diag_error(diag, NO_LOC,
                   "generate: --diffusion-sure and --diffusion-order random: one of them");
        return false;
    }
    if (!diffuses || !cli_given(args, OPT_PROMPTS)) return true;
    diag_error(
        diag, NO_LOC,
        "generate: --prompts: a model that writes by diffusion takes one --prompt at a time");
    return false;
}

/* Memory, once. */
static void create(GenerateDiffusion *d, GenerateWriter *w, const CliArgs *args) {
    const int64_t seq = w->engine.context;
    *d = (GenerateDiffusion){.writer = w,
                             .by_chance =
                                 strcmp(cli_text(args, OPT_DIFFUSION_ORDER, "sure"), "random") == 0,
                             .rows = ARENA_ARRAY(args->arena, int32_t, w->n_texts * seq),
                             .chosen = ARENA_ARRAY(args->arena, int32_t, seq),
                             .sureness = ARENA_ARRAY(args->arena, double, seq)};
}

bool generate_diffusion_begin(GenerateDiffusion *d, GenerateWriter *w, const CliArgs *args,
                              Diag *diag) {
    const GenerateEngine *engine = &w->engine;
    if (!d->writer) create(d, w, args);
    const int64_t seq = engine->context, begun = (int64_t)w->texts[0].tokens.count;
    const int64_t room = seq - begun;
    const int64_t most = room < DEFAULT_LENGTH ? room : DEFAULT_LENGTH;
    d->length = cli_int(args, OPT_LENGTH, most > 0 ? most : 1);
    if (begun == 0) BUG("nothing to follow");
    if (d->length > room && room > 0 && cli_given(args, OPT_CHAT)) d->length = room;
    if (d->length > room) {
        diag_error(diag, NO_LOC,
                   "generate: %" PRId64 " tokens of a prompt and %" PRId64
                   " of an answer are more than the model's %" PRId64
                   " positions: --set seq= says how many it has",
                   begun, d->length, seq);
        return false;
    }
    d->block = cli_int(args, OPT_DIFFUSION_BLOCK, d->length);
    d->steps = cli_int(args, OPT_DIFFUSION_STEPS, d->length);
    d->enough = log(cli_real(args, OPT_DIFFUSION_SURE, 1));
    d->begun = begun;
    d->written = 0;
    for (int i = 0; i < w->n_texts; i++) {
        int32_t *row = d->rows + i * seq;
        const uint32_t *tokens = w->texts[i].tokens.items;
        for (int64_t k = 0; k < seq; k++) row[k] = k < begun ? (int32_t)tokens[k] : engine->mask;
    }
    return true;
}

/* What each hidden token of [first, end) would be, and how sure that is: the logarithm of its
 * probability, or a number that says nothing. */
static bool choose(GenerateDiffusion *d, int i, int64_t first, int64_t end, float *logits,
                   Diag *diag) {
    GenerateWriter *w = d->writer;
    const int64_t vocab = w->engine.plan->vocab;
    const int32_t mask = w->engine.mask, *row = d->rows + i * w->engine.context;
    for (int64_t k = first; k < end; k++) {
        if (row[k] != mask) continue;
        float *of = logits + (k - w->engine.shifted) * vocab;
        of[mask] = NEVER; /* it would be hidden still */
        d->chosen[k] = sampler_choose(&w->sampler, &w->states[i], &w->texts[i], of);
        if (d->chosen[k] < 0 || d->chosen[k] == mask) {
            diag_error(diag, NO_LOC, "the model's output is not finite; wrong weights?");
            return false;
        }
        d->sureness[k] =
            d->by_chance ? sampler_draw(&w->states[i]) : log_probability(of, vocab, d->chosen[k]);
    }
    return true;
}

/* The `count` hidden tokens that the model is surest of, of equals the first ones, and others that
 * it is sure enough of. False: none is hidden. */
static bool keep_surest(GenerateDiffusion *d, int32_t *row, int64_t first, int64_t end,
                        int64_t count) {
    const int32_t mask = d->writer->engine.mask;
    for (;; count--) {
        int64_t best = -1;
        for (int64_t k = first; k < end; k++) {
            if (row[k] == mask && (best < 0 || d->sureness[k] > d->sureness[best])) best = k;
        }
        if (best < 0) return false;
        if (count <= 0 && !(d->sureness[best] > d->enough)) return true;
        row[best] = d->chosen[best];
    }
}

/* Tokens [first, end) of some texts, which are computed together, in at most this many passes. */
static bool unmask(GenerateDiffusion *d, const int *texts, int n_texts, int64_t first, int64_t end,
                   int64_t steps, Diag *diag) {
    GenerateWriter *w = d->writer;
    const int64_t seq = w->engine.context, count = end - first;
    if (steps > count) steps = count;
    for (int64_t step = 0; step < steps; step++) {
        const int64_t now = count / steps + (step < count % steps);
        for (int t = 0; t < n_texts; t++) {
            memcpy(w->engine.tokens + t * seq, d->rows + texts[t] * seq,
                   (size_t)seq * sizeof(int32_t));
        }
        if (!generate_engine_windows(&w->engine, diag)) return false;
        bool any = false;
        for (int t = 0; t < n_texts; t++) {
            float *logits = w->engine.windows + t * seq * w->engine.plan->vocab;
            if (!choose(d, texts[t], first, end, logits, diag)) return false;
            any |= keep_surest(d, d->rows + texts[t] * seq, first, end, now);
        }
        if (!any) break;
    }
    return true;
}

bool generate_diffusion_write(GenerateDiffusion *d, Diag *diag) {
    GenerateWriter *w = d->writer;
    const int at_once = (int)engine_forward_batch(w->engine.engine);
    const int64_t first = d->written, begun = d->begun;
    const int64_t end = first + d->block < d->length ? first + d->block : d->length;
    /* Passes in proportion, of which each block has one at least. */
    const double share = (double)d->steps / (double)d->length;
    int64_t steps = (int64_t)(share * (double)end) - (int64_t)(share * (double)first);
    int together[64];
    for (int i = 0, n = 0; i < w->n_texts; i++) {
        if (w->live[i]) together[n++] = i;
        const bool is_full = n == at_once || n == (int)(sizeof(together) / sizeof(together[0]));
        if (n == 0 || (!is_full && i + 1 < w->n_texts)) continue;
        if (!unmask(d, together, n, begun + first, begun + end, steps > 0 ? steps : 1, diag)) {
            return false;
        }
        n = 0;
    }
    for (int i = 0; i < w->n_texts; i++) {
        const int32_t *row = d->rows + i * w->engine.context + begun;
        for (int64_t k = first; k < end && w->live[i]; k++) {
            w->live[i] = generate_text_add(&w->texts[i], row[k]);
            w->n_written++;
        }
    }
    d->written = end;
    return true;
}

bool generate_diffusion_is_done(const GenerateDiffusion *d) {
    return d->written == d->length || !generate_writer_is_live(d->writer);
}
