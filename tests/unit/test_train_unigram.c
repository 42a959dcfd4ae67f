/* Learning a Unigram against a trainer that goes through every way to divide a word, and through
 * every substring. Would catch: an expectation, a best way or a loss that is wrong, a substring
 * that is missed or counted twice, a size that is not the one asked for, a result that depends on
 * threads, text that does not come back from the file that is written. */
#include "ir/base/file.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/encoder.h"
#include "runtime/tokenizer/piece_lattice.h"
#include "runtime/tokenizer/train_unigram.h"
#include "runtime/tokenizer/write_json.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t random_state = 12345;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

/* --- every way to divide a word --- */

enum { MOST_IDS = 4096, MOST_PARTS = 64 };

typedef struct Ways {
    const Vocabulary *pieces;
    const double *scores;
    const bool *dropped; /* NULL: none is */
    const unsigned char *word;
    size_t length;
    uint32_t without;
    uint32_t path[MOST_PARTS], best_path[MOST_PARTS];
    int n_path, n_best;
    double best, sum;
    double *expected; /* [n_ids], of ways by their likelihood, not yet divided by the sum */
} Ways;

static void go_on(Ways *ways, size_t at, double score) {
    if (at == ways->length) {
        ways->sum += exp(score);
        for (int i = 0; i < ways->n_path; i++) ways->expected[ways->path[i]] += exp(score);
        if (score > ways->best) {
            ways->best = score;
            ways->n_best = ways->n_path;
            memcpy(ways->best_path, ways->path, sizeof(ways->path));
        }
        return;
    }
    for (size_t end = at + 1; end <= ways->length; end++) {
        uint32_t id = vocabulary_find(ways->pieces, ways->word + at, end - at);
        if (id == NO_TOKEN || id == ways->without || (ways->dropped && ways->dropped[id])) continue;
        ways->path[ways->n_path++] = id;
        go_on(ways, end, score + ways->scores[id]);
        ways->n_path--;
    }
}

static void find_ways(Ways *ways) {
    ways->best = -INFINITY;
    ways->sum = 0;
    ways->n_path = ways->n_best = 0;
    go_on(ways, 0, 0);
}

/* --- lattices --- */

static const char *const LETTERS[] = {"a", "b", "\xc3\xa9", "\xe2\x96\x81"};

/* A word of `n` of the first letters; its bytes. */
static size_t random_word(unsigned char *out, uint32_t n, uint32_t n_letters) {
    size_t length = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *letter = LETTERS[random_below(n_letters)];
        memcpy(out + length, letter, strlen(letter));
        length += strlen(letter);
    }
    return length;
}

static void random_pieces(Vocabulary *pieces, double *scores) {
    uint32_t other;
    vocabulary_init(pieces);
    for (uint32_t i = 0; i < 4; i++) {
        vocabulary_add(pieces, i, LETTERS[i], strlen(LETTERS[i]), &other);
    }
    for (int i = 0; i < 30; i++) {
        unsigned char word[32];
        size_t length = random_word(word, 2 + random_below(4), 4);
        vocabulary_add(pieces, pieces->n_ids, word, length, &other);
    }
    for (uint32_t id = 0; id < pieces->n_ids; id++) scores[id] = -0.01 * random_below(900);
}

static double add_shares(const PieceLattice *lattice, double *expected) {
    double length = 0;
    for (size_t i = 0; i < lattice->n_edges; i++) {
        const PieceEdge *edge = &lattice->edges[i];
        expected[edge->id] += edge->share;
        length += edge->share * (edge->end - edge->begin);
    }
    return length;
}

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-10 * (1 + fabs(b));
}

