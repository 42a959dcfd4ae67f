/* Learning a BPE against a trainer that counts all pairs again before each merge. Would catch: a
 * pair that is missed, counted twice or paired from another place where a long word is divided. */
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/train_bpe.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

enum { N_SPECIAL = 1, MOST_MERGES = 60, MOST_IDS = N_SPECIAL + 256 + MOST_MERGES };

static uint32_t random_state = 12345;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

/* The pair that is there most, of equals the one of the lowest ids; how often. */
static int64_t count_pairs(const uint32_t *symbols, size_t n, TrainedMerge *out) {
    int64_t *counts = calloc((size_t)MOST_IDS * MOST_IDS, sizeof(*counts)), most = 0;
    for (size_t i = 0; i + 1 < n; i++) counts[symbols[i] * MOST_IDS + symbols[i + 1]]++;
    for (uint32_t pair = 0; pair < MOST_IDS * MOST_IDS; pair++) {
        if (counts[pair] <= most) continue;
        most = counts[pair];
        *out = (TrainedMerge){pair / MOST_IDS, pair % MOST_IDS};
    }
    free(counts);
    return most;
}

/* The token of the pair's bytes, which is added where it is new. */
static uint32_t token_of(Vocabulary *vocabulary, TrainedMerge merge, uint32_t next) {
    size_t left, right;
    uint32_t other;
    const unsigned char *a = vocabulary_bytes(vocabulary, merge.left, &left);
    const unsigned char *b = vocabulary_bytes(vocabulary, merge.right, &right);
    unsigned char *both = malloc(left + right);
    memcpy(both, a, left);
    memcpy(both + left, b, right);
    bool is_new = vocabulary_add(vocabulary, next, both, left + right, &other);
    free(both);
    return is_new ? next : other;
}

static size_t merge(uint32_t *symbols, size_t n, TrainedMerge pair, uint32_t merged) {
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        bool found = symbols[i] == pair.left && i + 1 < n && symbols[i + 1] == pair.right;
        symbols[left++] = found ? merged : symbols[i];
        i += found;
    }
    return left;
}

/* One word, learned both ways. */
static void compare(const char *name, const unsigned char *word, size_t n) {
    WordCounts counts = {0};
    TrainedBpe trained;
    TrainOptions options = {.n_special = N_SPECIAL, .n_tokens = MOST_IDS, .least_count = 2};
    Vocabulary vocabulary;
    uint32_t *symbols = malloc(n * sizeof(*symbols)), next = N_SPECIAL + 256, other;
    vocabulary_init(&vocabulary);
    word_counts_add(&counts, word, n, 1);
    train_bpe(&counts, &options, &trained);
    for (uint32_t id = N_SPECIAL; id < N_SPECIAL + 256; id++) {
        size_t length;
        vocabulary_add(&vocabulary, id, vocabulary_bytes(&trained.vocabulary, id, &length), 1,
                       &other);
    }
    for (size_t i = 0; i < n; i++) symbols[i] = vocabulary_find(&vocabulary, word + i, 1);
    TrainedMerge pair = {0};
    size_t n_merges = 0, left = n;
    while (next < MOST_IDS && count_pairs(symbols, left, &pair) >= 2) {
        const TrainedMerge *got =
            n_merges < trained.n_merges ? &trained.merges[n_merges] : &(TrainedMerge){0};
        CHECK(got->left == pair.left && got->right == pair.right,
              "%s: merge %zu is of %u and %u, not of %u and %u", name, n_merges, got->left,
              got->right, pair.left, pair.right);
        if (got->left != pair.left || got->right != pair.right) break;
        uint32_t merged = token_of(&vocabulary, pair, next);
        next += merged == next;
        left = merge(symbols, left, pair, merged);
        n_merges++;
    }
    CHECK(trained.n_merges == n_merges, "%s: %zu merges, not %zu", name, trained.n_merges,
          n_merges);
    vocabulary_release(&vocabulary);
    trained_bpe_release(&trained);
    word_counts_release(&counts);
    free(symbols);
}

/* Letters of the first `n_letters`, each in a run of up to `most_run`. */
static void test_random(const char *name, size_t n, uint32_t n_letters, uint32_t most_run) {
    unsigned char *word = malloc(n);
    check_begin(name);
    for (size_t i = 0; i < n;) {
        unsigned char letter = (unsigned char)('a' + random_below(n_letters));
        for (uint32_t run = 1 + random_below(most_run); run > 0 && i < n; run--) word[i++] = letter;
    }
    compare(name, word, n);
    free(word);
}

int main(void) {
    test_random("a short word", 3000, 3, 1);
    test_random("a word of two parts", 4097, 2, 1);
    test_random("a word of many parts", 30000, 4, 1);
    test_random("one letter", 100000, 1, 1);
    test_random("one letter, an odd number of times", 12289, 1, 1);
    for (int i = 0; i < 6; i++) {
        test_random("runs that are longer than parts", 40000, 2, 9000);
        test_random("short runs", 20000, 2, 9);
    }
    return check_report();
}
