/* Of test_islands: the outer step against its definition in f64, and parts of a model. */
#ifndef TESTS_UNIT_OUTER_STEP_CHECKS_H
#define TESTS_UNIT_OUTER_STEP_CHECKS_H

#include "runtime/islands/outer_parts.h"
#include "runtime/islands/outer_step.h"
#include "tests/unit/check.h"
#include "tests/unit/message_noise.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* --- the outer step --- */

enum { N = 9001, ROUNDS = 4, MOST_ISLANDS = 3 };

/* Uniform in (-1, 1). */
static float next_float(uint32_t *random) {
    return (float)next_random(random) / (float)(1 << 23) - 1;
}

typedef struct Reference {
    double w[N], v[N], squares;
} Reference;

/* As torch.optim.SGD(lr, momentum, nesterov=True) does it, of the gradient w - mean. */
static void step_reference(Reference *r, const OuterRule *rule, const float *const *own, int n) {
    r->squares = 0;
    for (int i = 0; i < N; i++) {
        double mean = 0;
        for (int k = 0; k < n; k++) mean += (double)own[k][i] / n;
        const double g = r->w[i] - mean;
        r->v[i] = rule->momentum * r->v[i] + g;
        r->w[i] -= rule->lr * (g + rule->momentum * r->v[i]);
        r->squares += g * g;
    }
}

/* nf4: the step is of what the offers say, exactly; what all have lags behind it by a residual that
 * does not grow. bf16 has 8 bits: each delta and each move is off by 2^-9 of some 0.1 to 0.3. */
static void check_rule(const char *name, OuterRule rule, DType dtype) {
    static Reference reference;
    static float weights[N], momentum[N], own[MOST_ISLANDS][N], other[N];
    static uint16_t deltas[MOST_ISLANDS][N], moved[N];
    static float residual[N], said[MOST_ISLANDS][N];
    const bool sends = dtype != DTYPE_F32, is_nf4 = dtype == DTYPE_NF4;
    const OuterState state = {weights, momentum, dtype, moved, is_nf4 ? residual : NULL};
    uint32_t random = 5;
    check_begin(name);
    memset(momentum, 0, sizeof momentum);
    memset(residual, 0, sizeof residual);
    memset(&reference, 0, sizeof reference);
    for (int i = 0; i < N; i++) reference.w[i] = weights[i] = other[i] = next_float(&random);
    for (int round = 0; round < ROUNDS; round++) {
        const float *all[MOST_ISLANDS];
        OuterOffer offers[MOST_ISLANDS];
        for (int k = 0; k < MOST_ISLANDS; k++) {
            for (int i = 0; i < N; i++) own[k][i] = weights[i] + 0.1f * next_float(&random);
            if (sends) outer_deltas(dtype, own[k], weights, N, deltas[k]);
            memcpy(said[k], weights, sizeof said[k]);
            if (is_nf4) outer_move(dtype, said[k], deltas[k], N);
            all[k] = is_nf4 ? said[k] : own[k];
            offers[k] = sends ? (OuterOffer){.deltas = deltas[k]} : (OuterOffer){.weights = own[k]};
        }
        for (int i = 0; i < N && is_nf4; i++) reference.w[i] = (double)weights[i];
        step_reference(&reference, &rule, all, MOST_ISLANDS);
        for (int i = 0; i < N && is_nf4; i++) reference.w[i] += (double)residual[i];
        double norm = outer_step(&rule, offers, MOST_ISLANDS, N, &state);
        const double most = dtype == DTYPE_BF16 ? 2e-3 : 1e-6;
        CHECK(fabs(norm - sqrt(reference.squares)) < (dtype == DTYPE_BF16 ? 1e-2 : 1e-5) * norm,
              "norm %.9g, %.9g", norm, sqrt(reference.squares));
        for (int i = 0; i < N; i++) {
            const double w = (double)weights[i] + (double)residual[i];
            CHECK(fabs(w - reference.w[i]) < most * (round + 1),
                  "round %d: weight %d is %.9g, not %.9g", round, i, w, reference.w[i]);
            CHECK(fabsf(residual[i]) < 0.1f, "round %d: %g is owed", round, (double)residual[i]);
        }
        if (!sends) continue;
        outer_move(dtype, other, moved, N);
        CHECK(memcmp(other, weights, sizeof weights) == 0, "another island has other bits");
    }
}

/* Of one island the mean is what it has, whatever that is. */
static void check_mean(void) {
    static const float TO[] = {1e-30f, -0.0f, 3e-39f, 1, 65504, -1e-12f};
    float weights[] = {1, 0, 1e30f, -1e-20f, 1e-8f, 7}, momentum[6] = {0};
    const OuterRule rule = {1, 0};
    check_begin("rate 1 without momentum: the mean, to the bit");
    outer_step(&rule, &(OuterOffer){.weights = TO}, 1, 6,
               &(OuterState){.weights = weights, .momentum = momentum});
    CHECK(memcmp(weights, TO, sizeof TO) == 0, "%g %g %g %g %g %g", (double)weights[0],
          (double)weights[1], (double)weights[2], (double)weights[3], (double)weights[4],
          (double)weights[5]);
}

