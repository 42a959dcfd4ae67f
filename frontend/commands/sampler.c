#include "frontend/commands/sampler.h"

#include "runtime/data/mix.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define DEFAULT_TEMPERATURE 0.8
#define LOG2_E              0x1.71547652b82fep0
#define LN2_HIGH            0x1.62e42fefa0000p-1 /* and LOW: ln 2 */
#define LN2_LOW             0x1.cf79abc9e3b39p-40
#define INTEGERS            0x1.8p52 /* added to x: its integer is in the last bits */
#define LEAST               (-700.0) /* of what exponentials are taken; below it they are nothing */

#define LEAST_BAND 0.01

enum { LANES = 8 };

Sampler sampler_create(const CliArgs *args, int n_choices) {
    return (Sampler){
        .options = {.temperature = cli_real(args, OPT_TEMPERATURE, DEFAULT_TEMPERATURE),
                    .top_k = (int)cli_int(args, OPT_TOP_K, n_choices),
                    .top_p = cli_real(args, OPT_TOP_P, 1),
                    .min_p = cli_real(args, OPT_MIN_P, 0),
                    .repetition = cli_real(args, OPT_REPETITION_PENALTY, 1)},
        .logits = ARENA_ARRAY(args->arena, double, n_choices),
        .candidates = ARENA_ARRAY(args->arena, SamplerCandidate, n_choices),
        .taken = ARENA_ARRAY(args->arena, SamplerCandidate, n_choices),
        .seen = ARENA_ARRAY(args->arena, bool, n_choices),
        .has = ARENA_ARRAY(args->arena, bool, n_choices)};
}

double sampler_draw(uint64_t *state) {
    return mix_draw(state);
}

/* Likeliest first; the token decides between equals, so that the order is total. */
static bool is_before(const SamplerCandidate *x, const SamplerCandidate *y) {
    return x->logit != y->logit ? x->logit > y->logit : x->token < y->token;
}

/* A heap of the likeliest. */
static void sink(SamplerCandidate *heap, int n, int at) {
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(&heap[child + 1], &heap[child])) child++;
        if (is_before(&heap[at], &heap[child])) return;
        SamplerCandidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* Takes the likeliest out; it lies behind the others then. */
static SamplerCandidate pop(SamplerCandidate *heap, int *n) {
    SamplerCandidate first = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = first;
    sink(heap, *n, 0);
    return first;
}

/* exp(x) for x in [LEAST, 0], else 0 below: of a large vocabulary all are asked for at each token,
 * so that several are computed at once. Within 2 units in the last place. */
static inline double exp_below(double x) {
    static const double INVERSE[] = {1.0 / 6227020800,
                                     1.0 / 479001600,
                                     1.0 / 39916800,
                                     1.0 / 3628800,
                                     1.0 / 362880,
                                     1.0 / 40320,
                                     1.0 / 5040,
                                     1.0 / 720,
                                     1.0 / 120,
                                     1.0 / 24,
                                     1.0 / 6,
                                     1.0 / 2,
                                     1,
                                     1}; /* factorials */
    const double from = x < LEAST ? LEAST : x, shifted = from * LOG2_E + INTEGERS;
    const double n = shifted - INTEGERS, r = (from - n * LN2_HIGH) - n * LN2_LOW;
    double y = INVERSE[0];
    uint64_t bits, power;
#pragma GCC unroll 13
    for (int i = 1; i < 14; i++) y = y * r + INVERSE[i];
    memcpy(&power, &shifted, sizeof(power));
    memcpy(&bits, &y, sizeof(bits));
    bits += power << 52; /* times 2^n */
    memcpy(&y, &bits, sizeof(y));
    return x < LEAST ? 0 : y;
}

/* What a text has is less likely to come again. */
static void penalize(const Sampler *sampler, const GenerateText *text) {
    const double by = sampler->options.repetition;
    memset(sampler->seen, 0, (size_t)text->n_choices * sizeof(bool));
    for (size_t i = 0; i < text->tokens.count; i++) {
        const uint32_t token = text->tokens.items[i];
        if (token >= (uint32_t)text->n_choices || sampler->seen[token]) continue;
        const double logit = sampler->logits[token];
        sampler->logits[token] = logit > 0 ? logit / by : logit * by;
        sampler->seen[token] = true;
    }
}

static void find_tokens(Sampler *sampler, const GenerateText *text) {
    if (sampler->n_has > 0 && sampler->of == text->tokenizer) return;
    sampler->of = text->tokenizer;
    sampler->n_has = 0;
    for (int i = 0; i < text->n_choices; i++) {
        sampler->has[i] = generate_text_has(text, i);
        sampler->n_has += sampler->has[i];
    }
}

/* Logits as they count; those of tokens that there are not are below all others. False: one is not
 * finite. */
