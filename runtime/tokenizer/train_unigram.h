/* Learns a Unigram from counts of words (Kudo 2018, arXiv 1804.10959), as SentencePiece's trainer
 * does: many substrings at first (unigram_seeds.h); then, until there are few enough, rounds of two
 * EM steps and one that drops the pieces without which the text's likelihood falls least.
 *
 *   E: how often each piece is expected in the text, over all ways to divide it (piece_lattice.h)
 *   M: score = digamma(expected) - digamma(sum), which takes from rare pieces (Liang & Klein 2007)
 *   drop: a piece's loss is taken for what it is if all of it were divided in the next best way
 *
 * Unlike there, exactly as many pieces as were asked for come out, if there are so many substrings.
 * Counts are summed in fixed point: the result does not depend on how many threads there were. */
#ifndef RUNTIME_TOKENIZER_TRAIN_UNIGRAM_H
#define RUNTIME_TOKENIZER_TRAIN_UNIGRAM_H

#include "runtime/tokenizer/unigram_seeds.h"

typedef struct UnigramOptions {
    uint32_t n_pieces;           /* to have, characters included */
    int most_characters;         /* of a piece, 1 to UNIGRAM_MOST_CHARACTERS */
    size_t most_seeds;           /* longer pieces to begin with */
    const char *const *reserved; /* spellings that are no pieces; so are bytes', <0x41> */
    int n_reserved;
    int n_threads;
    void (*progress)(void *user, int64_t n_done, int64_t n_all); /* passes; may be NULL */
    void *progress_user;
} UnigramOptions;

typedef struct TrainedUnigram {
    Vocabulary pieces;     /* ids from 0, the likeliest first */
    double *scores;        /* [n_ids] log probabilities */
    double log_likelihood; /* of all words, by the last EM step's beginning */
} TrainedUnigram;

/* At least text->n_characters pieces come out, whatever is asked for, as every character is one. */
void train_unigram(const UnigramText *text, const UnigramOptions *options, TrainedUnigram *out);
void trained_unigram_release(TrainedUnigram *trained);

/* The derivative of log gamma, of x > 0. */
double digamma(double x);

#endif
