#include "runtime/data/diffusion.h"

#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / the golden ratio */

/* In [0, 1), of 53 bits. */
static double unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

double diffusion_share(uint64_t seed, int64_t number, int draw, int n_draws) {
    uint64_t bits = mix_bits(seed ^ GOLDEN) + (uint64_t)number * GOLDEN;
    bits += (uint64_t)draw * (UINT64_MAX / (uint64_t)n_draws); /* all of it goes around */
    return DIFFUSION_LEAST + (1 - DIFFUSION_LEAST) * unit(bits);
}

int64_t diffusion_apply(const Diffusion *how, uint64_t key, double share, bool first_counts,
                        int32_t *tokens, int32_t *labels, float *weights, int64_t n) {
    const float weight = (float)(1 / share);
    const int64_t ahead = how->shifted ? 1 : 0;
    bool counts = first_counts && !how->shifted;
    int64_t n_labels = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t own = tokens[i];
        const bool next_counts = labels[i] >= 0; /* of token i + 1: read before it is overwritten */
        const bool is_kept = own == how->mask || (how->kept && how->kept[own]);
        const bool is_label = counts && !is_kept;
        const bool is_hidden = is_label && unit(mix_bits(mix_bits(key) ^ (uint64_t)i)) < share;
        if (i >= ahead) {
            labels[i - ahead] = is_label ? own : DATASET_NO_LABEL;
            weights[i - ahead] = is_hidden ? weight : 0;
        }
        if (is_hidden) tokens[i] = how->mask;
        n_labels += is_label;
        counts = next_counts;
    }
    if (how->shifted) {
        labels[n - 1] = DATASET_NO_LABEL;
        weights[n - 1] = 0;
    }
    return n_labels;
}
