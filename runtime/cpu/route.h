/* Sparse mixtures of experts: choice, tables of who goes where, rows there and back.
 *
 * ir/ops/route.c says what the tables hold. A rank has experts first .. first + local - 1, of which
 * `valid` exist; the others are padding and stay empty. Results do not depend on the number of
 * threads. Numbers in tables that point nowhere are passed by: plans are not trusted.
 */
#ifndef RUNTIME_CPU_ROUTE_H
#define RUNTIME_CPU_ROUTE_H

#include "ir/ops/route.h"

#include <stdbool.h>
#include <stdint.h>

/* chosen[row, j] = the number of the j-th greatest of scores [row, n]: of equal ones the lesser
 * number first; not-a-number is less than all. Of several groups, equal runs of the row, only those
 * count whose `best` greatest numbers sum to most, `kept` of them by the same order. */
void route_top(int64_t rows, int64_t n, int64_t count, RouteGroups groups, const float *scores,
               int32_t *chosen);

/* out[row, j] = x[row, index[row, j]], x [rows, n]; 0 where the index is not within n. */
void route_take(int64_t rows, int64_t n, int64_t count, const float *x, const int32_t *index,
                float *out);

/* out [rows, n] = 0; out[row, index[row, j]] += y[row, j], in the order of j. */
void route_put(int64_t rows, int64_t n, int64_t count, const float *y, const int32_t *index,
               float *out);

typedef struct RouteShape {
    int64_t batch, seq, choices;
    int64_t experts, slots;      /* of all ranks; an expert's capacity in a sequence */
    int64_t from;                /* place in an expert's capacity that is slot 0: a run of it */
    int64_t first, local, valid; /* experts of this rank */
    int64_t model;               /* numbers of a row */
    DType dtype;                 /* of rows */
} RouteShape;

/* chosen, slots [batch, seq, choices]; tokens [local, batch, slots]; counts [batch, experts]. */
void route_tables(const RouteShape *shape, const int32_t *chosen, int32_t *slots, int32_t *tokens,
                  float *counts);

/* out [local, batch, slots, model] = gate x of the slot's token, x [batch, seq, model]; gates may
 * be NULL: 1. */
void route_dispatch(const RouteShape *shape, const void *x, const int32_t *tokens,
                    const float *gates, void *out);

/* out [batch, seq, model] = sum over choices of gate h, summed in f32 in their order. */
void route_combine(const RouteShape *shape, const void *h, const int32_t *slots, const float *gates,
                   void *out);

/* out [batch, seq, choices] = h of the slot times y of the token, summed over the row in f32. */
void route_slot_dot(const RouteShape *shape, const void *h, const int32_t *slots, const void *y,
                    float *out);

#endif