static bool gather(Sampler *sampler, const GenerateText *text, const float *logits) {
    int n_finite = 0;
    find_tokens(sampler, text);
    for (int i = 0; i < text->n_choices; i++) n_finite += fabsf(logits[i]) <= FLT_MAX;
    for (int i = 0; i < text->n_choices; i++) {
        sampler->logits[i] = sampler->has[i] ? (double)logits[i] : -INFINITY;
    }
    if (sampler->options.repetition != 1) penalize(sampler, text);
    return n_finite == text->n_choices;
}

static SamplerCandidate find_first(const Sampler *sampler, int n) {
    double most[LANES];
    int i = 0;
    for (int j = 0; j < LANES; j++) most[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            const double x = sampler->logits[i + j];
            most[j] = most[j] < x ? x : most[j];
        }
    }
    for (; i < n; i++) most[0] = most[0] < sampler->logits[i] ? sampler->logits[i] : most[0];
    for (int j = 1; j < LANES; j++) most[0] = most[0] < most[j] ? most[j] : most[0];
    for (i = 0; sampler->logits[i] != most[0];) i++;
    return (SamplerCandidate){most[0], i};
}

/* Of all tokens: exp((logit - top) / temperature), added in an order of its own. */
static double sum_weights(const Sampler *sampler, int n, double top) {
    const double temperature = sampler->options.temperature;
    double sums[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            sums[j] += exp_below((sampler->logits[i + j] - top) / temperature);
        }
    }
    for (; i < n; i++) sum += exp_below((sampler->logits[i] - top) / temperature);
    for (int j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

/* Tokens, likeliest first: few of a large vocabulary are ever looked at, so they are gathered and
 * ordered band by band, from the top on. */
typedef struct Descent {
    const Sampler *sampler;
    int n, left;            /* tokens; of the band, a heap */
    double top, end, width; /* of the band: where it ends, of which the next one begins */
} Descent;

static Descent descend(const Sampler *sampler, int n, double top) {
    return (Descent){sampler, n,        0,
                     top,     INFINITY, fmax(2 * sampler->options.temperature, LEAST_BAND)};
}

static void gather_band(Descent *d) {
    const double begin = d->end, end = d->width < INFINITY ? d->top - d->width : -INFINITY;
    SamplerCandidate *heap = d->sampler->candidates;
    d->left = 0;
    for (int i = 0; i < d->n; i++) {
        const double logit = d->sampler->logits[i];
        if (logit >= end && logit < begin) heap[d->left++] = (SamplerCandidate){logit, i};
    }
    for (int i = d->left / 2 - 1; i >= 0; i--) sink(heap, d->left, i);
    d->end = end;
    d->width *= 2;
}

/* The next of the tokens that there are, of which there is one. */
static SamplerCandidate take(Descent *d) {
    while (d->left == 0) gather_band(d);
    return pop(d->sampler->candidates, &d->left);
}

static double weigh(const Sampler *sampler, SamplerCandidate candidate, double top) {
    return exp_below((candidate.logit - top) / sampler->options.temperature);
}

/* How many of the likeliest, which are taken, are left; and the sum of their weights. */
static int limit(const Sampler *sampler, Descent *descent, double *out_sum) {
    const SamplerOptions *o = &sampler->options;
    const double top = descent->top;
    const bool whole = o->top_k >= sampler->n_has;
    const int k = whole ? sampler->n_has : o->top_k;
    SamplerCandidate *taken = sampler->taken;
    double sum = whole ? sum_weights(sampler, descent->n, top) : 0;
    int kept = 0;
    for (int i = 0; !whole && i < k; i++) {
        taken[i] = take(descent);
        sum += weigh(sampler, taken[i], top);
    }
    const double least = o->top_p * sum;
    *out_sum = 0;
    for (double mass = 0; kept < k && mass < least; kept++) {
        if (whole) taken[kept] = take(descent);
        const double weight = weigh(sampler, taken[kept], top);
        if (weight < o->min_p) break;
        mass += weight;
        *out_sum = mass;
    }
    return kept;
}

int sampler_choose(Sampler *sampler, uint64_t *state, const GenerateText *text,
                   const float *logits) {
    const SamplerOptions *o = &sampler->options;
    const int n = text->n_choices;
    if (!gather(sampler, text, logits)) return -1;
    const SamplerCandidate first = find_first(sampler, n);
    if (o->temperature == 0) return first.token;
    Descent descent = descend(sampler, n, first.logit);
    const bool all = o->top_k >= sampler->n_has && o->top_p == 1 && o->min_p == 0;
    double sum;
    int kept = all ? sampler->n_has : limit(sampler, &descent, &sum);
    if (all) sum = sum_weights(sampler, n, first.logit);
    double rest = sampler_draw(state) * sum;
    for (int i = 0; i < kept; i++) {
        const SamplerCandidate next = all ? take(&descent) : sampler->taken[i];
        rest -= weigh(sampler, next, first.logit);
        if (rest < 0) return next.token;
    }
    return first.token; /* rounding ate the last of it */
}
