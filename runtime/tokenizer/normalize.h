/* Normalization Form C of Unicode (UAX #15), by utf8proc, and the replacements of SentencePiece's
 * kind. Text that is in the form already, as nearly all is, is found out about without a copy. */
#ifndef RUNTIME_TOKENIZER_NORMALIZE_H
#define RUNTIME_TOKENIZER_NORMALIZE_H

#include "ir/base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* What is done to text before it is divided into words, in this order. */
typedef struct Normalizer {
    bool nfc;
    const char *prepend;       /* NULL: nothing */
    const char *space;         /* in the place of each space; NULL: it stays */
    bool prepend_before_space; /* also where the text begins with a space (Metaspace does not) */
} Normalizer;

typedef struct NormalText {
    unsigned char *bytes; /* room that is used again */
    size_t length, capacity;
} NormalText;

/* Valid UTF-8 -> *out_text [*out_length]: the text itself, or what `room` holds until the next
 * call. is_first: the text begins a document, or follows a special token. */
void normalize(const Normalizer *normalizer, const unsigned char *text, size_t length,
               bool is_first, NormalText *room, const unsigned char **out_text, size_t *out_length);

#endif