static void test_lattice(void) {
    double scores[64], sums[64], shares[64];
    bool skips[64] = {false};
    PieceLattice lattice = {0};
    check_begin("expectations are those of all ways to divide a word, and derivatives");
    for (int round = 0; round < 40; round++) {
        Vocabulary pieces;
        PieceTrie trie = {0};
        unsigned char word[64];
        random_pieces(&pieces, scores);
        piece_trie_build(&trie, &pieces, skips);
        size_t length = random_word(word, 1 + random_below(11), 4);
        uint32_t without = random_below(3) ? NO_TOKEN : 4 + random_below(pieces.n_ids - 4);
        Ways ways = {.pieces = &pieces,
                     .scores = scores,
                     .word = word,
                     .length = length,
                     .without = without,
                     .expected = sums};
        memset(sums, 0, sizeof(sums));
        memset(shares, 0, sizeof(shares));
        find_ways(&ways);
        CHECK(lattice_build(&lattice, &trie, scores, word, length, without), "no way");
        CHECK(is_near(lattice.best[length], ways.best), "the best way has %g, not %g",
              lattice.best[length], ways.best);
        double likelihood = lattice_expect(&lattice, scores);
        CHECK(is_near(likelihood, log(ways.sum)), "likelihood %g, not %g", likelihood,
              log(ways.sum));
        CHECK(is_near(add_shares(&lattice, shares), (double)length), "shares are of other bytes");
        for (uint32_t id = 0; id < pieces.n_ids; id++) {
            const double step = 1e-5, kept = scores[id];
            CHECK(is_near(shares[id], sums[id] / ways.sum), "piece %u is expected %g times, not %g",
                  id, shares[id], sums[id] / ways.sum);
            double change = 0;
            for (int side = -1; side <= 1; side += 2) {
                scores[id] = kept + side * step;
                lattice_build(&lattice, &trie, scores, word, length, without);
                change += side * lattice_expect(&lattice, scores) / (2 * step);
            }
            scores[id] = kept;
            CHECK(fabs(change - shares[id]) < 1e-7, "the derivative by piece %u is %g, not %g", id,
                  change, shares[id]);
        }
        piece_trie_release(&trie);
        vocabulary_release(&pieces);
    }
    piece_lattice_release(&lattice);
}

/* So many ways that their number alone is near the largest double, and scores far below the least.
 */
static void test_long_word(void) {
    static const double SCORES[] = {0, -30};
    unsigned char word[LATTICE_MOST_CHARACTERS];
    PieceLattice lattice = {0};
    Vocabulary pieces;
    PieceTrie trie = {0};
    bool skips[64] = {false};
    uint32_t other;
    check_begin("a word of as many letters as there can be");
    vocabulary_init(&pieces);
    memset(word, 'a', sizeof(word));
    for (uint32_t id = 0; id < 64; id++) vocabulary_add(&pieces, id, word, id + 1, &other);
    piece_trie_build(&trie, &pieces, skips);
    for (int i = 0; i < 2; i++) {
        double scores[64], shares[64] = {0}, ways[LATTICE_MOST_CHARACTERS + 1] = {0};
        for (int id = 0; id < 64; id++) scores[id] = SCORES[i] * (id + 1);
        CHECK(lattice_build(&lattice, &trie, scores, word, sizeof(word), NO_TOKEN), "no way");
        double likelihood = lattice_expect(&lattice, scores);
        CHECK(is_near(add_shares(&lattice, shares), sizeof(word)), "shares are of other bytes");
        ways[0] = 1; /* each is as likely as all others */
        for (int n = 1; n <= LATTICE_MOST_CHARACTERS; n++) {
            for (int last = 1; last <= 64 && last <= n; last++) ways[n] += ways[n - last];
        }
        double expected = log(ways[LATTICE_MOST_CHARACTERS]) + SCORES[i] * LATTICE_MOST_CHARACTERS;
        CHECK(is_near(likelihood, expected), "likelihood %.12g, not %.12g", likelihood, expected);
    }
    piece_lattice_release(&lattice);
    piece_trie_release(&trie);
    vocabulary_release(&pieces);
}

/* --- the text and its substrings --- */

static void random_counts(WordCounts *counts, int n_words, uint32_t most_letters) {
    *counts = (WordCounts){0};
    for (int i = 0; i < n_words; i++) {
        unsigned char word[256];
        size_t length = random_word(word, 1 + random_below(most_letters), 3);
        word_counts_add(counts, word, length, 1 + random_below(40));
    }
}

