#include "ir/base/arena.h"

#include "ir/base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Block {
    struct Block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
} Block;

struct Arena {
    Block *blocks;
    Arena *owned, *next; /* the first of those that it owns; the next of its owner's */
};

/* AddressSanitizer is told what of a block is allocated, to the byte: running over an end shows, as
 * it would with malloc, which takes several times as long. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
enum { GUARD_BYTES = 32 };
#else
enum { GUARD_BYTES = 0 };
#define ASAN_POISON_MEMORY_REGION(memory, bytes)   ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif
enum { FIRST_BYTES = 8 * 1024, BLOCK_BYTES = 64 * 1024, ALIGNMENT = 16 };

Arena *arena_create(void) {
    Arena *arena = calloc(1, sizeof(*arena));
    if (!arena) memory_exhausted(sizeof(*arena));
    return arena;
}

void arena_own(Arena *arena, Arena *other) {
    other->next = arena->owned;
    arena->owned = other;
}

void arena_destroy(Arena *arena) {
    if (!arena) return;
    for (Arena *owned = arena->owned, *next; owned; owned = next) {
        next = owned->next;
        arena_destroy(owned);
    }
    for (Block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

void *arena_alloc(Arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) memory_exhausted(bytes);
    const size_t room = (bytes + GUARD_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    Block *block = arena->blocks;
    if (!block || block->size - block->used < room) {
        size_t usual = block ? BLOCK_BYTES : FIRST_BYTES;
        size_t size = room > usual / 4 ? room : usual;
        Block *fresh = calloc(1, sizeof(*fresh) + size);
        if (!fresh) memory_exhausted(size);
        fresh->size = size;
        ASAN_POISON_MEMORY_REGION(fresh->data, size);
        /* A large block goes behind the head, so that the head's free room stays in use. */
        if (block && size == room) {
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *memory = block->data + block->used;
    block->used += room;
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    return memory;
}

void *arena_grow(Arena *arena, const void *old, size_t old_bytes, size_t new_bytes) {
    void *grown = arena_alloc(arena, new_bytes);
    if (old_bytes) memcpy(grown, old, old_bytes);
    return grown;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
    char *copy = arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
    return text ? arena_strndup(arena, text, strlen(text)) : NULL;
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
    char usual[256];
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(usual, sizeof usual, format, args);
    char *text = arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1);
    if (length > 0 && (size_t)length < sizeof usual)
        memcpy(text, usual, (size_t)length);
    else if (length > 0)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}
