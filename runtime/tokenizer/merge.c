#include "runtime/tokenizer/merge.h"

#include "ir/base/diag.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 32 }; /* symbols; about where both ways take the same time */

#define NOWHERE UINT32_MAX

typedef struct MergeEntry {
    uint32_t rank, at; /* at: of the left one, by its first symbol's place in the word */
} MergeEntry;

void merge_release(MergeSpace *space) {
    free(space->nexts);
    free(space->befores);
    free(space->heap);
    *space = (MergeSpace){0};
}

/* --- short words --- */

static uint32_t rank_of(const Vocabulary *vocabulary, const uint32_t *symbols, uint32_t *merged) {
    const PairSlot *slot = vocabulary_find_pair(vocabulary, symbols[0], symbols[1]);
    *merged = slot ? slot->merged : NO_TOKEN;
    return slot ? slot->rank : UINT32_MAX;
}

static size_t merge_short(const Vocabulary *vocabulary, uint32_t *symbols, size_t n) {
    uint32_t ranks[SHORT_WORD], merged[SHORT_WORD]; /* of symbols i and i + 1 */
    for (size_t i = 0; i + 1 < n; i++) ranks[i] = rank_of(vocabulary, symbols + i, merged + i);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == UINT32_MAX) break;
        symbols[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) symbols[i] = symbols[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best > 0) {
            ranks[best - 1] = rank_of(vocabulary, symbols + best - 1, merged + best - 1);
        }
        if (best + 1 < n) ranks[best] = rank_of(vocabulary, symbols + best, merged + best);
    }
    return n;
}

/* --- long words --- */

static bool is_before(MergeEntry a, MergeEntry b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void sift_down(MergeEntry *heap, size_t n, size_t at) {
    MergeEntry entry = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(heap[child + 1], heap[child])) child++;
        if (!is_before(heap[child], entry)) break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void push(MergeSpace *space, MergeEntry entry) {
    if (space->n_heap == space->heap_capacity) {
        space->heap_capacity = 2 * space->heap_capacity + 64;
        space->heap = realloc(space->heap, space->heap_capacity * sizeof(*space->heap));
        if (!space->heap) BUG("out of memory");
    }
    size_t at = space->n_heap++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!is_before(entry, space->heap[parent])) break;
        space->heap[at] = space->heap[parent];
    }
    space->heap[at] = entry;
}

static void reserve(MergeSpace *space, size_t n) {
    if (n <= space->capacity) return;
    free(space->nexts);
    free(space->befores);
    free(space->heap);
    space->capacity = n;
    space->heap_capacity = n;
    space->nexts = malloc(n * sizeof(*space->nexts));
    space->befores = malloc(n * sizeof(*space->befores));
    space->heap = malloc(n * sizeof(*space->heap));
    if (!space->nexts || !space->befores || !space->heap) BUG("out of memory");
}

/* The pair whose left one is at `at`, as far as there is one that may be merged. */
static void push_pair(const Vocabulary *vocabulary, MergeSpace *space, const uint32_t *symbols,
                      uint32_t at) {
    uint32_t next = space->nexts[at];
    const PairSlot *slot =
        next == NOWHERE ? NULL : vocabulary_find_pair(vocabulary, symbols[at], symbols[next]);
    if (slot) push(space, (MergeEntry){slot->rank, at});
}

static size_t merge_long(const Vocabulary *vocabulary, MergeSpace *space, uint32_t *symbols,
                         size_t n) {
    reserve(space, n);
    space->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        space->nexts[i] = i + 1 < n ? (uint32_t)i + 1 : NOWHERE;
        space->befores[i] = i > 0 ? (uint32_t)i - 1 : NOWHERE;
        const PairSlot *slot =
            i + 1 < n ? vocabulary_find_pair(vocabulary, symbols[i], symbols[i + 1]) : NULL;
        if (slot) space->heap[space->n_heap++] = (MergeEntry){slot->rank, (uint32_t)i};
    }
    for (size_t i = space->n_heap / 2; i-- > 0;) sift_down(space->heap, space->n_heap, i);
    while (space->n_heap > 0) {
        MergeEntry top = space->heap[0];
        space->heap[0] = space->heap[--space->n_heap];
        if (space->n_heap) sift_down(space->heap, space->n_heap, 0);
        /* What was pushed may have been merged with something else since. */
        uint32_t next = space->nexts[top.at];
        if (symbols[top.at] == NO_TOKEN || next == NOWHERE) continue;
        const PairSlot *slot = vocabulary_find_pair(vocabulary, symbols[top.at], symbols[next]);
        if (!slot || slot->rank != top.rank) continue;
        symbols[top.at] = slot->merged;
        symbols[next] = NO_TOKEN;
        uint32_t after = space->nexts[next];
        space->nexts[top.at] = after;
        if (after != NOWHERE) space->befores[after] = top.at;
        if (space->befores[top.at] != NOWHERE) {
            push_pair(vocabulary, space, symbols, space->befores[top.at]);
        }
        push_pair(vocabulary, space, symbols, top.at);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != NOWHERE; i = space->nexts[i]) symbols[left++] = symbols[i];
    return left;
}

size_t merge_word(const Vocabulary *vocabulary, MergeSpace *space, uint32_t *symbols, size_t n) {
    return n <= SHORT_WORD ? merge_short(vocabulary, symbols, n)
                           : merge_long(vocabulary, space, symbols, n);
}
