#include "frontend/commands/score_metrics.h"

#include "ir/base/memory.h"

#include <math.h>
#include <stdlib.h>

typedef struct Ranked {
    double score, beside;
    int64_t at;
} Ranked;

static int by_score(const void *left, const void *right) {
    const Ranked *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static Ranked *sort(const float *scores, const float *beside, int64_t n, int64_t stride) {
    Ranked *sorted = memory_alloc((size_t)(n + 1) * sizeof(*sorted));
    for (int64_t i = 0; i < n; i++) {
        sorted[i] = (Ranked){(double)scores[i * stride], (double)beside[i * stride], i};
    }
    qsort(sorted, (size_t)n, sizeof(*sorted), by_score);
    return sorted;
}

/* Where those that are equal to sorted[i] end. */
static int64_t end_of_equals(const Ranked *sorted, int64_t n, int64_t i) {
    int64_t end = i + 1;
    while (end < n && sorted[end].score == sorted[i].score) end++;
    return end;
}

double score_average_precision(const float *scores, const float *given, int64_t n, int64_t stride) {
    Ranked *sorted = sort(scores, given, n, stride);
    double right = 0, sum = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        double more = 0;
        end = end_of_equals(sorted, n, i);
        for (int64_t k = i; k < end; k++) more += sorted[k].beside;
        right += more;
        sum += more * right / (double)end;
    }
    free(sorted);
    return right > 0 ? sum / right : NAN;
}

static double correlate(const double *a, const double *b, int64_t n) {
    double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < n; i++) {
        mean_a += a[i] / (double)n;
        mean_b += b[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        aa += (a[i] - mean_a) * (a[i] - mean_a);
        bb += (b[i] - mean_b) * (b[i] - mean_b);
        ab += (a[i] - mean_a) * (b[i] - mean_b);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa) / sqrt(bb) : NAN;
}

double score_pearson(const float *told, const float *given, int64_t n, int64_t stride) {
    double *both = memory_alloc((size_t)(2 * n + 1) * sizeof(*both));
    for (int64_t i = 0; i < n; i++) {
        both[i] = (double)told[i * stride];
        both[n + i] = (double)given[i * stride];
    }
    double found = correlate(both, both + n, n);
    free(both);
    return found;
}

static void find_ranks(const float *numbers, int64_t n, int64_t stride, double *ranks) {
    Ranked *sorted = sort(numbers, numbers, n, stride);
    for (int64_t i = 0, end; i < n; i = end) {
        end = end_of_equals(sorted, n, i);
        for (int64_t k = i; k < end; k++) ranks[sorted[k].at] = (double)(i + end - 1) / 2;
    }
    free(sorted);
}

double score_spearman(const float *told, const float *given, int64_t n, int64_t stride) {
    double *both = memory_alloc((size_t)(2 * n + 1) * sizeof(*both));
    find_ranks(told, n, stride, both);
    find_ranks(given, n, stride, both + n);
    double found = correlate(both, both + n, n);
    free(both);
    return found;
}

double score_mean_error(const float *told, const float *given, int64_t n, int64_t stride,
                        int power) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double apart = fabs((double)told[i * stride] - (double)given[i * stride]);
        sum += power == 2 ? apart * apart : apart;
    }
    return n > 0 ? sum / (double)n : NAN;
}

double score_r2(const float *told, const float *given, int64_t n, int64_t stride) {
    double mean = 0, spread = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)given[i * stride] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double apart = (double)given[i * stride] - mean;
        spread += apart * apart / (double)n;
    }
    return spread > 0 ? 1 - score_mean_error(told, given, n, stride, 2) / spread : NAN;
}
