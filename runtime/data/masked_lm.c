#include "runtime/data/masked_lm.h"

#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"

static const double HIDDEN = 0.8, REPLACED = 0.9; /* up to there, of those chosen */
enum { MOST_DRAWS = 64 };

/* In [0, 1), of 53 bits. */
static double unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

static bool is_kept(const MaskedLm *masked, int32_t token) {
    return token == masked->mask || (masked->kept && masked->kept[token]);
}

/* Any token but those kept; `own` where draws find none. */
static int32_t draw(const MaskedLm *masked, uint64_t bits, int32_t own) {
    for (int i = 0; i < MOST_DRAWS; i++) {
        bits = mix_bits(bits);
        int32_t token = (int32_t)(unit(bits) * masked->vocab);
        if (!is_kept(masked, token)) return token;
    }
    return own;
}

void masked_lm_apply(const MaskedLm *masked, uint64_t key, int32_t *tokens, int32_t *labels,
                     int64_t n) {
    if (masked->rate <= 0) return;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = mix_bits(mix_bits(key) ^ (uint64_t)i);
        int32_t own = tokens[i];
        labels[i] = DATASET_NO_LABEL;
        if (is_kept(masked, own) || unit(bits) >= masked->rate) continue;
        labels[i] = own;
        double what = unit(mix_bits(bits));
        if (what < HIDDEN) {
            tokens[i] = masked->mask;
        } else if (what < REPLACED) {
            tokens[i] = draw(masked, bits ^ key, own);
        }
    }
}
