/* Rows of what tensor cores multiply. */
#ifndef TESTS_EMULATE_ROW_H
#define TESTS_EMULATE_ROW_H

/* d[n] += a[k] * b[k][n], k < 16, where b's rows are `width` long, a multiple of 8;
 * d and b are aligned as EmulateRow. In vectors, which sanitizers look at once, not eight times. */
typedef float EmulateRow __attribute__((vector_size(32), may_alias));
static inline void emulate_add_product(float *d, const float *a, const float *b, int width, int n) {
    for (int i = 0; i < n; i += 8) {
        EmulateRow sum = *(const EmulateRow *)(d + i);
        for (int k = 0; k < 16; k++) sum += a[k] * *(const EmulateRow *)(b + k * width + i);
        *(EmulateRow *)(d + i) = sum;
    }
}

#endif
