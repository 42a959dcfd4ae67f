/* The substrings of words from which a Unigram's pieces are chosen (Kudo 2018, 3.2), found as
 * SentencePiece does: those of a suffix array's intervals, which are all that are followed by
 * different things, or end a word, somewhere; how often each comes times its length decides.
 *
 * Only pieces of so many characters are asked for, so suffixes are sorted by as many and one. */
#ifndef RUNTIME_TOKENIZER_UNIGRAM_SEEDS_H
#define RUNTIME_TOKENIZER_UNIGRAM_SEEDS_H

#include "runtime/tokenizer/unigram_text.h"
#include "runtime/tokenizer/vocabulary.h"

typedef struct UnigramSeeds {
    Vocabulary pieces; /* ids from 0: the text's characters in their order, then longer pieces */
    double *weights;   /* [n_ids] how often it comes, times its characters */
} UnigramSeeds;

/* most_characters: of a piece, 1 to UNIGRAM_MOST_CHARACTERS. most: longer pieces that are kept,
 * the heaviest, of equals the first in the order of their characters. Those that come once are
 * none. */
enum { UNIGRAM_MOST_CHARACTERS = 64 };
void unigram_seeds_find(UnigramSeeds *seeds, const UnigramText *text, int most_characters,
                        size_t most, int n_threads);
void unigram_seeds_release(UnigramSeeds *seeds);

#endif
