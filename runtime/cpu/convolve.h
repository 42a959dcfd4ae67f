/* y[t] = sum over n of w[taps - 1 - n] x[t - n], for each channel by itself (ir/ops/convolve.c).
 *
 * x and y [batch, seq, channels] of f32, bf16 or f16; w [taps, channels] and its gradient f32;
 * places i32 [batch, seq], how far a position is from the beginning of its document, or NULL: all
 * is one. Sums are f32, weights' gradients of more than CONVOLVE_ROWS positions f64; they do not
 * depend on the number of threads.
 */
#ifndef RUNTIME_CPU_CONVOLVE_H
#define RUNTIME_CPU_CONVOLVE_H

#include "ir/type.h"

#include <stdint.h>

enum { CONVOLVE_MAX_TAPS = 8, CONVOLVE_ROWS = 256 };

typedef struct ConvolveShape {
    int64_t batch, seq, channels;
    int taps; /* <= CONVOLVE_MAX_TAPS */
    DType dtype;
    const int32_t *places;
} ConvolveShape;

void convolve_forward(const ConvolveShape *shape, const void *x, const float *w, void *y);

/* Of sequences that go on: cache [sequences, taps - 1, channels] has their last positions, of those
 * of rows [batch], and has them again after; positions [batch, seq] that are negative are none, nor
 * are those behind them. */
void convolve_cached(const ConvolveShape *shape, const void *x, const float *w, int64_t sequences,
                     const int32_t *rows, const int32_t *positions, void *cache, void *y);
void convolve_backward(const ConvolveShape *shape, const void *x, const float *w, const void *dy,
                       void *dx, float *dw);

#endif
