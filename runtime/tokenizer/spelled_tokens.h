/* The special tokens of a tokenizer by how they are spelled: which of them a text begins with. */
#ifndef RUNTIME_TOKENIZER_SPELLED_TOKENS_H
#define RUNTIME_TOKENIZER_SPELLED_TOKENS_H

#include "ir/base/arena.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct SpelledNode {
    int child, next; /* the first one below, and the next one beside; 0: none */
    unsigned char byte;
    uint32_t token; /* that ends here, or NO_TOKEN */
} SpelledNode;

typedef struct SpelledTokens {
    SpelledNode *nodes; /* the root is 0 */
    int count, capacity;
    bool begins[256];
} SpelledTokens;

void spelled_tokens_build(SpelledTokens *out, const Tokenizer *tokenizer, Arena *arena);
/* The longest one at `text`, within `most` bytes; 0: none, else its length. */
size_t spelled_tokens_at(const SpelledTokens *tokens, const char *text, size_t most,
                         uint32_t *out_token);

#endif
