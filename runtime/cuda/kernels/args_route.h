/* Arguments of route.cu: choosing experts, tables of who goes where, rows there and back
 * (ir/ops/route.c says what the tables hold). */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_ROUTE_H
#define RUNTIME_CUDA_KERNELS_ARGS_ROUTE_H

#include "runtime/cuda/kernels/state.h"

/* scores [rows, n] -> chosen [rows, count]; of groups as runtime/cpu/route.h says, at most 32. */
typedef struct RouteTopArgs {
    int64_t rows;
    int32_t n, count;
    int32_t groups, kept, best;
    const float *scores;
    int32_t *chosen;
} RouteTopArgs;

/* take: x [rows, n] -> out [rows, count]; put: x [rows, count] -> out [rows, n]. */
typedef struct RouteTakeArgs {
    int64_t rows;
    int32_t n, count;
    const float *x;
    const int32_t *index; /* [rows, count] */
    float *out;
} RouteTakeArgs;

/* Experts `first` on are this rank's: `local` with padding, `valid` without. An expert's places
 * `from` on are slots 0 on. */
typedef struct RouteTablesArgs {
    int64_t batch, choices_each; /* seq x choices */
    int32_t experts, slots, from, first, local, valid;
    const int32_t *chosen;
    int32_t *slots_out, *tokens; /* [batch, seq, choices], [local, batch, slots] */
    float *counts;               /* [batch, experts] */
} RouteTablesArgs;
enum { ROUTE_THREADS = 256, ROUTE_EACH = 8 };

/* Rows of `model` numbers: of tokens [batch, seq, model], and of slots [local, batch, slots,
 * model].
 */
typedef struct RouteRowsArgs {
    int64_t batch, seq, model;
    int32_t choices, slots, first, local, valid;
    const int32_t *table; /* dispatch: tokens; combine, slot_dot: slots */
    const float *gates;   /* [batch, seq, choices]; NULL: 1 */
    const void *x;        /* dispatch: rows of tokens; else rows of slots */
    const void *y;        /* slot_dot: rows of tokens */
    void *out;
} RouteRowsArgs;
enum { ROUTE_ROW_WARPS = 8 };

#endif
