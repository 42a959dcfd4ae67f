#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/halves.h"

enum { RUN = 1 << 20 }; /* elements that a thread takes at a time */

static int64_t run_length(int64_t n, int64_t at) {
    return n - at < RUN ? n - at : RUN;
}

void halves_split(const float *from, void *halves, int64_t n) {
    uint16_t *upper = halves, *lower = upper + n;
#pragma omp parallel for schedule(static) if (n > RUN)
    for (int64_t at = 0; at < n; at += RUN) {
        halves_store(from + at, upper + at, lower + at, run_length(n, at));
    }
}

void halves_join(const void *halves, int64_t n, int64_t at, float *out, int64_t count) {
    const uint16_t *upper = halves, *lower = upper + n;
    halves_load(upper + at, lower + at, out, count);
}

void halves_copy(DType dtype, const float *from, void *copy, int64_t n) {
#pragma omp parallel for schedule(static) if (n > RUN)
    for (int64_t at = 0; at < n; at += RUN) {
        copy_store(dtype, from + at, (uint16_t *)copy + at, run_length(n, at));
    }
}
