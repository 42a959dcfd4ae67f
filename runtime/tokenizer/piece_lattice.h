/* All ways to divide a word into pieces, and how likely each piece is in them: the E step of
 * learning a Unigram (Kudo 2018, arXiv 1804.10959), by forward-backward over the word's places.
 *
 * A place is a number of bytes from the word's beginning. Sums are relative to the best way to each
 * place, so that every term is at most 1: nothing underflows, and of words of at most
 * LATTICE_MOST_CHARACTERS, which have fewer than 2^1023 ways, nothing overflows. */
#ifndef RUNTIME_TOKENIZER_PIECE_LATTICE_H
#define RUNTIME_TOKENIZER_PIECE_LATTICE_H

#include "runtime/tokenizer/piece_trie.h"

enum { LATTICE_MOST_CHARACTERS = 512 };

typedef struct PieceEdge {
    uint32_t begin, end; /* places */
    uint32_t id;
    double share; /* of the ways, by their likelihood, that have it: lattice_expect */
} PieceEdge;

/* Room of one thread, zeroed at first. Edges are in the order of their beginnings. */
typedef struct PieceLattice {
    PieceEdge *edges;
    size_t n_edges, edges_capacity;
    double *best;            /* [length + 1] log likelihood of the best way there */
    uint32_t *last;          /* [length + 1] the last edge on it; NO_TOKEN: there is no way */
    double *before, *behind; /* [length + 1] sums over the ways to a place, and from it on */
    size_t length, capacity;
} PieceLattice;
void piece_lattice_release(PieceLattice *lattice);

/* The word's edges and best ways, of the pieces in `trie`; scores [n_ids] are log probabilities.
 * without: a piece that is left out, or NO_TOKEN. False: there is no way to the word's end. */
bool lattice_build(PieceLattice *lattice, const PieceTrie *trie, const double *scores,
                   const unsigned char *word, size_t length, uint32_t without);

/* The edges' shares, of what was built; returns the log likelihood of the word, which is the log of
 * the sum over all ways. Its derivative by a piece's score is the sum of that piece's shares. */
double lattice_expect(PieceLattice *lattice, const double *scores);

#endif
