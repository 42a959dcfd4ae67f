/* Memory of malloc, for what grows by itself or lives with its owner. As with arenas (arena.h),
 * callers never see NULL: where the system has none left, the program ends with a message. */
#ifndef IR_BASE_MEMORY_H
#define IR_BASE_MEMORY_H

#include <stddef.h>

/* Says so in a line, and ends the program with status 1. bytes: asked for; 0: not known. */
_Noreturn void memory_exhausted(size_t bytes);

/* All to be freed by free(). */
void *memory_alloc(size_t bytes);
void *memory_zeroed(size_t count, size_t size_bytes);
/* realloc: `old` is gone. */
void *memory_grow(void *old, size_t bytes);
/* The first `length` characters of text, terminated, or fewer if it ends before. */
char *memory_strndup(const char *text, size_t length);

#endif
