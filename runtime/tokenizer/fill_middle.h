/* Filling in the middle (Bavarian et al. 2022, arXiv 2207.14255): a document is cut at two of its
 * characters, and the part between them stands last, so that a model learns to write what lies
 * between two texts. Each part has a token in front:
 *   prefix first (PSM)  PREFIX prefix SUFFIX suffix MIDDLE middle
 *   suffix first (SPM)  PREFIX SUFFIX suffix MIDDLE prefix middle
 */
#ifndef RUNTIME_TOKENIZER_FILL_MIDDLE_H
#define RUNTIME_TOKENIZER_FILL_MIDDLE_H

#include "runtime/tokenizer/encoder.h"

typedef struct FillMiddle {
    uint32_t prefix, suffix, middle; /* the tokens */
    double rate;                     /* of documents that are cut */
    double spm_rate;                 /* of these, with the suffix first */
    uint64_t seed;
} FillMiddle;

/* The tokens. names: texts or numbers of the three, "P,S,M"; NULL: well-known ones. False:
 * reported. */
bool fill_middle_find(const Tokenizer *tokenizer, const char *names, FillMiddle *out, Diag *diag);

/* The middle of a document [length]; of a text of its own, bytes [begin, end). */
typedef struct MiddleCut {
    size_t begin, end;
    bool suffix_first;
} MiddleCut;
/* Where a document is cut: of its bytes and the seed alone, so the same in any order of work.
 * False: it stays as it is. */
bool fill_middle_draw(const FillMiddle *how, const unsigned char *text, size_t length,
                      MiddleCut *out);
/* A document that is cut, appended. The rest as encoder_encode. */
bool fill_middle_encode(const FillMiddle *how, Encoder *encoder, const unsigned char *text,
                        size_t length, const MiddleCut *cut, bool with_special, TokenList *out,
                        const char *where, Diag *diag);
/* What a model is asked: all but the middle, prefix first. */
bool fill_middle_ask(const FillMiddle *how, Encoder *encoder, const char *prefix, size_t n_prefix,
                     const char *suffix, size_t n_suffix, bool with_special, TokenList *out,
                     const char *where, Diag *diag);

#endif
