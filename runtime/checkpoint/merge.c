#include "runtime/checkpoint/merge.h"

#include "ir/base/memory.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/cpu/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Vectors of about the same direction: the arc is a line (as mergekit has it). */
static const double PARALLEL = 0.9995;

bool merge_needs_base(MergeMethod method) {
    return method == MERGE_TASK || method == MERGE_TIES || method == MERGE_DARE;
}

static double sum_shares(const MergeRule *rule) {
    double sum = 0;
    for (int f = 0; f < rule->n; f++) sum += rule->shares[f];
    return sum;
}

static int64_t block_length(int64_t count, int64_t at) {
    return count - at < TENSOR_BLOCK ? count - at : TENSOR_BLOCK;
}

static void find_arc(const MergeRule *rule, MergeTensor *tensor) {
    const int64_t count = tensor_count(tensor->infos[0]);
    float a[TENSOR_BLOCK], b[TENSOR_BLOCK];
    double dot = 0, squares[2] = {0};
    for (int64_t at = 0; at < count; at += TENSOR_BLOCK) {
        const int64_t n = block_length(count, at);
        tensor_load(tensor->infos[0], at, n, a);
        tensor_load(tensor->infos[1], at, n, b);
        for (int64_t i = 0; i < n; i++) {
            dot += (double)a[i] * (double)b[i];
            squares[0] += (double)a[i] * (double)a[i];
            squares[1] += (double)b[i] * (double)b[i];
        }
    }
    const double t = rule->shares[1] / sum_shares(rule);
    const double cosine = dot / sqrt(squares[0] * squares[1]);
    tensor->arc[0] = 1 - t;
    tensor->arc[1] = t;
    if (!(fabs(cosine) <= PARALLEL)) return; /* or one is zero */
    const double angle = acos(cosine);
    tensor->arc[0] = sin((1 - t) * angle) / sin(angle);
    tensor->arc[1] = sin(t * angle) / sin(angle);
}

/* Bits of the absolute value of tensor f less the base, which are in the order of the values. */
static void load_sizes(const MergeTensor *tensor, int f, int64_t at, int64_t n, uint32_t *out) {
    float own[TENSOR_BLOCK], base[TENSOR_BLOCK];
    tensor_load(tensor->infos[f], at, n, own);
    tensor_load(tensor->base, at, n, base);
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(own[i] - base[i]);
        memcpy(&out[i], &size, sizeof(size));
    }
}

/* The least of the `kept` largest absolute differences: by the upper and then the lower half of
 * their bits. */
static float find_least(const MergeTensor *tensor, int f, int64_t kept) {
    enum { BINS = 1 << 16 };
    const int64_t count = tensor_count(tensor->infos[f]);
    int64_t *bins = memory_zeroed(BINS, sizeof(*bins)), rest = kept;
    uint32_t sizes[TENSOR_BLOCK], upper = 0, bits = 0;
    for (int half = 0; half < 2; half++) {
        memset(bins, 0, BINS * sizeof(*bins));
        for (int64_t at = 0; at < count; at += TENSOR_BLOCK) {
            const int64_t n = block_length(count, at);
            load_sizes(tensor, f, at, n, sizes);
            for (int64_t i = 0; i < n; i++) {
                if (half == 0) {
                    bins[sizes[i] >> 16]++;
                } else if (sizes[i] >> 16 == upper) {
                    bins[sizes[i] & (BINS - 1)]++;
                }
            }
        }
        uint32_t bin = BINS - 1;
        while (bin > 0 && bins[bin] < rest) rest -= bins[bin--];
        if (half == 0) upper = bin;
        bits = upper << 16 | bin;
    }
    float least;
    memcpy(&least, &bits, sizeof(least));
    free(bins);
    return least;
}

void merge_prepare(const MergeRule *rule, MergeTensor *tensor) {
    if (rule->method == MERGE_SLERP) find_arc(rule, tensor);
    if (rule->method != MERGE_TIES) return;
    const int64_t count = tensor_count(tensor->infos[0]);
    const int64_t kept = (int64_t)ceil(rule->density * (double)count);
    for (int f = 0; f < rule->n; f++) tensor->least[f] = find_least(tensor, f, kept);
}

/* Each number's sign and the mean of those that have it. */
static void add_ties(const MergeRule *rule, const MergeTensor *tensor, int64_t at, int64_t n,
                     double *out) {
    float own[TENSOR_BLOCK], base[TENSOR_BLOCK];
    double sums[TENSOR_BLOCK] = {0}, weights[TENSOR_BLOCK] = {0}, signs[TENSOR_BLOCK] = {0};
    tensor_load(tensor->base, at, n, base);
    for (int pass = 0; pass < 2; pass++) {
        for (int f = 0; f < rule->n; f++) {
            tensor_load(tensor->infos[f], at, n, own);
            for (int64_t i = 0; i < n; i++) {
                const float apart = own[i] - base[i];
                const double share = rule->shares[f];
                if (fabsf(apart) < tensor->least[f]) continue;
                if (pass == 0) {
                    signs[i] += share * (double)apart;
                } else if ((double)apart * signs[i] > 0) {
                    sums[i] += share * (double)apart;
                    weights[i] += share;
                }
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = (double)base[i] + (weights[i] > 0 ? rule->scale * sums[i] / weights[i] : 0);
    }
}

static void add_tasks(const MergeRule *rule, const MergeTensor *tensor, int64_t at, int64_t n,
                      double *out) {
    float own[TENSOR_BLOCK], base[TENSOR_BLOCK], draws[TENSOR_BLOCK];
    const bool drops = rule->method == MERGE_DARE;
    tensor_load(tensor->base, at, n, base);
    for (int64_t i = 0; i < n; i++) out[i] = (double)base[i];
    for (int f = 0; f < rule->n; f++) {
        const double share = rule->scale * rule->shares[f] / (drops ? rule->density : 1);
        const PhiloxStream stream = {
            .seed = rule->seed, .step = (uint64_t)f, .key = philox_key_of(tensor->infos[0]->name)};
        tensor_load(tensor->infos[f], at, n, own);
        if (drops) philox_uniform_run(&stream, (uint64_t)at, 1, n, draws);
        for (int64_t i = 0; i < n; i++) {
            if (drops && (double)draws[i] >= rule->density) continue;
            out[i] += share * ((double)own[i] - (double)base[i]);
        }
    }
}

void merge_block(const MergeRule *rule, const MergeTensor *tensor, int64_t at, int64_t n,
                 double *out) {
    float own[TENSOR_BLOCK];
    if (rule->method == MERGE_TIES) {
        add_ties(rule, tensor, at, n, out);
        return;
    }
    if (merge_needs_base(rule->method)) {
        add_tasks(rule, tensor, at, n, out);
        return;
    }
    const double sum = sum_shares(rule);
    for (int64_t i = 0; i < n; i++) out[i] = 0;
    for (int f = 0; f < rule->n; f++) {
        const bool arc = rule->method == MERGE_SLERP;
        const double share = arc ? tensor->arc[f] : rule->shares[f] / sum;
        tensor_load(tensor->infos[f], at, n, own);
        for (int64_t i = 0; i < n; i++) out[i] += share * (double)own[i];
    }
}