static void test_text(void) {
    static const struct {
        const char *word, *parts[3];
        int64_t count;
    } WORDS[] = {{"abcab", {"abcab"}, 10},
                 {"ab\xffz\xe2\x82", {"ab"}, 5}, /* a byte, a rare character, the half of one */
                 {"c\xf0\x9f\x98\x80yb", {"c", "b"}, 1}};
    WordCounts counts = {0};
    UnigramText text;
    int64_t n = 0;
    check_begin("words are cut at what the coverage leaves out");
    for (size_t i = 0; i < 3; i++) {
        word_counts_add(&counts, (const unsigned char *)WORDS[i].word, strlen(WORDS[i].word),
                        WORDS[i].count);
    }
    word_counts_add(&counts, (const unsigned char *)"\0\0\0\0", 4, 1000);
    unigram_text_make(&text, &counts, 0.85); /* a, b, c: 62 of 69 */
    CHECK(text.n_characters == 3 && text.n_in_all == 62, "%u characters, %d in all",
          text.n_characters, (int)text.n_in_all);
    CHECK(text.n_words == 4, "%zu words", text.n_words);
    for (size_t w = 0; w < text.n_words; w++) {
        const UnigramWord *word = &text.words[w];
        int64_t expected = 0;
        for (size_t i = 0; i < 3; i++) {
            for (int k = 0; k < 3 && WORDS[i].parts[k]; k++) {
                bool same = strlen(WORDS[i].parts[k]) == word->length &&
                            memcmp(WORDS[i].parts[k], word->bytes, word->length) == 0;
                if (same) expected += WORDS[i].count;
            }
        }
        CHECK(word->count == expected, "'%.*s' comes %d times", (int)word->length, word->bytes,
              (int)word->count);
        n += word->count;
    }
    CHECK(n == 17, "%d words in all", (int)n);
    unigram_text_release(&text);
    unigram_text_make(&text, &counts, 1);
    CHECK(text.n_characters == 6, "%u characters with all", text.n_characters);
    unigram_text_release(&text);
    word_counts_release(&counts);
}

static size_t count_letters(const unsigned char *bytes, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += (bytes[i] & 0xc0) != 0x80;
    return n;
}

/* How often it comes; 0: it is no seed, as one thing follows it wherever it is. */
static int64_t weigh(const UnigramText *text, const unsigned char *bytes, size_t length) {
    int64_t count = 0;
    int follower = -2; /* -1: several, or a word's end */
    for (size_t w = 0; w < text->n_words; w++) {
        const UnigramWord *word = &text->words[w];
        for (size_t at = 0; at + length <= word->length; at++) {
            if (memcmp(word->bytes + at, bytes, length) != 0) continue;
            count += word->count;
            int next = at + length < word->length ? word->bytes[at + length] : -1;
            follower = follower == -2 || follower == next ? next : -1;
        }
    }
    return follower == -1 && count >= 2 ? count : 0;
}

