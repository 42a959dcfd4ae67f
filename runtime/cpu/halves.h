/* Parameters in halves (ir/masters.h), and copies in 16 bits, from and to f32. */
#ifndef RUNTIME_CPU_HALVES_H
#define RUNTIME_CPU_HALVES_H

#include "ir/type.h"

/* n numbers as the halves of a parameter that has as many. */
void halves_split(const float *from, void *halves, int64_t n);
/* Numbers [at, at + count) of a parameter that has n. */
void halves_join(const void *halves, int64_t n, int64_t at, float *out, int64_t count);
/* A copy of n numbers, in bf16 as an upper half is. */
void halves_copy(DType dtype, const float *from, void *copy, int64_t n);

#endif
