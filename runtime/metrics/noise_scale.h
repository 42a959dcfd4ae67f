/* The gradient noise scale: how large a batch is large enough.
 *
 * Gradients of single samples have a mean G and a covariance S; of a batch of B samples the squared
 * norm is |G|^2 + tr(S) / B in the mean. Of two batches' norms come unbiased estimates of both
 * (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1), and of many of these, each averaged by
 * itself, the simple noise scale tr(S) / |G|^2, in samples: a run with batches of B takes
 * 1 + B / scale times the fewest samples that any batch does, and 1 + scale / B times the fewest
 * steps (there, section 2.3).
 */
#ifndef RUNTIME_METRICS_NOISE_SCALE_H
#define RUNTIME_METRICS_NOISE_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/* Sums over measurements; the last one has weight 1, each before it NOISE_KEPT of the one behind:
 * the last 40 or so count. All zero: there are none. */
#define NOISE_KEPT 0.95
typedef enum NoiseSum {
    NOISE_WEIGHT,         /* of weights, */
    NOISE_SQUARED_WEIGHT, /* of their squares, */
    NOISE_TRACE,          /* and with weights of tr(S), */
    NOISE_SIGNAL,         /* of |G|^2 */
    NOISE_TRACE_TRACE,    /* and of products of these */
    NOISE_SIGNAL_SIGNAL,
    NOISE_TRACE_SIGNAL,
    N_NOISE_SUMS
} NoiseSum;
typedef struct NoiseScale {
    int64_t n; /* measurements */
    double sums[N_NOISE_SUMS];
} NoiseScale;

/* Of `batch` samples the largest part that divides it and is at most its root; below `batch`, where
 * that is 2 or more. A small part says more of tr(S), and one of several samples is less at the
 * mercy of a strange one. */
int noise_small_batch(int batch);

/* The squared norms of the gradients of two batches of these sizes, the smaller a part of the
 * larger. What is not finite, or of sizes that are alike, is left out: false. */
bool noise_scale_add(NoiseScale *scale, int small, double small_square, int large,
                     double large_square);
/* In samples; 0: the measurements do not say, there are none or gradients are all noise, or none.
 */
double noise_scale_samples(const NoiseScale *scale);
/* Its standard error beside itself, where it is known; 0: it is not. */
double noise_scale_error(const NoiseScale *scale);

#endif