static void test_seeds(void) {
    enum { MOST = 6 };
    check_begin("seeds are the substrings that are followed by several things");
    for (int round = 0; round < 12; round++) {
        WordCounts counts;
        UnigramText text;
        UnigramSeeds seeds, fewer;
        uint32_t n_expected;
        random_counts(&counts, 3 + 4 * round, 4 + 2 * (uint32_t)round);
        unigram_text_make(&text, &counts, 1);
        n_expected = text.n_characters;
        unigram_seeds_find(&seeds, &text, MOST, 100000, 1 + round % 3);
        Vocabulary seen;
        vocabulary_init(&seen);
        for (size_t w = 0; w < text.n_words; w++) {
            const UnigramWord *word = &text.words[w];
            for (size_t at = 0; at < word->length; at++) {
                for (size_t end = at + 1; end <= word->length; end++) {
                    uint32_t other;
                    size_t n = count_letters(word->bytes + at, end - at);
                    if ((word->bytes[at] & 0xc0) == 0x80 || n < 2 || n > MOST) continue;
                    if (end < word->length && (word->bytes[end] & 0xc0) == 0x80) continue;
                    int64_t count = weigh(&text, word->bytes + at, end - at);
                    if (!vocabulary_add(&seen, seen.n_ids, word->bytes + at, end - at, &other))
                        continue;
                    uint32_t id = vocabulary_find(&seeds.pieces, word->bytes + at, end - at);
                    n_expected += count > 0;
                    CHECK((id != NO_TOKEN) == (count > 0), "'%.*s', which comes %d times, is %s",
                          (int)(end - at), word->bytes + at, (int)count,
                          id == NO_TOKEN ? "none" : "one");
                    CHECK(id == NO_TOKEN || seeds.weights[id] == (double)count * (double)n,
                          "'%.*s' has a weight of %g, not %d times %zu", (int)(end - at),
                          word->bytes + at, seeds.weights[id], (int)count, n);
                }
            }
        }
        CHECK(seeds.pieces.n_ids == n_expected, "%u seeds, not %u", seeds.pieces.n_ids, n_expected);
        unigram_seeds_find(&fewer, &text, MOST, 7, 1);
        uint32_t n_fewer = n_expected < text.n_characters + 7 ? n_expected : text.n_characters + 7;
        CHECK(fewer.pieces.n_ids == n_fewer, "%u seeds of the heaviest", fewer.pieces.n_ids);
        for (uint32_t id = text.n_characters; id < fewer.pieces.n_ids; id++) {
            size_t length, same;
            const unsigned char *bytes = vocabulary_bytes(&fewer.pieces, id, &length);
            const unsigned char *other = vocabulary_bytes(&seeds.pieces, id, &same);
            CHECK(length == same && memcmp(bytes, other, length) == 0, "another seed %u", id);
        }
        vocabulary_release(&seen);
        unigram_seeds_release(&fewer);
        unigram_seeds_release(&seeds);
        unigram_text_release(&text);
        word_counts_release(&counts);
    }
}

/* --- learning --- */

/* The whole trainer again, by all ways to divide each word. */
typedef struct Naive {
    const UnigramText *text;
    const UnigramOptions *options;
    UnigramSeeds seeds;
    uint32_t n_ids;
    bool dropped[MOST_IDS];
    double scores[MOST_IDS], counts[MOST_IDS], losses[MOST_IDS];
} Naive;

static uint32_t naive_alive(const Naive *naive) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < naive->n_ids; id++) n += !naive->dropped[id];
    return n;
}

static Ways naive_ways(const Naive *naive, const unsigned char *word, size_t length,
                       uint32_t without, double *expected) {
    Ways ways = {.pieces = &naive->seeds.pieces,
                 .scores = naive->scores,
                 .dropped = naive->dropped,
                 .word = word,
                 .length = length,
                 .without = without,
                 .expected = expected};
    memset(expected, 0, naive->n_ids * sizeof(double));
    find_ways(&ways);
    return ways;
}

static void naive_em(Naive *naive) {
    static double expected[MOST_IDS];
    uint32_t n_good = 0;
    double sum = 0;
    memset(naive->counts, 0, sizeof(naive->counts));
    for (size_t w = 0; w < naive->text->n_words; w++) {
        const UnigramWord *word = &naive->text->words[w];
        Ways ways = naive_ways(naive, word->bytes, word->length, NO_TOKEN, expected);
        for (uint32_t id = 0; id < naive->n_ids; id++) {
            naive->counts[id] += (double)word->count * expected[id] / ways.sum;
        }
    }
    for (uint32_t id = 0; id < naive->n_ids; id++) {
        bool is_character = id < naive->text->n_characters;
        if (is_character) naive->counts[id] = fmax(naive->counts[id], 0.5);
        n_good += !naive->dropped[id] && naive->counts[id] >= 0.5;
    }
    for (uint32_t id = 0; id < naive->n_ids; id++) {
        if (n_good >= naive->options->n_pieces && naive->counts[id] < 0.5)
            naive->dropped[id] = true;
        if (!naive->dropped[id]) sum += naive->counts[id] = fmax(naive->counts[id], 0.1);
    }
    for (uint32_t id = 0; id < naive->n_ids; id++) {
        if (!naive->dropped[id]) naive->scores[id] = digamma(naive->counts[id]) - digamma(sum);
    }
}

