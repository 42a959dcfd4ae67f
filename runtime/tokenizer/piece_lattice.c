#include "runtime/tokenizer/piece_lattice.h"

#include "ir/base/memory.h"

#include <math.h>
#include <stdlib.h>

void piece_lattice_release(PieceLattice *lattice) {
    free(lattice->edges);
    free(lattice->best);
    free(lattice->last);
    free(lattice->before);
    free(lattice->behind);
    *lattice = (PieceLattice){0};
}

static void reserve(PieceLattice *lattice, size_t n) {
    if (n <= lattice->capacity) return;
    piece_lattice_release(lattice);
    lattice->capacity = 2 * n;
    lattice->best = memory_alloc(lattice->capacity * sizeof(double));
    lattice->before = memory_alloc(lattice->capacity * sizeof(double));
    lattice->behind = memory_alloc(lattice->capacity * sizeof(double));
    lattice->last = memory_alloc(lattice->capacity * sizeof(uint32_t));
}

static void add_edge(PieceLattice *lattice, size_t begin, size_t end, uint32_t id, double score) {
    if (lattice->n_edges == lattice->edges_capacity) {
        lattice->edges_capacity = 2 * lattice->edges_capacity + 64;
        lattice->edges = memory_grow(lattice->edges, lattice->edges_capacity * sizeof(PieceEdge));
    }
    double likely = lattice->best[begin] + score;
    if (likely > lattice->best[end]) {
        lattice->best[end] = likely;
        lattice->last[end] = (uint32_t)lattice->n_edges;
    }
    lattice->edges[lattice->n_edges++] = (PieceEdge){(uint32_t)begin, (uint32_t)end, id, 0};
}

bool lattice_build(PieceLattice *lattice, const PieceTrie *trie, const double *scores,
                   const unsigned char *word, size_t length, uint32_t without) {
    reserve(lattice, length + 1);
    lattice->length = length;
    lattice->n_edges = 0;
    for (size_t i = 0; i <= length; i++) {
        lattice->best[i] = -INFINITY;
        lattice->last[i] = NO_TOKEN;
    }
    lattice->best[0] = 0;
    for (size_t begin = 0; begin < length; begin++) {
        uint32_t state = 0;
        if (lattice->best[begin] == -INFINITY) continue;
        for (size_t at = begin; at < length;) {
            state = piece_trie_step(trie, state, word[at++]);
            if (!state) break;
            uint32_t id = trie->units[state].id;
            if (id == NO_TOKEN || id == without || scores[id] == -INFINITY) continue;
            add_edge(lattice, begin, at, id, scores[id]);
        }
    }
    return lattice->best[length] > -INFINITY;
}

double lattice_expect(PieceLattice *lattice, const double *scores) {
    size_t n = lattice->length;
    double *before = lattice->before, *behind = lattice->behind;
    const double *best = lattice->best;
    for (size_t i = 0; i <= n; i++) before[i] = behind[i] = 0;
    before[0] = behind[n] = 1;
    for (size_t i = 0; i < lattice->n_edges; i++) {
        PieceEdge *edge = &lattice->edges[i];
        edge->share = exp(best[edge->begin] + scores[edge->id] - best[edge->end]);
        before[edge->end] += before[edge->begin] * edge->share;
    }
    for (size_t i = lattice->n_edges; i-- > 0;) {
        PieceEdge *edge = &lattice->edges[i];
        behind[edge->begin] += edge->share * behind[edge->end];
        edge->share *= before[edge->begin] * behind[edge->end] / before[n];
    }
    return best[n] + log(before[n]);
}
