#include "runtime/data/token_writer.h"

#include "ir/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LLMC_HEADER_BYTES = 256 * 4, NPY_HEADER_BYTES = 128, BUFFERED = 8192 };

/* Version 1.0; 118 bytes follow. */
static const unsigned char NPY_BEGIN[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};

struct TokenWriter {
    FileWriter *file;
    char *path;
    int token_bytes;
    bool npy, failed;
    int64_t n_tokens;
};

/* The header of so many tokens; returns its bytes. */
static size_t make_header(const TokenWriter *writer, unsigned char *out) {
    int32_t llmc[256] = {writer->token_bytes == 2 ? 20240520 : 20240801,
                         writer->token_bytes == 2 ? 1 : 7, (int32_t)writer->n_tokens};
    if (!writer->npy) {
        memcpy(out, llmc, sizeof(llmc));
        return sizeof(llmc);
    }
    char text[NPY_HEADER_BYTES];
    int n = snprintf(text, sizeof(text),
                     "{'descr': '<u%d', 'fortran_order': False, 'shape': (%" PRId64 ",), }",
                     writer->token_bytes, writer->n_tokens);
    memset(out, ' ', NPY_HEADER_BYTES);
    memcpy(out, NPY_BEGIN, sizeof(NPY_BEGIN));
    memcpy(out + 10, text, (size_t)n);
    out[NPY_HEADER_BYTES - 1] = '\n';
    return NPY_HEADER_BYTES;
}

TokenWriter *token_writer_open(const char *path, int token_bytes, Diag *diag) {
    unsigned char header[LLMC_HEADER_BYTES];
    size_t length = strlen(path);
    FileWriter *file = file_writer_open(path, diag);
    if (!file) return NULL;
    TokenWriter *writer = calloc(1, sizeof(*writer));
    if (!writer || !(writer->path = strdup(path))) BUG("out of memory");
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

bool token_writer_put(TokenWriter *writer, const uint32_t *tokens, size_t count, Diag *diag) {
    uint16_t narrow[BUFFERED];
    if (!writer->npy && count > (size_t)(INT32_MAX - writer->n_tokens)) {
        diag_error(diag, (SourceLoc){writer->path, 0},
                   "more than %d tokens do not fit into a file of this kind; write a .npy, or "
                   "several files",
                   INT32_MAX);
        return false;
    }
    writer->n_tokens += (int64_t)count;
    if (writer->token_bytes == 4) {
        return put(writer, tokens, count * sizeof(*tokens), diag);
    }
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BUFFERED ? count - at : BUFFERED;
        for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)tokens[at + i];
        if (!put(writer, narrow, n * sizeof(*narrow), diag)) return false;
        at += n;
    }
    return true;
}

static void release(TokenWriter *writer) {
    free(writer->path);
    free(writer);
}

bool token_writer_commit(TokenWriter *writer, Diag *diag) {
    unsigned char header[LLMC_HEADER_BYTES];
    size_t length = make_header(writer, header);
    file_writer_replace(writer->file, 0, header, length, diag);
    bool good = file_writer_commit(writer->file, diag);
    release(writer);
    return good;
}

void token_writer_abandon(TokenWriter *writer) {
    if (!writer) return;
    file_writer_abandon(writer->file);
    release(writer);
}