static void naive_drop(Naive *naive, uint32_t wanted) {
    static double room[MOST_IDS];
    uint32_t n_alive = naive_alive(naive), most = (uint32_t)(0.75 * n_alive);
    uint32_t n_kept = naive->text->n_characters;
    bool kept[MOST_IDS] = {false};
    double sum = 0;
    if (most < wanted) most = wanted;
    memset(naive->counts, 0, sizeof(naive->counts));
    for (size_t w = 0; w < naive->text->n_words; w++) {
        const UnigramWord *word = &naive->text->words[w];
        Ways ways = naive_ways(naive, word->bytes, word->length, NO_TOKEN, room);
        for (int i = 0; i < ways.n_best; i++) {
            naive->counts[ways.best_path[i]] += (double)word->count;
            sum += (double)word->count;
        }
    }
    for (uint32_t id = n_kept; id < naive->n_ids; id++) {
        if (naive->dropped[id]) continue;
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(&naive->seeds.pieces, id, &length);
        Ways ways = naive_ways(naive, bytes, length, id, room);
        double seen = naive->counts[id], with = 0, instead = 0;
        naive->losses[id] = naive->scores[id] - 1e9;
        if (seen == 0 || ways.best > naive->scores[id]) continue;
        with = log(seen / sum);
        for (int i = 0; i < ways.n_best; i++) {
            instead +=
                log((naive->counts[ways.best_path[i]] + seen) / (sum + seen * (ways.n_best - 1)));
        }
        naive->losses[id] = fmax(0, seen * (with - instead));
    }
    for (; n_kept < most; n_kept++) { /* the one whose loss is the largest, again and again */
        uint32_t top = NO_TOKEN;
        for (uint32_t id = naive->text->n_characters; id < naive->n_ids; id++) {
            if (naive->dropped[id] || kept[id] || (naive->losses[id] < 0 && n_kept >= wanted))
                continue;
            if (top == NO_TOKEN || naive->losses[id] > naive->losses[top]) top = id;
        }
        if (top == NO_TOKEN) break;
        kept[top] = true;
    }
    for (uint32_t id = naive->text->n_characters; id < naive->n_ids; id++) {
        if (!kept[id]) naive->dropped[id] = true;
    }
}

static void naive_train(Naive *naive) {
    uint32_t wanted = (uint32_t)(1.1 * naive->options->n_pieces);
    double sum = 0;
    unigram_seeds_find(&naive->seeds, naive->text, naive->options->most_characters,
                       naive->options->most_seeds, 1);
    naive->n_ids = naive->seeds.pieces.n_ids;
    if (naive->n_ids > MOST_IDS) abort();
    for (uint32_t id = 0; id < naive->n_ids; id++) sum += naive->seeds.weights[id];
    for (uint32_t id = 0; id < naive->n_ids; id++) {
        naive->scores[id] = log(naive->seeds.weights[id] / sum);
    }
    for (;;) {
        naive_em(naive);
        naive_em(naive);
        if (naive_alive(naive) <= wanted) return;
        naive_drop(naive, wanted);
    }
}

/* Compares: each piece that came out, its score, and that none of those left out is likelier. */
static void compare_trained(const Naive *naive, const TrainedUnigram *trained) {
    double least = 0;
    for (uint32_t id = 0; id < trained->pieces.n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(&trained->pieces, id, &length);
        uint32_t same = vocabulary_find(&naive->seeds.pieces, bytes, length);
        CHECK(same != NO_TOKEN && !naive->dropped[same], "'%.*s' should have been dropped",
              (int)length, bytes);
        if (same == NO_TOKEN) return;
        CHECK(fabs(trained->scores[id] - naive->scores[same]) < 1e-5, "'%.*s' has %g, not %g",
              (int)length, bytes, trained->scores[id], naive->scores[same]);
        if (same >= naive->text->n_characters) least = trained->scores[id];
    }
    for (uint32_t id = 0; id < naive->n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(&naive->seeds.pieces, id, &length);
        if (naive->dropped[id] || naive->scores[id] < least + 1e-5) continue;
        CHECK(vocabulary_find(&trained->pieces, bytes, length) != NO_TOKEN, "'%.*s' is missing",
              (int)length, bytes);
    }
}

