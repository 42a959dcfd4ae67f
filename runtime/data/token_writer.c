#include "runtime/data/token_writer.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "runtime/data/token_mask.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LLMC_HEADER_BYTES = 256 * 4, BUFFERED = 8192 };

/* Version 1.0; 118 bytes follow. */
static const unsigned char NPY_BEGIN[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};

struct TokenWriter {
    FileWriter *file, *mask; /* mask NULL: all tokens so far count */
    Arena *arena;
    const char *path, *mask_path;
    int token_bytes;
    bool npy, failed;
    int64_t n_tokens;
};

size_t npy_make_header(const char *type, int64_t count, int64_t width, unsigned char *out) {
    char text[NPY_HEADER_BYTES], columns[24] = "";
    if (width > 0) snprintf(columns, sizeof(columns), " %" PRId64, width);
    int n = snprintf(text, sizeof(text),
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRId64 ",%s), }", type,
                     count, columns);
    memset(out, ' ', NPY_HEADER_BYTES);
    memcpy(out, NPY_BEGIN, sizeof(NPY_BEGIN));
    memcpy(out + 10, text, (size_t)n);
    out[NPY_HEADER_BYTES - 1] = '\n';
    return NPY_HEADER_BYTES;
}

/* The header of so many tokens; returns its bytes. */
static size_t make_header(const TokenWriter *writer, unsigned char *out) {
    int32_t llmc[256] = {writer->token_bytes == 2 ? 20240520 : 20240801,
                         writer->token_bytes == 2 ? 1 : 7, (int32_t)writer->n_tokens};
    if (!writer->npy) {
        memcpy(out, llmc, sizeof(llmc));
        return sizeof(llmc);
    }
    return npy_make_header(writer->token_bytes == 2 ? "<u2" : "<u4", writer->n_tokens, 0, out);
}

TokenWriter *token_writer_open(const char *path, int token_bytes, Diag *diag) {
    unsigned char header[LLMC_HEADER_BYTES];
    size_t length = strlen(path);
    FileWriter *file = file_writer_open(path, diag);
    if (!file) return NULL;
    TokenWriter *writer = calloc(1, sizeof(*writer));
    if (!writer) BUG("out of memory");
    writer->arena = arena_create();
    writer->path = arena_strdup(writer->arena, path);
    writer->mask_path = token_mask_name(writer->arena, path);
    writer->file = file;
    writer->token_bytes = token_bytes;
    writer->npy = length > 4 && strcmp(path + length - 4, ".npy") == 0;
    if (file_writer_put(file, header, make_header(writer, header), diag)) return writer;
    token_writer_abandon(writer);
    return NULL;
}

static bool put(TokenWriter *writer, const void *data, size_t bytes, Diag *diag) {
    if (!file_writer_put(writer->file, data, bytes, diag)) writer->failed = true;
    return !writer->failed;
}

bool token_writer_failed(const TokenWriter *writer) {
    return writer->failed;
}

const char *token_writer_mask(const TokenWriter *writer) {
    return writer->mask ? writer->mask_path : NULL;
}

static bool put_counts(TokenWriter *writer, const unsigned char *marks, int64_t count, Diag *diag) {
    unsigned char bytes[BUFFERED];
    for (int64_t at = 0; at < count;) {
        int64_t n = count - at < BUFFERED ? count - at : BUFFERED;
        for (int64_t i = 0; i < n; i++) bytes[i] = marks ? marks[at + i] & TOKEN_COUNTS : 1;
        if (!file_writer_put(writer->mask, bytes, (size_t)n, diag)) {
            writer->failed = true;
            return false;
        }
        at += n;
    }
    return true;
}

/* Begins with the first token that does not count. */
static bool put_mask(TokenWriter *writer, const unsigned char *marks, size_t count, Diag *diag) {
    unsigned char header[LLMC_HEADER_BYTES];
    size_t i = 0;
    while (!writer->mask && i < count && marks[i] & TOKEN_COUNTS) i++;
    if (i == count) return true;
    if (!writer->mask) {
        writer->mask = file_writer_open(writer->mask_path, diag);
        size_t length = npy_make_header("|b1", 0, 0, header);
        writer->failed = !writer->mask || !file_writer_put(writer->mask, header, length, diag);
        if (writer->failed || !put_counts(writer, NULL, writer->n_tokens, diag)) return false;
    }
    return put_counts(writer, marks, (int64_t)count, diag);
}

static bool put_all(TokenWriter *writer, const uint32_t *tokens, size_t count, Diag *diag) {
    uint16_t narrow[BUFFERED];
    if (writer->token_bytes == 4) return put(writer, tokens, count * sizeof(*tokens), diag);
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BUFFERED ? count - at : BUFFERED;
        for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)tokens[at + i];
        if (!put(writer, narrow, n * sizeof(*narrow), diag)) return false;
        at += n;
    }
    return true;
}

bool token_writer_put(TokenWriter *writer, const uint32_t *tokens, const unsigned char *marks,
                      size_t count, Diag *diag) {
    if (!writer->npy && count > (size_t)(INT32_MAX - writer->n_tokens)) {
        diag_error(diag, (SourceLoc){writer->path, 0},
                   "more than %d tokens do not fit into a file of this kind; write a .npy, or "
                   "several files",
                   INT32_MAX);
        return false;
    }
    if (!put_mask(writer, marks, count, diag)) return false;
    writer->n_tokens += (int64_t)count;
    return put_all(writer, tokens, count, diag);
}

static void release(TokenWriter *writer) {
    arena_destroy(writer->arena);
    free(writer);
}

/* Both are on the disk before either has its name: a full disk leaves the old pair. */
static bool finish_both(TokenWriter *writer, Diag *diag) {
    unsigned char header[LLMC_HEADER_BYTES];
    size_t length = make_header(writer, header);
    file_writer_replace(writer->file, 0, header, length, diag);
    if (!file_writer_finish(writer->file, diag)) return false;
    if (!writer->mask) return true;
    length = npy_make_header("|b1", writer->n_tokens, 0, header);
    file_writer_replace(writer->mask, 0, header, length, diag);
    return file_writer_finish(writer->mask, diag);
}

bool token_writer_commit(TokenWriter *writer, Diag *diag) {
    if (!finish_both(writer, diag)) {
        token_writer_abandon(writer);
        return false;
    }
    /* The mask first: tokens are never without theirs. */
    bool good = !writer->mask || file_writer_commit(writer->mask, diag);
    if (!good) {
        file_writer_abandon(writer->file);
    } else {
        good = file_writer_commit(writer->file, diag);
    }
    if (good && !writer->mask && unlink(writer->mask_path) != 0 && errno != ENOENT) {
        diag_error(diag, (SourceLoc){writer->mask_path, 0},
                   "cannot be removed, though all tokens of %s count: %s", writer->path,
                   strerror(errno));
        good = false;
    }
    release(writer);
    return good;
}

void token_writer_abandon(TokenWriter *writer) {
    if (!writer) return;
    file_writer_abandon(writer->file);
    if (writer->mask) file_writer_abandon(writer->mask);
    release(writer);
}
