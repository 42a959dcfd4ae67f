#include "runtime/data/token_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAGIC_BYTES = 9, HEADER_BYTES = MAGIC_BYTES + 8 + 1 + 8 + 8, END_BYTES = 4 };

static const char MAGIC[MAGIC_BYTES] = "MMIDIDX\0"; /* and the string's own 0 */

/* By their number in an index; 0 bytes: no tokens. */
static const struct {
    const char *name;
    int bytes;
    bool is_signed;
} TYPES[] = {{"?", 0, false},       {"uint8", 1, false},   {"int8", 0, true},
             {"int16", 2, true},    {"int32", 4, true},    {"int64", 8, true},
             {"float64", 0, false}, {"float32", 0, false}, {"uint16", 2, false}};

bool token_index_has_header(const unsigned char *bytes, size_t length) {
    return length >= MAGIC_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0;
}

static bool ends_in(const char *path, const char *end) {
    size_t n = strlen(path);
    return n > END_BYTES && strcmp(path + n - END_BYTES, end) == 0;
}

bool token_index_is_name(const char *path) {
    return ends_in(path, ".idx");
}

char *token_index_other_name(const char *path) {
    char *other = strdup(path);
    if (!other) BUG("out of memory");
    memcpy(other + strlen(other) - END_BYTES, token_index_is_name(path) ? ".bin" : ".idx",
           END_BYTES);
    return other;
}

bool token_index_is_beside(const char *path) {
    if (!ends_in(path, ".bin")) return false;
    char *name = token_index_other_name(path);
    unsigned char begin[MAGIC_BYTES];
    struct stat st;
    FILE *file = stat(name, &st) == 0 && S_ISREG(st.st_mode) ? fopen(name, "rb") : NULL;
    bool found = file && token_index_has_header(begin, fread(begin, 1, sizeof(begin), file));
    if (file) fclose(file);
    free(name);
    return found;
}

static uint64_t read_u64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Every sequence begins where the one before ends, the last one at the end of the tokens. */
static bool check_sequences(const TokenFile *file, const unsigned char *lengths, uint64_t count,
                            SourceLoc loc, Diag *diag) {
    const unsigned char *begins = lengths + count * sizeof(int32_t);
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t length;
        memcpy(&length, lengths + i * sizeof(length), sizeof(length));
        uint64_t begin = read_u64(begins + i * sizeof(begin));
        if (length < 0 || begin != at) {
            diag_error(diag, loc,
                       "sequence %llu has %d tokens from byte %llu on, but the one before ends at "
                       "byte %llu: only sequences one behind the other are read",
                       (unsigned long long)i, length, (unsigned long long)begin,
                       (unsigned long long)at);
            return false;
        }
        at += (uint64_t)length * (uint64_t)file->token_bytes;
    }
    if (at == file->map.length_bytes) return true;
    diag_error(diag, loc, "promises %llu bytes of tokens, but %s has %zu", (unsigned long long)at,
               file->path, file->map.length_bytes);
    return false;
}

static bool read(TokenFile *file, const FileMap *index, SourceLoc loc, Diag *diag) {
    const unsigned char *data = index->data;
    size_t left = index->length_bytes - HEADER_BYTES;
    uint64_t version = read_u64(data + MAGIC_BYTES);
    unsigned type = data[MAGIC_BYTES + 8];
    uint64_t count = read_u64(data + MAGIC_BYTES + 9);
    if (version != 1) {
        diag_error(diag, loc, "index of version %llu; version 1 is known",
                   (unsigned long long)version);
        return false;
    }
    if (type >= sizeof(TYPES) / sizeof(TYPES[0]) || TYPES[type].bytes == 0) {
        diag_error(diag, loc,
                   "says that tokens are of type %u (%s): they must be uint8, uint16, int16, int32 "
                   "or int64",
                   type, type < sizeof(TYPES) / sizeof(TYPES[0]) ? TYPES[type].name : "unknown");
        return false;
    }
    if (count > left / (sizeof(int32_t) + sizeof(int64_t))) {
        diag_error(diag, loc, "index of %zu bytes ends inside its %llu sequences",
                   index->length_bytes, (unsigned long long)count);
        return false;
    }
    file->token_bytes = TYPES[type].bytes;
    file->is_signed = TYPES[type].is_signed;
    file->tokens = file->map.data;
    file->n_tokens = (int64_t)(file->map.length_bytes / (size_t)file->token_bytes);
    return check_sequences(file, data + HEADER_BYTES, count, loc, diag);
}

bool token_index_read(TokenFile *file, Diag *diag) {
    char *path = token_index_other_name(file->path);
    SourceLoc loc = {path, 0};
    FileMap index = {0};
    bool good = file_map(path, &index, diag);
    if (good && index.length_bytes < HEADER_BYTES) {
        diag_error(diag, loc, "index of %zu bytes ends inside its header", index.length_bytes);
        good = false;
    }
    good = good && read(file, &index, loc, diag);
    file_unmap(&index);
    free(path);
    return good;
}
