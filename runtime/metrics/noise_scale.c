#include "runtime/metrics/noise_scale.h"

#include <math.h>

int noise_small_batch(int batch) {
    int small = 1;
    for (int part = 2; (int64_t)part * part <= batch; part++) {
        if (batch % part == 0) small = part;
    }
    return small;
}

bool noise_scale_add(NoiseScale *scale, int small, double small_square, int large,
                     double large_square) {
    if (small >= large || !isfinite(small_square) || !isfinite(large_square)) return false;
    if (!(small_square > 0 && large_square > 0)) return false;
    const double b = small, B = large;
    const double trace = (small_square - large_square) / (1 / b - 1 / B);
    const double signal = (B * large_square - b * small_square) / (B - b);
    const double added[N_NOISE_SUMS] = {[NOISE_WEIGHT] = 1,
                                        [NOISE_SQUARED_WEIGHT] = 1,
                                        [NOISE_TRACE] = trace,
                                        [NOISE_SIGNAL] = signal,
                                        [NOISE_TRACE_TRACE] = trace * trace,
                                        [NOISE_SIGNAL_SIGNAL] = signal * signal,
                                        [NOISE_TRACE_SIGNAL] = trace * signal};
    scale->sums[NOISE_SQUARED_WEIGHT] *= NOISE_KEPT;
    for (int i = 0; i < N_NOISE_SUMS; i++) {
        scale->sums[i] = scale->sums[i] * NOISE_KEPT + added[i];
    }
    scale->n++;
    return true;
}

double noise_scale_samples(const NoiseScale *scale) {
    const double trace = scale->sums[NOISE_TRACE], signal = scale->sums[NOISE_SIGNAL];
    return trace > 0 && signal > 0 ? trace / signal : 0;
}

/* Of a ratio of means, to the first order; of measurements with weights there are, as far as errors
 * go, the square of the weights' sum over the sum of their squares. */
double noise_scale_error(const NoiseScale *scale) {
    const double *sums = scale->sums, weight = sums[NOISE_WEIGHT];
    const double n = weight * weight / sums[NOISE_SQUARED_WEIGHT];
    if (noise_scale_samples(scale) == 0 || !(n > 1.5)) return 0;
    const double trace = sums[NOISE_TRACE] / weight, signal = sums[NOISE_SIGNAL] / weight;
    const double square = sums[NOISE_TRACE_TRACE] / weight / (trace * trace) +
                          sums[NOISE_SIGNAL_SIGNAL] / weight / (signal * signal) -
                          2 * sums[NOISE_TRACE_SIGNAL] / weight / (trace * signal);
    return sqrt(fmax(square, 0) / (n - 1));
}
