#include "runtime/islands/outer_step.h"

#include "runtime/cpu/blocks.h"

#include <math.h>

enum { BLOCK = 4096 }; /* numbers at a time: sums are over blocks, in their order */

void outer_deltas(const float *weights, const float *base, int64_t n, uint16_t *out) {
    float room[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < count; i++) room[i] = weights[at + i] - base[at + i];
        weights_store(DTYPE_BF16, room, out + at, count);
    }
}

void outer_move(float *weights, const uint16_t *moved, int64_t n) {
    float room[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        weights_load(DTYPE_BF16, moved, at, room, count);
        for (int64_t i = 0; i < count; i++) weights[at + i] += room[i];
    }
}

/* Sums over offers of weights or, in bf16, of their distances from w. */
static void add_offer(const OuterOffer *offer, const float *weights, int64_t at, int64_t count,
                      double *sums) {
    float room[BLOCK];
    if (offer->weights) {
        for (int64_t i = 0; i < count; i++) sums[i] += (double)offer->weights[at + i];
        return;
    }
    weights_load(DTYPE_BF16, offer->deltas, at, room, count);
    for (int64_t i = 0; i < count; i++) sums[i] += (double)weights[at + i] + (double)room[i];
}

/* One block; returns the sum of delta's squares. */
static double step_block(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t at,
                         int64_t count, float *weights, float *momentum, uint16_t *out_moved) {
    double sums[BLOCK], squares = 0;
    float next[BLOCK];
    for (int64_t i = 0; i < count; i++) sums[i] = -0.0; /* x - 0 is x, also where x is -0 */
    for (int i = 0; i < n_offers; i++) add_offer(&offers[i], weights, at, count, sums);
    for (int64_t i = 0; i < count; i++) {
        const double w = (double)weights[at + i], mean = sums[i] / n_offers, delta = w - mean;
        const double v = rule->momentum * (double)momentum[at + i] + delta;
        const double moved = (1 - rule->lr) * delta - rule->lr * rule->momentum * v;
        next[i] = (float)(moved == 0 ? mean : mean + moved);
        momentum[at + i] = (float)v;
        squares += delta * delta;
    }
    if (out_moved) {
        outer_deltas(next, weights + at, count, out_moved + at);
        outer_move(weights + at, out_moved + at, count);
        return squares;
    }
    for (int64_t i = 0; i < count; i++) weights[at + i] = next[i];
    return squares;
}

double outer_step(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t n,
                  float *weights, float *momentum, uint16_t *out_moved) {
    enum { GROUP = 256 }; /* blocks whose sums are kept at a time */
    double squares = 0;
    for (int64_t first = 0; first < n; first += (int64_t)GROUP * BLOCK) {
        double parts[GROUP] = {0};
        const int64_t left = (n - first + BLOCK - 1) / BLOCK;
        const int n_blocks = left < GROUP ? (int)left : GROUP;
#pragma omp parallel for schedule(static)
        for (int b = 0; b < n_blocks; b++) {
            const int64_t at = first + (int64_t)b * BLOCK;
            parts[b] = step_block(rule, offers, n_offers, at, n - at < BLOCK ? n - at : BLOCK,
                                  weights, momentum, out_moved);
        }
        for (int b = 0; b < n_blocks; b++) squares += parts[b];
    }
    return sqrt(squares);
}
