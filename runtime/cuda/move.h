/* Moving memory on the device: index maps, and launches that copy rows between pitches. */
#ifndef RUNTIME_CUDA_MOVE_H
#define RUNTIME_CUDA_MOVE_H

#include "runtime/cuda/command.h"
#include "runtime/cuda/kernels/args.h"

/* Numbers that kernels divide and count with stay below. */
#define MOVE_MAX_COUNT (INT64_C(1) << 31)

/* n / divisor for n < 2^31, divisor >= 1. */
FastDivisor fast_divisor(int64_t divisor);
/* Adds a dimension, slower than those already there. Sizes of 1 are left out. */
void index_map_add(IndexMap *map, int64_t size, int64_t stride);

/* The widest unit (16, 8, 4 or 2 bytes) that divides all amounts of bytes. */
int move_unit(const int64_t *bytes, int count);
/* 0, 1, 2, 3 for units of 2, 4, 8, 16 bytes: kernels come in this order. */
int move_unit_log(int unit);

/* Rows of `width` bytes, `n_rows` in each of `n_parts`: out[p out_part + r out_row + i] =
 * in[p in_part + r in_row + i] where p width + i < limit; beyond, `fill` is written again and again
 * or, with cut, nothing. All in bytes. */
typedef struct MoveRows {
    const void *in;
    void *out;
    int64_t n_parts, n_rows, width, limit;
    int64_t in_part, in_row, out_part, out_row;
    bool cut;
    uint32_t fill; /* 0 where an element has 16 bits */
} MoveRows;

/* False: more units than MOVE_MAX_COUNT. Arguments are allocated in `arena`. */
bool move_rows_launch(const MoveRows *move, Arena *arena, LaunchCommand *out);

#endif
