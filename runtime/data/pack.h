/* Documents into windows of `seq` tokens, each whole in one: best fit, the longest first (Ding et
 * al. 2024, "Fewer Truncations Improve Language Modeling", arXiv 2404.10830). What is left of a
 * window is padding, which does not count. The result depends on the documents and their order
 * only.
 *
 * The first token of a document never counts: what is before it in a window is another one's end.
 * Windows come in the order of their longest documents, so that those at the end, which validation
 * takes, are like the others; documents in one stand in their own order.
 */
#ifndef RUNTIME_DATA_PACK_H
#define RUNTIME_DATA_PACK_H

#include "runtime/data/token_buffer.h"

typedef struct PackOptions {
    size_t seq;
    bool drops_long;  /* documents longer than seq; else they are cut into pieces of seq */
    uint32_t padding; /* the token that it is */
} PackOptions;

typedef struct PackTotals {
    int64_t n_documents;
    int64_t n_long;   /* of them: longer than seq */
    int64_t n_pieces; /* that those were cut into */
    int64_t n_empty;  /* documents and pieces left out: nothing in them counts */
    int64_t n_windows, n_tokens, n_padding;
} PackTotals;

/* The buffer's documents begin where TOKEN_BEGINS says; it then holds n_windows * seq tokens.
 * False: no memory, or nothing to be packed; reported. */
bool pack_documents(TokenBuffer *buffer, const PackOptions *options, PackTotals *out, Diag *diag);

#endif
