#include "ir/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void memory_exhausted(size_t bytes) {
    if (bytes) {
        fprintf(stderr, "perilune: out of memory (asked for %zu bytes)\n", bytes);
    } else {
        fprintf(stderr, "perilune: out of memory\n");
    }
    exit(1);
}

void *memory_alloc(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) memory_exhausted(bytes);
    return memory;
}

void *memory_zeroed(size_t count, size_t size_bytes) {
    void *memory = calloc(count ? count : 1, size_bytes);
    if (!memory) memory_exhausted(count * size_bytes);
    return memory;
}

void *memory_grow(void *old, size_t bytes) {
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory) memory_exhausted(bytes);
    return memory;
}

char *memory_strndup(const char *text, size_t length) {
    char *copy = strndup(text, length);
    if (!copy) memory_exhausted(strnlen(text, length) + 1);
    return copy;
}
