#include "runtime/tokenizer/unigram_seeds.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdlib.h>

enum { N_SYMBOLS = 0x110001, FEW = 12 };

/* A substring: `length` symbols from `begin` on, and how often it comes times its length. */
typedef struct Seed {
    int64_t weight;
    uint32_t begin, length;
    const uint32_t *symbols; /* of all, for comparing */
} Seed;

typedef struct Finder {
    uint32_t *symbols;  /* characters and 1; 0 follows each word */
    uint32_t *words;    /* [n_symbols] which word a symbol is of */
    size_t n_symbols;   /* zeros included */
    uint32_t *suffixes; /* [n_suffixes] where they begin, in their order */
    size_t n_suffixes;
    uint32_t depth; /* symbols that are compared */
    const UnigramText *text;
    Seed *seeds;
    size_t n_seeds, most;
} Finder;

void unigram_seeds_release(UnigramSeeds *seeds) {
    vocabulary_release(&seeds->pieces);
    free(seeds->weights);
    *seeds = (UnigramSeeds){0};
}

/* --- suffixes in their order --- */

/* How many symbols two suffixes have in common, `from` on; words' ends are none. */
static uint32_t common(const Finder *finder, uint32_t a, uint32_t b, uint32_t from) {
    const uint32_t *symbols = finder->symbols;
    while (from < finder->depth && symbols[a + from] && symbols[a + from] == symbols[b + from]) {
        from++;
    }
    return from;
}

static bool is_before(const Finder *finder, uint32_t a, uint32_t b, uint32_t from) {
    uint32_t n = common(finder, a, b, from);
    return n < finder->depth && finder->symbols[a + n] < finder->symbols[b + n];
}

static void sort_few(const Finder *finder, uint32_t *suffixes, size_t n, uint32_t depth) {
    for (size_t i = 1; i < n; i++) {
        uint32_t suffix = suffixes[i];
        size_t at = i;
        for (; at > 0 && is_before(finder, suffix, suffixes[at - 1], depth); at--) {
            suffixes[at] = suffixes[at - 1];
        }
        suffixes[at] = suffix;
    }
}

/* Some symbol of those at `depth`: not by a rule that a text could be made against. */
static uint32_t choose_pivot(const Finder *finder, const uint32_t *suffixes, size_t n,
                             uint32_t depth, uint64_t *random) {
    uint32_t found[3];
    for (int i = 0; i < 3; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        found[i] = finder->symbols[suffixes[(*random >> 33) % n] + depth];
    }
    uint32_t low = found[0] < found[1] ? found[0] : found[1];
    uint32_t high = found[0] < found[1] ? found[1] : found[0];
    return found[2] < low ? low : found[2] > high ? high : found[2];
}

/* Suffixes that agree in their first `depth` symbols (Bentley & Sedgewick 1997). */
static void sort(const Finder *finder, uint32_t *suffixes, size_t n, uint32_t depth,
                 uint64_t *random) {
    while (n > FEW && depth < finder->depth) {
        uint32_t pivot = choose_pivot(finder, suffixes, n, depth, random);
        size_t less = 0, more = n;
        for (size_t at = 0; at < more;) {
            uint32_t suffix = suffixes[at], symbol = finder->symbols[suffix + depth];
            if (symbol == pivot) {
                at++;
            } else if (symbol < pivot) {
                suffixes[at++] = suffixes[less];
                suffixes[less++] = suffix;
            } else {
                suffixes[at] = suffixes[--more];
                suffixes[more] = suffix;
            }
        }
        sort(finder, suffixes, less, depth, random);
        sort(finder, suffixes + more, n - more, depth, random);
        if (pivot == 0) return;
        suffixes += less;
        n = more - less;
        depth++;
    }
    if (depth < finder->depth) sort_few(finder, suffixes, n, depth);
}

static void load_symbols(Finder *finder) {
    const UnigramText *text = finder->text;
    size_t n = 0;
    for (size_t w = 0; w < text->n_words; w++) n += text->words[w].length + 1;
    finder->symbols = memory_alloc((n + 1) * sizeof(uint32_t));
    finder->words = memory_alloc((n + 1) * sizeof(uint32_t));
    n = 0;
    for (size_t w = 0; w < text->n_words; w++) {
        const UnigramWord *word = &text->words[w];
        for (size_t at = 0; at < word->length;) {
            uint32_t character = 0;
            at += (size_t)utf8_read(word->bytes + at, word->length - at, &character);
            finder->words[n] = (uint32_t)w;
            finder->symbols[n++] = character + 1;
        }
        finder->words[n] = (uint32_t)w;
        finder->symbols[n++] = 0;
    }
    finder->n_symbols = n;
}

