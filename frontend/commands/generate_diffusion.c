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
    return true;
}

/* Memory, once. */
static void create(GenerateDiffusion *d, GenerateWriter *w, const CliArgs *args) {
    const int64_t seq = w->engine.context;
    *d = (GenerateDiffusion){.writer = w,
                             .enough = log(cli_real(args, OPT_DIFFUSION_SURE, 1)),
                             .by_chance =
                                 strcmp(cli_text(args, OPT_DIFFUSION_ORDER, "sure"), "random") == 0,
                             .begun = ARENA_ARRAY(args->arena, int64_t, w->n_texts),
                             .length = ARENA_ARRAY(args->arena, int64_t, w->n_texts),
                             .rows = ARENA_ARRAY(args->arena, int32_t, w->n_texts * seq),
                             .chosen = ARENA_ARRAY(args->arena, int32_t, seq),
                             .sureness = ARENA_ARRAY(args->arena, double, seq)};
}

/* How many tokens text i gets, at most to the window's end. */
static bool set_length(GenerateDiffusion *d, int i, const CliArgs *args, Diag *diag) {
    const bool cuts = cli_given(args, OPT_CHAT) || cli_given(args, OPT_PROMPTS);
    const int64_t seq = d->writer->engine.context, room = seq - d->begun[i];
    const int64_t most = room < DEFAULT_LENGTH ? room : DEFAULT_LENGTH;
    d->length[i] = cli_int(args, OPT_LENGTH, most > 0 ? most : 1);
    if (d->begun[i] == 0) BUG("nothing to follow");
    if (d->length[i] > room && room > 0 && cuts) d->length[i] = room;
    if (d->length[i] <= room) return true;
    diag_error(diag, NO_LOC,
               "generate: %" PRId64 " tokens of a prompt and %" PRId64
               " of an answer are more than the model's %" PRId64
               " positions: --set seq= says how many it has",
               d->begun[i], d->length[i], seq);
    return false;
}

bool generate_diffusion_begin(GenerateDiffusion *d, GenerateWriter *w, const CliArgs *args,
                              Diag *diag) {
    const int64_t seq = w->engine.context;
    if (!d->writer) create(d, w, args);
    d->block = cli_int(args, OPT_DIFFUSION_BLOCK, seq);
    d->steps = cli_int(args, OPT_DIFFUSION_STEPS, 0);
    d->written = 0;
    for (int i = 0; i < w->n_texts; i++) {
        int32_t *row = d->rows + i * seq;
        const TokenList *tokens = &w->texts[i].tokens;
        d->begun[i] = (int64_t)tokens->count;
        if (!set_length(d, i, args, diag)) return false;
        for (int64_t k = 0; k < seq; k++) {
            row[k] = k < d->begun[i] ? (int32_t)tokens->items[k] : w->engine.mask;
        }
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

/* Of a text, tokens [first, end) of its row, in so many passes. */
typedef struct Piece {
    int text;
    int64_t first, end, steps;
} Piece;

/* The next block of text i, which may be empty. Passes are in proportion; each block has one. */
static Piece next_piece(const GenerateDiffusion *d, int i) {
    const int64_t length = d->length[i], first = d->written < length ? d->written : length;
    const int64_t end = first + d->block < length ? first + d->block : length, count = end - first;
    const int64_t all = d->steps ? d->steps : length;
    int64_t steps = all * end / length - all * first / length;
    steps = steps < 1 ? 1 : steps;
    return (Piece){i, d->begun[i] + first, d->begun[i] + end, steps < count ? steps : count};
}

/* Pass number `step` of a piece. False: reported. *any: something is hidden still. */
static bool take_pass(GenerateDiffusion *d, const Piece *piece, int64_t step, float *logits,
                      bool *any, Diag *diag) {
    const int64_t count = piece->end - piece->first, n = piece->steps;
    int32_t *row = d->rows + piece->text * d->writer->engine.context;
    if (step >= n) return true;
    if (!choose(d, piece->text, piece->first, piece->end, logits, diag)) return false;
    *any |= keep_surest(d, row, piece->first, piece->end, count / n + (step < count % n));
    return true;
}

/* Of texts that are computed together. */
static bool unmask(GenerateDiffusion *d, const Piece *pieces, int n_pieces, Diag *diag) {
    GenerateWriter *w = d->writer;
    const int64_t seq = w->engine.context;
    int64_t steps = 0;
    for (int i = 0; i < n_pieces; i++) {
        if (pieces[i].steps > steps) steps = pieces[i].steps;
    }
    bool any = true;
    for (int64_t step = 0; any && step < steps; step++) {
        for (int i = 0; i < n_pieces; i++) {
            memcpy(w->engine.tokens + i * seq, d->rows + pieces[i].text * seq,
                   (size_t)seq * sizeof(int32_t));
        }
        if (!generate_engine_windows(&w->engine, diag)) return false;
        any = false;
        for (int i = 0; i < n_pieces; i++) {
            float *logits = w->engine.windows + i * seq * w->engine.plan->vocab;
            if (!take_pass(d, &pieces[i], step, logits, &any, diag)) return false;
        }
    }
    return true;
}

bool generate_diffusion_write(GenerateDiffusion *d, Diag *diag) {
    enum { MOST = 64 };
    GenerateWriter *w = d->writer;
    const int64_t batch = engine_forward_batch(w->engine.engine);
    const int at_once = batch < MOST ? (int)batch : MOST;
    Piece together[MOST];
    for (int i = 0, n = 0; i < w->n_texts; i++) {
        if (w->live[i]) together[n++] = next_piece(d, i);
        if (n == 0 || (n < at_once && i + 1 < w->n_texts)) continue;
        if (!unmask(d, together, n, diag)) return false;
        n = 0;
    }
    for (int i = 0; i < w->n_texts; i++) {
        if (!w->live[i]) continue;
        const Piece piece = next_piece(d, i);
        const int32_t *row = d->rows + i * w->engine.context;
        for (int64_t k = piece.first; k < piece.end && w->live[i]; k++) {
            w->live[i] = generate_text_add(&w->texts[i], row[k]);
            w->n_written++;
        }
    }
    d->written += d->block;
    return true;
}

bool generate_diffusion_is_done(const GenerateDiffusion *d) {
    for (int i = 0; i < d->writer->n_texts; i++) {
        if (d->writer->live[i] && d->written < d->length[i]) return false;
    }
    return true;
}

bool generate_diffusion_tasks(GenerateWriter *w, const CliArgs *args, const WriterTasks *tasks,
                              Diag *diag) {
    GenerateDiffusion d = {0};
    for (int64_t first = 0; first < tasks->count; first += w->n_texts) {
        const int64_t rest = tasks->count - first;
        const int n = rest < w->n_texts ? (int)rest : w->n_texts;
        for (int i = 0; i < w->n_texts; i++) {
            w->live[i] = i < n;
            if (i >= n) continue; /* what was there before */
            generate_text_release(&w->texts[i]);
            w->texts[i] = tasks->begin(tasks->user, first + i, &w->states[i]);
        }
        if (!generate_diffusion_begin(&d, w, args, diag)) return false;
        while (!generate_diffusion_is_done(&d)) {
            if (!generate_diffusion_write(&d, diag)) return false;
        }
        for (int i = 0; i < n; i++) {
            if (!tasks->end(tasks->user, first + i, &w->texts[i], !w->live[i])) return false;
        }
    }
    return true;
}
