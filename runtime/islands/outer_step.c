#include "runtime/islands/outer_step.h"

#include "ir/blocks.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/vec.h"

#include <math.h>

enum { BLOCK = 4096 }; /* numbers at a time: sums are over blocks, in their order */

size_t outer_bytes(DType dtype, int64_t n) {
    const size_t count = (size_t)n;
    if (dtype == DTYPE_NF4) return (count + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK * NF4_BLOCK_BYTES;
    return count * (dtype == DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float));
}

/* Whole blocks: numbers behind the last are zeros. */
static int64_t fill_up(int64_t count) {
    return (count + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK * WEIGHT_BLOCK;
}

/* A block's distances, of `count` numbers. */
static void load(DType dtype, const void *deltas, int64_t at, int64_t count, float room[BLOCK]) {
    const char *from = (const char *)deltas + outer_bytes(dtype, at);
    weights_load(dtype, from, 0, room, dtype == DTYPE_NF4 ? fill_up(count) : count);
}

void outer_deltas(DType dtype, const float *weights, const float *base, int64_t n, void *out) {
    float room[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        const int64_t all = dtype == DTYPE_NF4 ? fill_up(count) : count;
        for (int64_t i = 0; i < count; i++) room[i] = weights[at + i] - base[at + i];
        for (int64_t i = count; i < all; i++) room[i] = 0;
        weights_store(dtype, room, (char *)out + outer_bytes(dtype, at), all);
    }
}

void outer_move(DType dtype, float *weights, const void *moved, int64_t n) {
    float room[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        load(dtype, moved, at, count, room);
        for (int64_t i = 0; i < count; i++) weights[at + i] += room[i];
    }
}

/* Sums over offers of weights or of their distances from w. */
static void add_offer(DType dtype, const OuterOffer *offer, const float *weights, int64_t at,
                      int64_t count, double *sums) {
    float room[BLOCK];
    if (offer->weights) {
        for (int64_t i = 0; i < count; i++) sums[i] += (double)offer->weights[at + i];
        return;
    }
    load(dtype, offer->deltas, at, count, room);
    for (int64_t i = 0; i < count; i++) sums[i] += (double)weights[at + i] + (double)room[i];
}

/* Exponents of all ones: infinite, or no number. */
static bool are_finite(const float *x, int64_t count) {
    int n_wrong = 0;
#pragma omp simd reduction(+ : n_wrong)
    for (int64_t i = 0; i < count; i++) n_wrong += (vec_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return n_wrong == 0;
}

bool outer_offer_is_finite(DType dtype, const OuterOffer *offer, int64_t n) {
    bool good = true;
#pragma omp parallel for schedule(static) reduction(&& : good)
    for (int64_t at = 0; at < n; at += BLOCK) {
        float room[BLOCK];
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        if (!offer->weights) load(dtype, offer->deltas, at, count, room);
        good = good && are_finite(offer->weights ? offer->weights + at : room, count);
    }
    return good;
}

/* w becomes what all come to that are told how far it moves to next[count]. */
static void move_block(const OuterState *state, int64_t at, int64_t count, float *next) {
    float *weights = state->weights + at, *residual = state->residual ? state->residual + at : NULL;
    char *moved = (char *)state->moved + outer_bytes(state->dtype, at);
    for (int64_t i = 0; i < count && residual; i++) next[i] += residual[i];
    outer_deltas(state->dtype, next, weights, count, moved);
    outer_move(state->dtype, weights, moved, count);
    for (int64_t i = 0; i < count && residual; i++) residual[i] = next[i] - weights[i];
}

/* One block; returns the sum of delta's squares. */
static double step_block(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t at,
                         int64_t count, const OuterState *state) {
    float *weights = state->weights, *momentum = state->momentum;
    double sums[BLOCK], squares = 0;
    float next[BLOCK];
    for (int64_t i = 0; i < count; i++) sums[i] = -0.0; /* x - 0 is x, also where x is -0 */
    for (int i = 0; i < n_offers; i++)
        add_offer(state->dtype, &offers[i], weights, at, count, sums);
    for (int64_t i = 0; i < count; i++) {
        const double w = (double)weights[at + i], mean = sums[i] / n_offers, delta = w - mean;
        const double v = rule->momentum * (double)momentum[at + i] + delta;
        const double moved = (1 - rule->lr) * delta - rule->lr * rule->momentum * v;
        next[i] = (float)(moved == 0 ? mean : mean + moved);
        momentum[at + i] = (float)v;
        squares += delta * delta;
    }
    if (state->dtype != DTYPE_F32) {
        move_block(state, at, count, next);
        return squares;
    }
    for (int64_t i = 0; i < count; i++) weights[at + i] = next[i];
    return squares;
}

double outer_step(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t n,
                  const OuterState *state) {
    enum { GROUP = 256 }; /* blocks whose sums are kept at a time */
    double squares = 0;
    for (int64_t first = 0; first < n; first += (int64_t)GROUP * BLOCK) {
        double parts[GROUP] = {0};
        const int64_t left = (n - first + BLOCK - 1) / BLOCK;
        const int n_blocks = left < GROUP ? (int)left : GROUP;
#pragma omp parallel for schedule(static)
        for (int b = 0; b < n_blocks; b++) {
            const int64_t at = first + (int64_t)b * BLOCK;
            parts[b] =
                step_block(rule, offers, n_offers, at, n - at < BLOCK ? n - at : BLOCK, state);
        }
        for (int b = 0; b < n_blocks; b++) squares += parts[b];
    }
    return sqrt(squares);
}
