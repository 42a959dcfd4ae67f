/* Where the documents of packed sequences begin and end, and the numbers of a token. */
#ifndef RUNTIME_CPU_DOCUMENTS_H
#define RUNTIME_CPU_DOCUMENTS_H

#include "ir/type.h"

/* tokens [rows, n], of which positions in `place` are looked for, which are less than n. */
typedef struct DocumentsShape {
    int64_t rows, n, kept;
    DimSpan place;
    int32_t separator;
    bool apart; /* a separator is a document by itself, not the last token of the one before it */
} DocumentsShape;

typedef struct NgramRule {
    int32_t by, count;
    uint32_t seed;
} NgramRule;

/* starts, places, ends, hashes [rows, kept]. A row begins a document, and so does what follows a
 * separator. starts: the position at which a position's document begins; places: how far the
 * position is from there. */
void documents_find(const DocumentsShape *shape, const int32_t *tokens, int32_t *starts,
                    int32_t *places);
/* ends: the position after the last of a position's document. */
void documents_find_ends(const DocumentsShape *shape, const int32_t *tokens, int32_t *ends);
/* hashes: of each position's last `by` tokens (ir/ngram.h). */
void documents_hash(const DocumentsShape *shape, const NgramRule *rule, const int32_t *tokens,
                    int32_t *hashes);
/* numbers: of a position that has the token `separator` how many before it have it, else -1. */
void documents_count(const DocumentsShape *shape, const int32_t *tokens, int32_t *numbers);

#endif
