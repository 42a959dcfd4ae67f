/* Tokens in a row, in memory that grows. */
#ifndef RUNTIME_TOKENIZER_TOKEN_LIST_H
#define RUNTIME_TOKENIZER_TOKEN_LIST_H

#include "ir/base/diag.h"
#include "ir/base/hash.h"
#include "ir/base/memory.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct TokenList {
    uint32_t *items;
    size_t count, capacity;
} TokenList;

static inline void token_list_reserve(TokenList *list, size_t more) {
    if (more <= list->capacity - list->count) return;
    list->capacity = 2 * (list->count + more) + 64;
    list->items = memory_grow(list->items, list->capacity * sizeof(*list->items));
}

static inline void token_list_add(TokenList *list, uint32_t token) {
    token_list_reserve(list, 1);
    list->items[list->count++] = token;
}

/* Of these tokens, behind those of `digest`: to compare what processes have. */
static inline uint64_t token_list_digest(uint64_t digest, const TokenList *list) {
    return hash_bytes(list->items, list->count * sizeof(*list->items), digest);
}

static inline void token_list_release(TokenList *list) {
    free(list->items);
    *list = (TokenList){0};
}

/* What is known of each token of a list besides, a byte each (TOKEN_COUNTS and others). */
typedef struct TokenMarks {
    unsigned char *items;
    size_t count, capacity;
} TokenMarks;

/* Up to `count`, with `mark`. */
static inline void token_marks_fill(TokenMarks *marks, size_t count, unsigned char mark) {
    if (count > marks->capacity) {
        marks->capacity = 2 * count + 64;
        marks->items = memory_grow(marks->items, marks->capacity);
    }
    if (count > marks->count) memset(marks->items + marks->count, mark, count - marks->count);
    if (count > marks->count) marks->count = count;
}

static inline void token_marks_release(TokenMarks *marks) {
    free(marks->items);
    *marks = (TokenMarks){0};
}

#endif
