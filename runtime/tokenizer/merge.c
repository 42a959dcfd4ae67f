#include "runtime/tokenizer/merge.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHORT_WORD = 32, /* symbols; about where both ways take the same time */
    CHILDREN = 8,    /* of a node of the heap */
};

#define NOWHERE UINT32_MAX

/* A pair in the heap: its rank, and the place of its left one's first symbol. The least is next. */
static uint64_t make_entry(uint32_t rank, uint32_t at) {
    return (uint64_t)rank << 32 | at;
}

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

/* The heap has many children a node, which lie in a cache line or two: long words' does not fit
 * into caches, and each level down is a miss. */
static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t entry = heap[at];
    for (size_t first; (first = CHILDREN * at + 1) < n;) {
        size_t end = first + CHILDREN < n ? first + CHILDREN : n, least = first;
        uint64_t value = heap[first];
        for (size_t i = first + 1; i < end; i++) {
            least = heap[i] < value ? i : least;
            value = heap[i] < value ? heap[i] : value;
        }
        if (value >= entry) break;
        heap[at] = value;
        at = least;
    }
    heap[at] = entry;
}

static void push(MergeSpace *space, uint64_t entry) {
    if (space->n_heap == space->heap_capacity) {
        space->heap_capacity = 2 * space->heap_capacity + 64;
        space->heap = memory_grow(space->heap, space->heap_capacity * sizeof(*space->heap));
    }
    size_t at = space->n_heap++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / CHILDREN;
        if (entry >= space->heap[parent]) break;
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
    space->nexts = memory_alloc(n * sizeof(*space->nexts));
    space->befores = memory_alloc(n * sizeof(*space->befores));
    space->heap = memory_alloc(n * sizeof(*space->heap));
}

/* The pair whose left one is at `at`, as far as there is one that may be merged. */
static void push_pair(const Vocabulary *vocabulary, MergeSpace *space, const uint32_t *symbols,
                      uint32_t at) {
    uint32_t next = space->nexts[at];
    const PairSlot *slot =
        next == NOWHERE ? NULL : vocabulary_find_pair(vocabulary, symbols[at], symbols[next]);
    if (slot) push(space, make_entry(slot->rank, at));
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
        if (slot) space->heap[space->n_heap++] = make_entry(slot->rank, (uint32_t)i);
    }
    for (size_t i = (space->n_heap + CHILDREN - 2) / CHILDREN; i-- > 0;) {
        sift_down(space->heap, space->n_heap, i);
    }
    while (space->n_heap > 0) {
        uint32_t rank = (uint32_t)(space->heap[0] >> 32), at = (uint32_t)space->heap[0];
        space->heap[0] = space->heap[--space->n_heap];
        if (space->n_heap) sift_down(space->heap, space->n_heap, 0);
        /* What was pushed may have been merged with something else since. */
        uint32_t next = space->nexts[at];
        if (symbols[at] == NO_TOKEN || next == NOWHERE) continue;
        const PairSlot *slot = vocabulary_find_pair(vocabulary, symbols[at], symbols[next]);
        if (!slot || slot->rank != rank) continue;
        symbols[at] = slot->merged;
        symbols[next] = NO_TOKEN;
        uint32_t after = space->nexts[next];
        space->nexts[at] = after;
        if (after != NOWHERE) space->befores[after] = at;
        if (space->befores[at] != NOWHERE) {
            push_pair(vocabulary, space, symbols, space->befores[at]);
        }
        push_pair(vocabulary, space, symbols, at);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != NOWHERE; i = space->nexts[i]) symbols[left++] = symbols[i];
    return left;
}

size_t merge_word(const Vocabulary *vocabulary, MergeSpace *space, uint32_t *symbols, size_t n) {
    return n <= SHORT_WORD ? merge_short(vocabulary, symbols, n)
                           : merge_long(vocabulary, space, symbols, n);
}