static void check_threads(void) {
    enum { LONG = 3000000 };
    float *weights[2], *momentum = calloc(LONG, sizeof(float)), *own = malloc(LONG * sizeof(float));
    double norms[2];
    const int before = omp_get_max_threads();
    check_begin("any number of threads: the same bits");
    uint32_t random = 9;
    for (int i = 0; i < LONG; i++) own[i] = next_float(&random);
    for (int t = 0; t < 2; t++) {
        weights[t] = calloc(LONG, sizeof(float));
        memset(momentum, 0, LONG * sizeof(float));
        omp_set_num_threads(t ? 3 : 1);
        norms[t] = outer_step(&(OuterRule){0.7, 0.9}, &(OuterOffer){.weights = own}, 1, LONG,
                              &(OuterState){.weights = weights[t], .momentum = momentum});
    }
    omp_set_num_threads(before);
    CHECK(norms[0] == norms[1], "norms %.17g, %.17g", norms[0], norms[1]);
    CHECK(memcmp(weights[0], weights[1], LONG * sizeof(float)) == 0, "other weights");
    for (int t = 0; t < 2; t++) free(weights[t]);
    free(momentum);
    free(own);
}

/* --- parts --- */

/* Each meets once in `every` steps, never two after the same, and all at the end. */
static void check_turns(void) {
    check_begin("parts take turns");
    for (int every = 1; every <= 12; every++) {
        for (int n_parts = 1; n_parts <= every; n_parts++) {
            const OuterTurns turns = {.every = every, .n_steps = 3 * every + 1, .n_parts = n_parts};
            int n_met[OUTER_MOST_PARTS] = {0};
            for (int step = 0; step <= 3 * every; step++) {
                int n = 0;
                for (int p = 0; p < n_parts; p++) {
                    const bool due = outer_part_is_due(&turns, p, step);
                    n_met[p] += due;
                    n += due;
                }
                CHECK(n <= 1 && (step % every || n == (step > 0)), "%d of %d parts in %d: step %d",
                      n, n_parts, every, step);
            }
            for (int p = 0; p < n_parts; p++) {
                CHECK(n_met[p] == 3, "part %d of %d in %d: %d times", p, n_parts, every, n_met[p]);
                CHECK(outer_part_is_due(&turns, p, turns.n_steps), "not at the end");
            }
        }
    }
}

static void check_division(void) {
    static const OuterItem EVEN[] = {{0, 3}, {0, 4}, {1, 7},  {2, 7},  {3, 7}, {4, 7},
                                     {5, 7}, {6, 7}, {-1, 5}, {-1, 9}, {5, 0}};
    static const int WANTED[] = {0, 0, 1, 2, 0, 1, 2, 0, 2, 1, 2};
    static const OuterItem MIXED[] = {{0, 1}, {1, 9}, {2, 1}, {3, 9}, {4, 1}, {5, 9}};
    int parts[11], sizes[2] = {0};
    check_begin("parts are strided over depth, and even");
    CHECK(outer_parts_divide(EVEN, 11, 3, parts) == 9, "units");
    for (int i = 0; i < 11; i++) CHECK(parts[i] == WANTED[i], "item %d is in part %d", i, parts[i]);
    outer_parts_divide(MIXED, 6, 2, parts); /* dense blocks and mixtures by turns */
    for (int i = 0; i < 6; i++) sizes[parts[i]] += (int)MIXED[i].n_values;
    CHECK(abs(sizes[0] - sizes[1]) <= 9, "%d and %d numbers", sizes[0], sizes[1]);
    outer_parts_divide(EVEN, 11, 1, parts);
    for (int i = 0; i < 11; i++) CHECK(parts[i] == 0, "of one part");

    check_begin("what is merged");
    static const float MET[] = {1e30f, -0.0f, 3, 0.1f}, OWN[] = {1, 5, -0.0f, 0.1f};
    float own[4];
    memcpy(own, OWN, sizeof own);
    outer_mix(1, MET, 4, own);
    CHECK(memcmp(own, OWN, sizeof own) == 0, "share 1: not one's own");
    outer_mix(0.25, MET, 4, own);
    CHECK(own[0] == (float)(0.25 + 0.75 * (double)1e30f) && own[1] == 1.25f && own[2] == 2.25f &&
              own[3] == 0.1f,
          "share 0.25: %g %g %g %g", (double)own[0], (double)own[1], (double)own[2],
          (double)own[3]);
    outer_mix(0, MET, 4, own);
    CHECK(memcmp(own, MET, sizeof own) == 0, "share 0: not the others'");
}

#endif