static void test_training(void) {
    static Naive naive;
    check_begin("the pieces and scores of a trainer that goes through all ways");
    for (int round = 0; round < 16; round++) {
        WordCounts counts;
        UnigramText text;
        TrainedUnigram trained, again;
        random_counts(&counts, 20 + (int)random_below(60), 9);
        unigram_text_make(&text, &counts, 1);
        UnigramOptions options = {.n_pieces = 12 + 4 * (uint32_t)round,
                                  .most_characters = 5,
                                  .most_seeds = 2000,
                                  .n_threads = 1};
        if (round % 4 == 3) { /* so many that some are hardly expected */
            unigram_seeds_find(&naive.seeds, &text, 5, 2000, 1);
            options.n_pieces = naive.seeds.pieces.n_ids * 9 / 10;
            unigram_seeds_release(&naive.seeds);
        }
        naive = (Naive){.text = &text, .options = &options};
        naive_train(&naive);
        train_unigram(&text, &options, &trained);
        uint32_t n = options.n_pieces < naive.n_ids ? options.n_pieces : naive.n_ids;
        CHECK(trained.pieces.n_ids == n, "%u pieces, not %u", trained.pieces.n_ids, n);
        compare_trained(&naive, &trained);
        options.n_threads = 3;
        train_unigram(&text, &options, &again);
        CHECK(again.pieces.n_bytes == trained.pieces.n_bytes &&
                  memcmp(again.pieces.bytes, trained.pieces.bytes, trained.pieces.n_bytes) == 0 &&
                  memcmp(again.scores, trained.scores, n * sizeof(double)) == 0,
              "another result by three threads");
        CHECK(again.log_likelihood == trained.log_likelihood, "another likelihood");
        trained_unigram_release(&again);
        trained_unigram_release(&trained);
        unigram_seeds_release(&naive.seeds);
        unigram_text_release(&text);
        word_counts_release(&counts);
    }
}

static void test_digamma(void) {
    check_begin("digamma");
    for (double x = 0.1; x < 1e6; x *= 1.7) {
        double h = 1e-4 * x;
        double slope =
            (8 * (lgamma(x + h) - lgamma(x - h)) - lgamma(x + 2 * h) + lgamma(x - 2 * h)) /
            (12 * h);
        CHECK(fabs(digamma(x) - slope) < 1e-8 * (1 + fabs(slope)), "of %g: %.10g, not %.10g", x,
              digamma(x), slope);
    }
    CHECK(fabs(digamma(1) + 0.57721566490153286) < 1e-10, "of 1: %.12g", digamma(1));
}

static void test_sizes(void) {
    static const char *const RESERVED[] = {"ab", "no"};
    WordCounts counts;
    UnigramText text;
    check_begin("sizes: no less than the characters, no more than there is");
    random_counts(&counts, 200, 12);
    unigram_text_make(&text, &counts, 1);
    static const uint32_t ASKED[] = {0, 3, 4, 50, 300, 100000};
    for (int i = 0; i < 6; i++) {
        TrainedUnigram trained;
        UnigramOptions options = {.n_pieces = ASKED[i],
                                  .most_characters = 8,
                                  .most_seeds = 5000,
                                  .reserved = RESERVED,
                                  .n_reserved = 2,
                                  .n_threads = 2};
        train_unigram(&text, &options, &trained);
        uint32_t n = trained.pieces.n_ids;
        CHECK(i == 5 ? n > 300 && n < 5000 : n == (ASKED[i] < 3 ? 3 : ASKED[i]),
              "%u pieces were asked for, %u came out", ASKED[i], n);
        CHECK(vocabulary_find(&trained.pieces, "ab", 2) == NO_TOKEN, "a reserved piece is there");
        for (uint32_t id = 0; id + 1 < n; id++) {
            CHECK(trained.scores[id] >= trained.scores[id + 1] && trained.scores[id] < 0,
                  "score %u is %g", id, trained.scores[id]);
        }
        trained_unigram_release(&trained);
    }
    unigram_text_release(&text);
    word_counts_release(&counts);
}