/* By their first symbol at once, then each such run by itself, by several threads. */
static void sort_suffixes(Finder *finder, int n_threads) {
    size_t *begins = memory_zeroed(N_SYMBOLS + 2, sizeof(*begins)), n_runs = 0;
    uint32_t *runs = memory_alloc((N_SYMBOLS + 1) * sizeof(*runs));
    for (size_t i = 0; i < finder->n_symbols; i++) begins[finder->symbols[i] + 2]++;
    begins[2] = 0; /* words' ends are no suffixes */
    for (uint32_t s = 0; s < N_SYMBOLS; s++) {
        if (begins[s + 2]) runs[n_runs++] = s;
        begins[s + 2] += begins[s + 1];
    }
    finder->n_suffixes = begins[N_SYMBOLS + 1];
    finder->suffixes = memory_alloc((finder->n_suffixes + 1) * sizeof(uint32_t));
    for (size_t i = 0; i < finder->n_symbols; i++) {
        if (finder->symbols[i]) {
            finder->suffixes[begins[finder->symbols[i] + 1]++] = (uint32_t)i;
        }
    }
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (size_t r = 0; r < n_runs; r++) {
        size_t begin = begins[runs[r]], end = begins[runs[r] + 1];
        uint64_t random = runs[r];
        sort(finder, finder->suffixes + begin, end - begin, 1, &random);
    }
    free(begins);
    free(runs);
}

/* --- substrings --- */

static int compare_seeds(const void *left, const void *right) {
    const Seed *a = left, *b = right;
    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    for (uint32_t i = 0; i < a->length && i < b->length; i++) {
        uint32_t x = a->symbols[a->begin + i], y = b->symbols[b->begin + i];
        if (x != y) return x < y ? -1 : 1;
    }
    return (a->length > b->length) - (a->length < b->length);
}

static void keep_heaviest(Finder *finder) {
    if (finder->n_seeds) qsort(finder->seeds, finder->n_seeds, sizeof(Seed), compare_seeds);
    if (finder->n_seeds > finder->most) finder->n_seeds = finder->most;
}

static void offer(Finder *finder, uint32_t begin, uint32_t length, int64_t count) {
    if (length < 2 || length >= finder->depth || count < 2) return;
    if (finder->n_seeds == 4 * finder->most) keep_heaviest(finder);
    finder->seeds[finder->n_seeds++] = (Seed){count * length, begin, length, finder->symbols};
}

/* Suffixes that have so many symbols in common; `begin` is one of them. */
typedef struct Interval {
    uint32_t depth, begin;
    int64_t count_before; /* of the suffixes in front of it */
} Interval;

/* Intervals of the suffix array, those of a suffix alone included (Abouelhoda, Kurtz & Ohlebusch
 * 2004), without a table of what neighbours have in common. */
static void walk_intervals(Finder *finder) {
    Interval stack[UNIGRAM_MOST_CHARACTERS + 2];
    size_t n = finder->n_suffixes;
    uint32_t before = 0, behind;
    int n_open = 0;
    int64_t count = 0; /* of the suffixes that were seen, each as often as its word */
    for (size_t i = 0; i < n; i++, before = behind) {
        uint32_t suffix = finder->suffixes[i], alone;
        Interval open = {0, suffix, count};
        behind = i + 1 < n ? common(finder, suffix, finder->suffixes[i + 1], 0) : 0;
        alone = common(finder, suffix, suffix, 0);
        count += finder->text->words[finder->words[suffix]].count;
        if (alone > before && alone > behind) {
            offer(finder, suffix, alone, count - open.count_before);
        }
        while (n_open > 0 && stack[n_open - 1].depth > behind) {
            open = stack[--n_open];
            offer(finder, open.begin, open.depth, count - open.count_before);
        }
        if (behind > 0 && (n_open == 0 || stack[n_open - 1].depth < behind)) {
            open.depth = behind;
            stack[n_open++] = open;
        }
    }
}

/* --- the whole --- */

static void add_piece(UnigramSeeds *seeds, const uint32_t *symbols, uint32_t length,
                      double weight) {
    unsigned char bytes[4 * UNIGRAM_MOST_CHARACTERS];
    size_t n = 0;
    uint32_t other, id = seeds->pieces.n_ids;
    for (uint32_t i = 0; i < length; i++) n += (size_t)utf8_write(symbols[i] - 1, bytes + n);
    if (vocabulary_add(&seeds->pieces, id, bytes, n, &other)) seeds->weights[id] = weight;
}

void unigram_seeds_find(UnigramSeeds *seeds, const UnigramText *text, int most_characters,
                        size_t most, int n_threads) {
    Finder finder = {.depth = (uint32_t)most_characters + 1, .text = text, .most = most};
    *seeds = (UnigramSeeds){0};
    vocabulary_init(&seeds->pieces);
    load_symbols(&finder);
    sort_suffixes(&finder, n_threads);
    finder.seeds = memory_alloc((4 * most + 1) * sizeof(Seed));
    walk_intervals(&finder);
    keep_heaviest(&finder);
    seeds->weights = memory_alloc((text->n_characters + finder.n_seeds + 1) * sizeof(double));
    for (uint32_t i = 0; i < text->n_characters; i++) {
        uint32_t symbol = text->characters[i].character + 1;
        add_piece(seeds, &symbol, 1, (double)text->characters[i].count);
    }
    for (size_t i = 0; i < finder.n_seeds; i++) {
        const Seed *seed = &finder.seeds[i];
        add_piece(seeds, finder.symbols + seed->begin, seed->length, (double)seed->weight);
    }
    free(finder.seeds);
    free(finder.suffixes);
    free(finder.symbols);
    free(finder.words);
}
