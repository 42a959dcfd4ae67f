/* Files: read whole with a limit, written whole or not at all, mapped read-only. */
#ifndef IR_BASE_FILE_H
#define IR_BASE_FILE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

/* Reads a regular file of at most limit_bytes; the text is terminated. Reports and returns NULL. */
char *file_read(Arena *arena, const char *path, size_t limit_bytes, size_t *out_length, Diag *diag);

/* The first n bytes of a regular file: tells what kind it is. False, silently: there is none with
 * so many that can be read. */
bool file_read_head(const char *path, void *out, size_t n);

/* A file without a name, or under a temporary one beside `path` where the file system has no such
 * files, which replaces `path` on commit (fsync, rename). Without commit nothing is left behind; if
 * the process is killed, the file with the temporary name is, but where a handler of the signal
 * removes it (temporary.h). */
typedef struct FileWriter FileWriter;
FileWriter *file_writer_open(const char *path, Diag *diag);
bool file_writer_put(FileWriter *writer, const void *bytes, size_t length, Diag *diag);
/* Puts other bytes in the place of some that were put before. */
bool file_writer_replace(FileWriter *writer, size_t at, const void *bytes, size_t length,
                         Diag *diag);
/* All bytes are on the disk, under no name yet: of several files, before the first is committed. */
bool file_writer_finish(FileWriter *writer, Diag *diag);
bool file_writer_commit(FileWriter *writer, Diag *diag); /* frees the writer, either way */
void file_writer_abandon(FileWriter *writer);
/* How many files beside `path` are what a killed process had begun to write in its place (or one
 * that is writing now), and the name of one: up to size - 1 bytes. */
int file_count_unfinished(const char *path, char *out_name, size_t size);

/* A file that several processes write at once. One opens it and commits it; reserve gives it its
 * size and its temporary name, which file_writer_temporary says (the writer's), so that others open
 * it as parts: those of another size are refused. Parts may not overlap, nor reach into what the
 * writer itself puts. All must have closed their parts, and well, before the writer commits. */
bool file_writer_reserve(FileWriter *writer, size_t length, Diag *diag);
const char *file_writer_temporary(const FileWriter *writer);
typedef struct FilePart FilePart;
FilePart *file_part_open(const char *temporary_path, size_t length, Diag *diag);
bool file_part_put(FilePart *part, size_t at, const void *bytes, size_t length, Diag *diag);
bool file_part_close(FilePart *part, Diag *diag); /* its bytes are on the disk then; frees it */

/* Gives a file that is there a second name, without a copy; a regular file that had the name goes.
 * Reports: where the file system has no hard links, too. */
bool file_link(const char *path, const char *name, Diag *diag);

/* A folder and those that it is to be in, where they are not there yet; false: errno says why. */
bool file_make_folders(const char *path, unsigned mode);

/* A file in one call. */
bool file_write(const char *path, const void *bytes, size_t length, Diag *diag);

/* A read-only mapping of a regular file. An empty file maps to {NULL, 0} and is not an error. */
typedef struct FileMap {
    const unsigned char *data;
    size_t length_bytes;
} FileMap;
bool file_map(const char *path, FileMap *out_map, Diag *diag);
void file_unmap(FileMap *map);
/* A part of a mapping that has been read: no longer resident; reading it again brings it back. */
void file_map_forget(const void *data, size_t length);

#endif
