/* Arena: memory with one life span (a model, a plan, a step).
 *
 * Everything allocated from an arena is freed together by arena_destroy; nothing is freed alone.
 * Memory comes back zeroed and aligned to 16 bytes. When the system has no memory left the
 * program ends with a message: callers never see NULL.
 */
#ifndef IR_BASE_ARENA_H
#define IR_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_create(void);
void arena_destroy(Arena *arena);

/* From here on `other` is destroyed with the arena. */
void arena_own(Arena *arena, Arena *other);

/* `bytes` zeroed bytes, owned by the arena. */
void *arena_alloc(Arena *arena, size_t bytes);
/* A copy of `text` (NULL stays NULL). */
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);
/* Grows an array inside the arena: a new block of new_count elements that starts with the old. */
void *arena_grow(Arena *arena, const void *old, size_t old_bytes, size_t new_bytes);

#define ARENA_NEW(arena, T)          ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, count) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(count)))

/* Appends `value` to an arena-owned growable array {items, count, capacity}. */
#define ARENA_PUSH(arena, items, count, capacity, value)                                           \
    do {                                                                                           \
        if ((count) == (capacity)) {                                                               \
            size_t grown_ = (capacity) ? 2 * (size_t)(capacity) : 8;                               \
            (items) = arena_grow((arena), (items), sizeof(*(items)) * (size_t)(count),             \
                                 sizeof(*(items)) * grown_);                                       \
            (capacity) = (int)grown_;                                                              \
        }                                                                                          \
        (items)[(count)++] = (value);                                                              \
    } while (0)

#endif
