/* Files: read whole with a limit, written whole or not at all, mapped read-only. */
#ifndef IR_BASE_FILE_H
#define IR_BASE_FILE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

/* Reads a regular file of at most limit_bytes; the text is terminated. Reports and returns NULL. */
char *file_read(Arena *arena, const char *path, size_t limit_bytes, size_t *out_length, Diag *diag);

/* A file under a temporary name beside `path`, which replaces `path` on commit (fsync, rename).
 * Without commit nothing is left behind. */
typedef struct FileWriter FileWriter;
FileWriter *file_writer_open(const char *path, Diag *diag);
bool file_writer_put(FileWriter *writer, const void *bytes, size_t length, Diag *diag);
bool file_writer_commit(FileWriter *writer, Diag *diag); /* frees the writer, either way */
void file_writer_abandon(FileWriter *writer);

/* All of the above in one call. */
bool file_write(const char *path, const void *bytes, size_t length, Diag *diag);

/* A read-only mapping of a regular file. An empty file maps to {NULL, 0} and is not an error. */
typedef struct FileMap {
    const unsigned char *data;
    size_t length_bytes;
} FileMap;
bool file_map(const char *path, FileMap *out_map, Diag *diag);
void file_unmap(FileMap *map);

#endif
