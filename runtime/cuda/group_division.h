/* How kernels of attention divide a row by its group. */
#ifndef RUNTIME_CUDA_GROUP_DIVISION_H
#define RUNTIME_CUDA_GROUP_DIVISION_H

#include "runtime/cuda/kernels/args_attention.h"

/* For all rows < 2^31: row / group = (row * factor >> 32) >> shift   (Granlund & Montgomery 1994).
 * Not for group 1, which needs no division. */
static inline void set_group_division(AttentionSizes *sizes) {
    uint32_t group = (uint32_t)sizes->group, bits = 0;
    if (group <= 1) return;
    while (1u << bits < group) bits++;
    sizes->group_factor = (uint32_t)(((1ull << (31 + bits)) + group - 1) / group);
    sizes->group_shift = bits - 1;
}

#endif
