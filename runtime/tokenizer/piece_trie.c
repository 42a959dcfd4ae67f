#include "runtime/tokenizer/piece_trie.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_TRIES = 1024,    /* places looked at for a state's successors */
    MOST_UNITS = 1 << 26, /* 800 MB */
    ROOM = 512,           /* behind the last used unit: any base + any byte */
};
#define FREE    UINT32_MAX
#define NOWHERE (UINT32_MAX - 1) /* the root's parent */

typedef struct Piece {
    const unsigned char *bytes;
    uint32_t length, id;
} Piece;

/* Pieces [begin, end) agree in their first `depth` bytes, which lead to `state`. */
typedef struct Pending {
    uint32_t state, begin, end, depth;
} Pending;

typedef struct Build {
    PieceTrie *trie;
    Piece *pieces;
    Pending *queue;
    size_t n_queue, queue_capacity;
    size_t first_free; /* units before it are taken, or not worth looking at */
    size_t end;        /* one behind the last unit that is taken */
} Build;

void piece_trie_release(PieceTrie *trie) {
    free(trie->units);
    *trie = (PieceTrie){0};
}

static int compare_pieces(const void *left, const void *right) {
    const Piece *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    if (order) return order;
    return a->length != b->length ? (a->length < b->length ? -1 : 1) : 0;
}

static bool reserve(PieceTrie *trie, size_t n) {
    if (n > MOST_UNITS) return false;
    if (n <= trie->n_units) return true;
    if (n > trie->capacity) {
        trie->capacity = 2 * n;
        trie->units = memory_grow(trie->units, trie->capacity * sizeof(PieceUnit));
    }
    for (; trie->n_units < n; trie->n_units++) {
        trie->units[trie->n_units] = (PieceUnit){0, FREE, NO_TOKEN};
    }
    return true;
}

/* A base at which all successors [n], in order, find their units free. */
static size_t find_base(Build *build, const unsigned char *bytes, int n) {
    const PieceTrie *trie = build->trie;
    size_t at = build->first_free;
    if (at <= bytes[0]) at = (size_t)bytes[0] + 1; /* base 0 would make the root a successor */
    for (int tries = 0; tries < MOST_TRIES && at < build->end; tries++, at++) {
        size_t base = at - bytes[0];
        int fits = 0;
        while (fits < n && trie->units[base + bytes[fits]].parent == FREE) fits++;
        if (fits == n) return base;
    }
    if (at < build->end) build->first_free += MOST_TRIES / 4;
    return build->end; /* above it all is free */
}

static bool place(Build *build, const Pending *pending) {
    PieceTrie *trie = build->trie;
    unsigned char bytes[256];
    uint32_t begins[257], at = pending->begin;
    int n = 0;
    if (at < pending->end && build->pieces[at].length == pending->depth) {
        trie->units[pending->state].id = build->pieces[at++].id;
    }
    for (; at < pending->end; at++) {
        unsigned char byte = build->pieces[at].bytes[pending->depth];
        if (n > 0 && bytes[n - 1] == byte) continue;
        begins[n] = at;
        bytes[n++] = byte;
    }
    if (n == 0) return true; /* its base, 0, leads nowhere */
    begins[n] = pending->end;
    size_t base = find_base(build, bytes, n);
    if (!reserve(trie, base + ROOM)) return false;
    trie->units[pending->state].base = (uint32_t)base;
    if (build->n_queue + (size_t)n > build->queue_capacity) {
        build->queue_capacity = 2 * (build->n_queue + (size_t)n);
        build->queue = memory_grow(build->queue, build->queue_capacity * sizeof(Pending));
    }
    for (int i = n - 1; i >= 0; i--) {
        uint32_t child = (uint32_t)base + bytes[i];
        trie->units[child].parent = pending->state;
        build->queue[build->n_queue++] =
            (Pending){child, begins[i], begins[i + 1], pending->depth + 1};
    }
    if (base + bytes[n - 1] >= build->end) build->end = base + bytes[n - 1] + 1;
    while (build->first_free < build->end && trie->units[build->first_free].parent != FREE) {
        build->first_free++;
    }
    return true;
}

bool piece_trie_build(PieceTrie *trie, const Vocabulary *vocabulary, const bool *skips) {
    Build build = {.trie = trie, .first_free = 1, .end = 1};
    uint32_t n = 0;
    build.pieces = memory_alloc(((size_t)vocabulary->n_ids + 1) * sizeof(Piece));
    build.queue = memory_alloc(64 * sizeof(Pending));
    build.queue_capacity = 64;
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(vocabulary, id, &length);
        if (length && !skips[id]) build.pieces[n++] = (Piece){bytes, (uint32_t)length, id};
    }
    qsort(build.pieces, n, sizeof(Piece), compare_pieces);
    bool good = reserve(trie, ROOM);
    trie->units[0].parent = NOWHERE;
    build.queue[build.n_queue++] = (Pending){0, 0, n, 0};
    while (good && build.n_queue > 0) {
        Pending pending = build.queue[--build.n_queue];
        good = place(&build, &pending);
    }
    free(build.pieces);
    free(build.queue);
    return good;
}
