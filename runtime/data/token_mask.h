/* Which tokens of a file count as labels: a mask beside it, NAME.mask.npy for NAME, as NumPy
 * writes it: a boolean or u1, 1 or 0, for each token. What a model answers counts, what it is asked
 * does not. A file without a mask counts whole. */
#ifndef RUNTIME_DATA_TOKEN_MASK_H
#define RUNTIME_DATA_TOKEN_MASK_H

#include "ir/base/arena.h"
#include "runtime/data/token_file.h"

/* What is known of a token besides: a byte of these for each. TOKEN_AROUND: it is no text's own,
 * but stands before, between or behind texts that have a class. */
enum {
    TOKEN_COUNTS = 1,
    TOKEN_BEGINS = 2, /* a document */
    TOKEN_AROUND = 4,
    TOKEN_SECOND = 8,  /* the first one behind the first of two texts */
    TOKEN_WANTED = 16, /* the first one of a document whose answer is desirable */
};

/* A mask is no data, though it lies in a folder of them. */
bool token_mask_is_name(const char *path);
const char *token_mask_name(Arena *arena, const char *path);

/* Gives the file its mask, if one lies beside it. False, reported: a mask of another length or
 * type, or with other numbers in it. */
bool token_mask_open(TokenFile *file, Diag *diag);

#endif
