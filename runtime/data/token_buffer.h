/* Tokens in memory as they come, 2 or 4 bytes each, with what is known of each (token_mask.h). */
#ifndef RUNTIME_DATA_TOKEN_BUFFER_H
#define RUNTIME_DATA_TOKEN_BUFFER_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Zeroed but for token_bytes at first. */
typedef struct TokenBuffer {
    size_t token_bytes;
    unsigned char *tokens; /* [n_tokens * token_bytes], from malloc */
    unsigned char *marks;  /* [n_tokens], from malloc */
    size_t n_tokens, capacity;
} TokenBuffer;

/* False: there is no memory; reported. */
bool token_buffer_put(TokenBuffer *buffer, const uint32_t *tokens, const unsigned char *marks,
                      size_t count, Diag *diag);
/* Room for so many, zeroed; false: there is no memory; reported. */
bool token_buffer_create(TokenBuffer *buffer, size_t token_bytes, size_t n_tokens, Diag *diag);
void token_buffer_release(TokenBuffer *buffer);

/* The marks as a mask, of 1 and 0; NULL: all count. Takes them out of the buffer. */
unsigned char *token_buffer_take_mask(TokenBuffer *buffer);

static inline uint32_t token_buffer_at(const TokenBuffer *buffer, size_t i) {
    uint32_t four;
    uint16_t two;
    if (buffer->token_bytes == 4) {
        memcpy(&four, buffer->tokens + 4 * i, 4);
        return four;
    }
    memcpy(&two, buffer->tokens + 2 * i, 2);
    return two;
}

static inline void token_buffer_set(TokenBuffer *buffer, size_t i, uint32_t token) {
    uint16_t two = (uint16_t)token;
    if (buffer->token_bytes == 4) {
        memcpy(buffer->tokens + 4 * i, &token, 4);
    } else {
        memcpy(buffer->tokens + 2 * i, &two, 2);
    }
}

#endif
