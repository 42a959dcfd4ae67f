#include "runtime/data/token_buffer.h"

#include "runtime/data/token_mask.h"

#include <stdlib.h>

static bool lack_memory(Diag *diag) {
    diag_error(diag, NO_LOC,
               "no memory for the tokens of this text; `perilune tokenizer encode` writes them to "
               "a file");
    return false;
}

static bool reserve(TokenBuffer *buffer, size_t more, Diag *diag) {
    if (more <= buffer->capacity - buffer->n_tokens) return true;
    size_t capacity = buffer->n_tokens + buffer->n_tokens / 2 + more;
    unsigned char *tokens = realloc(buffer->tokens, capacity * buffer->token_bytes);
    if (tokens) buffer->tokens = tokens;
    unsigned char *marks = tokens ? realloc(buffer->marks, capacity) : NULL;
    if (marks) buffer->marks = marks;
    if (!tokens || !marks) return lack_memory(diag);
    buffer->capacity = capacity;
    return true;
}

bool token_buffer_put(TokenBuffer *buffer, const uint32_t *tokens, const unsigned char *marks,
                      size_t count, Diag *diag) {
    if (!reserve(buffer, count, diag)) return false;
    for (size_t i = 0; i < count; i++) token_buffer_set(buffer, buffer->n_tokens + i, tokens[i]);
    memcpy(buffer->marks + buffer->n_tokens, marks, count);
    buffer->n_tokens += count;
    return true;
}

bool token_buffer_create(TokenBuffer *buffer, size_t token_bytes, size_t n_tokens, Diag *diag) {
    *buffer = (TokenBuffer){.token_bytes = token_bytes};
    buffer->tokens = calloc(n_tokens + 1, token_bytes);
    buffer->marks = calloc(n_tokens + 1, 1);
    buffer->n_tokens = buffer->capacity = n_tokens;
    if (buffer->tokens && buffer->marks) return true;
    token_buffer_release(buffer);
    return lack_memory(diag);
}

void token_buffer_release(TokenBuffer *buffer) {
    free(buffer->tokens);
    free(buffer->marks);
    *buffer = (TokenBuffer){.token_bytes = buffer->token_bytes};
}

unsigned char *token_buffer_take_mask(TokenBuffer *buffer) {
    unsigned char *mask = buffer->marks;
    bool all = true;
    for (size_t i = 0; i < buffer->n_tokens; i++) {
        mask[i] &= TOKEN_COUNTS;
        all &= mask[i] != 0;
    }
    buffer->marks = NULL;
    if (!all) return mask;
    free(mask);
    return NULL;
}