/* --- the file --- */

static Tokenizer *write_and_load(const TrainedUnigram *trained) {
    static const char *const SPECIAL[] = {"<|endoftext|>", "<unk>"};
    char folder[] = "/tmp/test_train_unigram-XXXXXX", path[64];
    Diag *diag = diag_create();
    StrBuf text = strbuf_create();
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof(path), "%s/t.json", folder);
    write_unigram_json(&text, trained, pattern_by_name("gpt2"), SPECIAL, 2, 1);
    CHECK(file_write(path, text.text, text.length, diag), "%s", diag_text(diag));
    Tokenizer *tokenizer = tokenizer_load(path, NULL, diag);
    CHECK(tokenizer, "%s", diag_text(diag));
    unlink(path);
    rmdir(folder);
    strbuf_destroy(&text);
    diag_destroy(diag);
    return tokenizer;
}

/* What is no U+2581 comes back, byte by byte, whether it was learned from or not. */
static void test_file(void) {
    WordCounts counts = {0};
    UnigramText text;
    TrainedUnigram trained;
    check_begin("every text comes back from the file");
    static const char *const WORDS[] = {SPACE_MARK "low", SPACE_MARK "lower", "\"\\", "\n\x01",
                                        "\xc3\xa9"
                                        "t\xc3\xa9"};
    for (int i = 0; i < 5; i++) {
        word_counts_add(&counts, (const unsigned char *)WORDS[i], strlen(WORDS[i]), 5 + i);
    }
    unigram_text_make(&text, &counts, 1);
    train_unigram(
        &text,
        &(UnigramOptions){.n_pieces = 20, .most_characters = 16, .most_seeds = 100, .n_threads = 1},
        &trained);
    Tokenizer *tokenizer = write_and_load(&trained);
    Encoder *encoder = tokenizer ? encoder_create(tokenizer) : NULL;
    TokenList tokens = {0};
    for (int round = 0; encoder && round < 400; round++) {
        unsigned char bytes[64], out[512];
        size_t n = random_below(sizeof(bytes)), length = 0;
        Diag *diag = diag_create();
        for (size_t i = 0; i < n; i++) {
            bytes[i] = round % 2
                           ? (unsigned char)random_below(256)
                           : (unsigned char)" lower\xc3\xa9\xc3\xa9\n\"\\<0x41>"[random_below(19)];
        }
        if (round == 0)
            n = (size_t)snprintf((char *)bytes, sizeof(bytes), "  low <|endoftext|><0x41><unk> ");
        tokens.count = 0;
        CHECK(encoder_encode(encoder, bytes, n, false, &(EncoderOutput){.tokens = &tokens}, "t",
                             diag),
              "%s", diag_text(diag));
        for (size_t i = 0; i < tokens.count; i++) {
            size_t part;
            const char *found = tokenizer_text(tokenizer, tokens.items[i], &part);
            CHECK(tokens.items[i] > 1, "a special token in text without one");
            memcpy(out + length, found, part);
            length += part;
        }
        CHECK(length == n && memcmp(out, bytes, n) == 0, "text %d of %zu bytes became %zu others",
              round, n, length);
        diag_destroy(diag);
    }
    token_list_release(&tokens);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    trained_unigram_release(&trained);
    unigram_text_release(&text);
    word_counts_release(&counts);
}

int main(void) {
    test_digamma();
    test_lattice();
    test_long_word();
    test_text();
    test_seeds();
    test_training();
    test_sizes();
    test_file();
    return check_report();
}
