#include "frontend/commands/sampler.h"

#include <math.h>
#include <string.h>

#define DEFAULT_TEMPERATURE 0.8

Sampler sampler_create(const CliArgs *args, int n_choices) {
    return (Sampler){
        .options = {.temperature = cli_real(args, OPT_TEMPERATURE, DEFAULT_TEMPERATURE),
                    .top_k = (int)cli_int(args, OPT_TOP_K, n_choices),
                    .top_p = cli_real(args, OPT_TOP_P, 1),
                    .min_p = cli_real(args, OPT_MIN_P, 0),
                    .repetition = cli_real(args, OPT_REPETITION_PENALTY, 1)},
        .candidates = ARENA_ARRAY(args->arena, SamplerCandidate, n_choices),
        .weights = ARENA_ARRAY(args->arena, double, n_choices),
        .seen = ARENA_ARRAY(args->arena, bool, n_choices)};
}

/* splitmix64 (Steele, Lea & Flood 2014). */
double sampler_draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Likeliest first; the token decides between equals, so that the order is total. */
static bool is_before(const SamplerCandidate *x, const SamplerCandidate *y) {
    return x->logit != y->logit ? x->logit > y->logit : x->token < y->token;
}

/* A heap of the likeliest: of a large vocabulary few are ever looked at. */
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

/* What a text has is less likely to come again. */
static double penalize(const Sampler *sampler, int token, double logit) {
    if (!sampler->seen[token]) return logit;
    return logit > 0 ? logit / sampler->options.repetition : logit * sampler->options.repetition;
}

static int gather(Sampler *sampler, const GenerateText *text, const float *logits) {
    int n = 0;
    bool marks = sampler->options.repetition != 1;
    memset(sampler->seen, 0, (size_t)text->n_choices * sizeof(bool));
    for (size_t i = 0; marks && i < text->tokens.count; i++) {
        uint32_t token = text->tokens.items[i];
        if (token < (uint32_t)text->n_choices) sampler->seen[token] = true;
    }
    for (int i = 0; i < text->n_choices; i++) {
        if (!isfinite(logits[i])) return -1;
        if (!generate_text_has(text, i)) continue;
        sampler->candidates[n++] = (SamplerCandidate){penalize(sampler, i, (double)logits[i]), i};
    }
    return n;
}

/* How many of the likeliest are left, whose weights come first, and their sum. */
static int limit(Sampler *sampler, int n, double top, double *out_sum) {
    const SamplerOptions *o = &sampler->options;
    double *weights = sampler->weights, sum = 0, least;
    int k = o->top_k < n ? o->top_k : n, left = n, kept = 0;
    for (int i = 0; k == n && i < n; i++) {
        sum += exp((sampler->candidates[i].logit - top) / o->temperature);
    }
    for (int i = 0; k < n && i < k; i++) {
        weights[i] = exp((pop(sampler->candidates, &left).logit - top) / o->temperature);
        sum += weights[i];
    }
    if (k == n && o->top_p == 1 && o->min_p == 0) {
        *out_sum = sum;
        return n;
    }
    least = o->top_p * sum;
    for (double mass = 0; kept < k && mass < least; mass += weights[kept++]) {
        if (k == n) {
            weights[kept] = exp((pop(sampler->candidates, &left).logit - top) / o->temperature);
        }
        if (weights[kept] < o->min_p) break;
    }
    *out_sum = 0;
    for (int i = 0; i < kept; i++) *out_sum += weights[i];
    return kept;
}

int sampler_choose(Sampler *sampler, uint64_t *state, const GenerateText *text,
                   const float *logits) {
    SamplerCandidate *heap = sampler->candidates;
    int n = gather(sampler, text, logits), left;
    double sum;
    if (n < 0) return -1;
    for (int i = n / 2 - 1; i >= 0; i--) sink(heap, n, i);
    const SamplerCandidate first = heap[0];
    if (sampler->options.temperature == 0) return first.token;
    int kept = limit(sampler, n, first.logit, &sum);
    double rest = sampler_draw(state) * sum;
    if (kept < n) { /* taken out: the i-th likeliest lies i from the end */
        for (int i = 0; i < kept; i++) {
            rest -= sampler->weights[i];
            if (rest < 0) return heap[n - 1 - i].token;
        }
        return first.token; /* rounding ate the last of it */
    }
    for (left = n; left > 0;) {
        SamplerCandidate next = pop(heap, &left);
        rest -= exp((next.logit - first.logit) / sampler->options.temperature);
        if (rest < 0) return next.token;
    }
    return first.token;
}
