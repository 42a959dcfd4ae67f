/* Division of text into words, which are then merged each by itself: the pre-tokenizers of
 * tokenizer.json, as steps that each divide what the one before left whole. */
#ifndef RUNTIME_TOKENIZER_WORDS_H
#define RUNTIME_TOKENIZER_WORDS_H

#include "runtime/tokenizer/pattern.h"

#include <stdbool.h>
#include <stddef.h>

/* What becomes of a match, as Hugging Face names it; what lies between matches is a word. */
typedef enum SplitBehavior {
    SPLIT_ISOLATED, /* a word */
    SPLIT_REMOVED,  /* left out */
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS, /* a word, together with those that touch it */
} SplitBehavior;

typedef struct WordStep {
    Pattern *pattern; /* owned; NULL: nothing is divided, but spaces become `mark` */
    SplitBehavior behavior;
    bool invert; /* what lies between matches counts as matches, and they as what lies between */
    const char *mark;
    bool prefix; /* a mark in front of what does not begin with one */
} WordStep;

enum { MAX_WORD_STEPS = 16 };

typedef struct WordSteps {
    WordStep items[MAX_WORD_STEPS];
    int count;
} WordSteps;
void word_steps_release(WordSteps *steps);

/* Takes a word; false ends the division. `text`: the word's. is_top: the word ends where the next
 * one of the first step begins. */
typedef bool WordTaker(void *user, const unsigned char *word, size_t length);

typedef struct WordSpace {
    PatternSpace *patterns;
    unsigned char *marked[MAX_WORD_STEPS]; /* texts with their marks */
    size_t capacity[MAX_WORD_STEPS];
} WordSpace;
WordSpace *word_space_create(void);
void word_space_destroy(WordSpace *space);

typedef enum WordResult { WORDS_TAKEN, WORDS_STOPPED, WORDS_CUT_OFF, WORDS_GAVE_UP } WordResult;
/* All words of text [length], valid UTF-8, in order. continues: it goes on from text before it, and
 * no space is put in front of it. WORDS_STOPPED: the taker said so;
 * WORDS_GAVE_UP: a pattern did. */
WordResult words_divide(const WordSteps *steps, WordSpace *space, const unsigned char *text,
                        size_t length, bool continues, WordTaker *take, void *user);

/* The first step alone where it is one that can begin at any place of a text
 * (words_can_begin_anywhere): the piece of text that begins at `from` < length, *out_end its end.
 * goes_on: more text may follow [length]; then WORDS_CUT_OFF: that may decide where it ends. */
WordResult words_next_piece(const WordSteps *steps, WordSpace *space, const unsigned char *text,
                            size_t length, bool goes_on, size_t from, size_t *out_end);
/* Pieces of the first step depend only on what follows their beginning. */
bool words_can_begin_anywhere(const WordSteps *steps);
/* The steps after the first, on one of its pieces. */
WordResult words_divide_piece(const WordSteps *steps, WordSpace *space, const unsigned char *piece,
                              size_t length, WordTaker *take, void *user);

#endif
