/* Hidden tokens (BERT's objective): how many, what stands in their place, what is left alone.
 *
 * Catches: labels where nothing is to be said; a label that is not the token that stood there;
 * shares other than 8, 1, 1 of 10; a choice that follows the place or is the same in every sample;
 * special tokens hidden or put in. */
#include "runtime/data/masked_lm.h"

#include "runtime/data/dataset.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { N = 512, N_SAMPLES = 400, VOCAB = 1000, MASK = 4, N_KEPT = 10 };

typedef struct Counts {
    double chosen, hidden, other, same;
    int at[N]; /* how often each place was chosen */
} Counts;

/* A token of any kind, special ones too. */
static int32_t token_at(int sample, int i) {
    return (sample * 131 + i * 7) % VOCAB;
}

static bool look_at(const MaskedLm *masked, int sample, Counts *counts) {
    int32_t tokens[N], labels[N];
    for (int i = 0; i < N; i++) {
        tokens[i] = token_at(sample, i);
        labels[i] = 999;
    }
    masked_lm_apply(masked, (uint64_t)sample, tokens, labels, N);
    for (int i = 0; i < N; i++) {
        int32_t own = token_at(sample, i);
        bool was_kept = own < N_KEPT, is_kept = tokens[i] < N_KEPT;
        if (labels[i] == DATASET_NO_LABEL) {
            if (tokens[i] != own) return false;
            continue;
        }
        if (labels[i] != own || was_kept || tokens[i] < 0 || tokens[i] >= VOCAB) return false;
        if (is_kept && tokens[i] != MASK) return false;
        counts->chosen++;
        counts->at[i]++;
        counts->hidden += tokens[i] == MASK;
        counts->same += tokens[i] == own;
        counts->other += tokens[i] != MASK && tokens[i] != own;
    }
    return true;
}

/* Within five standard deviations of a share of n. */
static bool is_near(double count, double n, double share) {
    return fabs(count - n * share) < 5 * sqrt(n * share * (1 - share));
}

static void check_shares(double rate) {
    unsigned char kept[VOCAB] = {0};
    MaskedLm masked = {.rate = rate, .mask = MASK, .vocab = VOCAB, .kept = kept};
    Counts counts = {0};
    double n = 0;
    int most = 0;
    char name[64];
    snprintf(name, sizeof(name), "masked lm: shares at a rate of %g", rate);
    check_begin(name);
    memset(kept, 1, N_KEPT);
    for (int s = 0; s < N_SAMPLES; s++) {
        CHECK(look_at(&masked, s, &counts), "sample %d", s);
        for (int i = 0; i < N; i++) n += token_at(s, i) >= N_KEPT;
    }
    for (int i = 0; i < N; i++) most = counts.at[i] > most ? counts.at[i] : most;
    CHECK(is_near(counts.chosen, n, rate), "%g of %g", counts.chosen, n);
    CHECK(is_near(counts.hidden, counts.chosen, 0.8), "%g hidden", counts.hidden);
    CHECK(is_near(counts.other, counts.chosen, 0.1), "%g others", counts.other);
    CHECK(is_near(counts.same, counts.chosen, 0.1), "%g as they were", counts.same);
    CHECK(most < N_SAMPLES * rate + 6 * sqrt(N_SAMPLES * rate), "one place %d times", most);
}

static void check_keys(void) {
    MaskedLm masked = {.rate = 0.15, .mask = 256, .vocab = 257};
    int32_t one[N], again[N], other[N], labels[N];
    int n_differ = 0;
    check_begin("masked lm: the key alone decides; the mask itself is not hidden");
    for (int i = 0; i < N; i++) one[i] = again[i] = other[i] = i % 257;
    masked_lm_apply(&masked, 7, one, labels, N);
    CHECK(labels[256] == DATASET_NO_LABEL && one[256] == 256, "the mask is a label");
    masked_lm_apply(&masked, 7, again, labels, N);
    masked_lm_apply(&masked, 8, other, labels, N);
    for (int i = 0; i < N; i++) n_differ += one[i] != other[i];
    CHECK(memcmp(one, again, sizeof(one)) == 0, "another choice with the same key");
    CHECK(n_differ > N / 10, "%d differ with another key", n_differ);
    masked.rate = 0;
    for (int i = 0; i < N; i++) labels[i] = again[i] = i;
    masked_lm_apply(&masked, 7, again, labels, N);
    CHECK(labels[5] == 5 && again[5] == 5, "a rate of 0 does something");
}

int main(void) {
    check_shares(0.15);
    check_shares(0.4);
    check_keys();
    return check_report();
}
