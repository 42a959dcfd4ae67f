/* Words -> the pieces that a vocabulary has of them, where nothing is merged: Unigram's most likely
 * division (Kudo 2018), and WordPiece's longest matches (Wu et al. 2016; Devlin et al. 2018). */
#ifndef RUNTIME_TOKENIZER_PIECES_H
#define RUNTIME_TOKENIZER_PIECES_H

#include "runtime/tokenizer/piece_trie.h"

typedef struct Pieces {
    PieceTrie trie;
    double *scores;         /* of Unigram: log probabilities [n_ids] */
    double unknown_score;   /* of a character that has no piece */
    bool byte_fallback;     /* of Unigram: what is unknown is spelled in bytes */
    uint32_t inside;        /* of WordPiece: the state behind the prefix of pieces within a word; */
    bool has_inside;        /* false: no piece has it */
    size_t most_characters; /* of WordPiece: longer words are unknown */
} Pieces;
void pieces_release(Pieces *pieces);

/* The ways to divide a word, of one thread; zeroed at first. */
typedef struct PiecePath {
    double *scores;  /* of the best way to a place */
    uint32_t *steps; /* where the last piece on it began; then, where the piece from here on ends */
    uint32_t *ids;   /* that piece, or NO_TOKEN: a character that is unknown */
    size_t capacity;
} PiecePath;
void piece_path_release(PiecePath *path);

/* word [length] -> path: from 0 on, steps[at] is where the piece at `at` ends, and ids[steps[at]]
 * is which one it is. Of equals the one that was found first counts, as in Hugging Face's. */
void unigram_divide(const Pieces *pieces, PiecePath *path, const unsigned char *word,
                    size_t length);

/* -> out, room for `length`; how many pieces. 0: the word is unknown. */
size_t wordpiece_divide(const Pieces *pieces, const unsigned char *word, size_t length,
                        uint32_t *out);

#endif
