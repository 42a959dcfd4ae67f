#include "runtime/data/token_file.h"

#include "runtime/data/token_index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are read in place: a little-endian machine is needed"
#endif

enum { LLMC_HEADER_BYTES = 256 * 4, NPY_MOST_HEADER = 65536 };

static const struct {
    int32_t magic, version;
    int token_bytes;
} LLMC_KINDS[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const char NPY_MAGIC[] = "\x93NUMPY";

/* What may hold text, but not as bytes of it, by its first bytes. */
static const struct {
    size_t length;
    const char *bytes, *what;
} NO_TEXT[] = {
    {4, "PAR1", "is a Parquet file: give --tokenizer, by which its texts are read"},
    {6, "ARROW1", "is an Arrow file: have its texts written as lines of a .jsonl file"},
    {2, "\x1f\x8b", "is compressed by gzip: unpack it, or give --tokenizer"},
    {4, "\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it, or give --tokenizer"},
    {5, "\xfd\x37zXZ", "is compressed by xz: unpack it"},
    {4, "PK\x03\x04", "is a zip file: unpack it"},
    {2, "\xff\xfe", "is text in UTF-16: make it UTF-8, as iconv does"},
    {2, "\xfe\xff", "is text in UTF-16: make it UTF-8, as iconv does"},
};

static bool read_llmc(TokenFile *file, int kind, Diag *diag) {
    SourceLoc loc = {file->path, 0};
    size_t length = file->map.length_bytes;
    int32_t header[3], version = LLMC_KINDS[kind].version;
    size_t token_bytes = (size_t)LLMC_KINDS[kind].token_bytes;
    if (length < LLMC_HEADER_BYTES) {
        diag_error(diag, loc, "token file of %zu bytes ends inside its header of %d bytes", length,
                   LLMC_HEADER_BYTES);
        return false;
    }
    memcpy(header, file->map.data, sizeof header);
    if (header[1] != version) {
        diag_error(diag, loc, "token file of version %d; of this kind only version %d is known",
                   header[1], version);
        return false;
    }
    size_t left = length - LLMC_HEADER_BYTES;
    if (header[2] < 0 || (uint64_t)header[2] != left / token_bytes || left % token_bytes != 0) {
        diag_error(diag, loc,
                   "token file promises %d tokens, but %zu bytes follow its header (%zu per token)",
                   header[2], left, token_bytes);
        return false;
    }
    file->tokens = file->map.data + LLMC_HEADER_BYTES;
    file->token_bytes = (int)token_bytes;
    file->n_tokens = header[2];
    return true;
}

/* Of "'shape': (1000,)" or "(10, 100)"; -1: nothing of the kind. */
static int64_t read_shape(const char *header) {
    const char *at = strstr(header, "'shape': (");
    int64_t count = 1;
    if (!at) return -1;
    at += strlen("'shape': (");
    while (*at != ')') {
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (end == at || errno || size < 0) return -1;
        if (__builtin_mul_overflow(count, (int64_t)size, &count)) return -1;
        at = end + strspn(end, ", ");
    }
    return count;
}

/* Format 1 to 3 of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: magic,
 * two bytes of version, the length of what follows, and a Python dictionary in ASCII. */
static bool read_npy(TokenFile *file, Diag *diag) {
    static const struct {
        const char *type;
        int bytes;
    } TYPES[] = {{"'|u1'", 1}, {"'|b1'", 1}, {"'<u2'", 2}, {"'<u4'", 4},
                 {"'<i4'", 4}, {"'<u8'", 8}, {"'<i8'", 8}};
    enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };
    SourceLoc loc = {file->path, 0};
    const unsigned char *data = file->map.data;
    size_t length = file->map.length_bytes, header_bytes = 0;
    size_t begin = data[6] == 1 ? 10 : 12; /* 8 bytes are there */
    char header[NPY_MOST_HEADER + 1];
    if (data[6] < 1 || data[6] > 3) {
        diag_error(diag, loc, ".npy file of version %d; versions 1 to 3 are known", data[6]);
        return false;
    }
    for (size_t i = begin; length >= begin && i-- > 8;) header_bytes = header_bytes << 8 | data[i];
    if (length < begin || header_bytes > length - begin) {
        diag_error(diag, loc, ".npy file of %zu bytes ends inside its header", length);
        return false;
    }
    if (header_bytes > NPY_MOST_HEADER) {
        diag_error(diag, loc, ".npy file with a header of %zu bytes; of at most %d are read",
                   header_bytes, NPY_MOST_HEADER);
        return false;
    }
    memcpy(header, data + begin, header_bytes);
    header[header_bytes] = '\0';
    const char *type = strstr(header, "'descr':");
    for (int k = 0; type && k < N_TYPES; k++) {
        const char *text = type + 8 + strspn(type + 8, " ");
        if (strncmp(text, TYPES[k].type, 5) != 0) continue;
        file->token_bytes = TYPES[k].bytes;
        file->is_signed = TYPES[k].type[2] == 'i';
    }
    size_t left = length - begin - header_bytes;
    if (!file->token_bytes || !strstr(header, "'fortran_order': False")) {
        diag_error(
            diag, loc,
            ".npy file: tokens must be u1, u2, u4, u8, i4 or i8, little-endian and in C order");
        return false;
    }
    int64_t count = read_shape(header);
    if (count < 0 || (uint64_t)count != left / (size_t)file->token_bytes ||
        left % (size_t)file->token_bytes != 0) {
        diag_error(diag, loc,
                   ".npy file promises %lld tokens, but %zu bytes follow its header (%d per token)",
                   (long long)count, left, file->token_bytes);
        return false;
    }
    file->tokens = data + begin + header_bytes;
    file->n_tokens = count;
    return true;
}

bool token_file_check_text(const char *path, const unsigned char *bytes, size_t length,
                           Diag *diag) {
    for (size_t i = 0; i < sizeof NO_TEXT / sizeof NO_TEXT[0]; i++) {
        if (length < NO_TEXT[i].length || memcmp(bytes, NO_TEXT[i].bytes, NO_TEXT[i].length) != 0) {
            continue;
        }
        diag_error(diag, (SourceLoc){path, 0}, "%s", NO_TEXT[i].what);
        return false;
    }
    return true;
}

static bool read_plain(TokenFile *file, int plain_bytes, Diag *diag) {
    size_t length = file->map.length_bytes;
    if (plain_bytes == 1 && !token_file_check_text(file->path, file->map.data, length, diag)) {
        return false;
    }
    file->tokens = file->map.data;
    file->token_bytes = plain_bytes;
    file->is_text = plain_bytes == 1;
    file->n_tokens = (int64_t)(length / (size_t)plain_bytes);
    if (length % (size_t)plain_bytes == 0) return true;
    diag_error(diag, (SourceLoc){file->path, 0},
               "%zu bytes are no whole number of tokens of %d bytes", length, plain_bytes);
    return false;
}

bool token_file_has_header(const unsigned char *bytes, size_t length) {
    int32_t magic;
    if (length < 8) return false;
    memcpy(&magic, bytes, sizeof magic);
    return magic == LLMC_KINDS[0].magic || magic == LLMC_KINDS[1].magic ||
           memcmp(bytes, NPY_MAGIC, 6) == 0 || token_index_has_header(bytes, length);
}

bool token_file_is_tokens(const char *path, const unsigned char *bytes, size_t length) {
    return token_file_has_header(bytes, length) || token_index_is_beside(path);
}

static bool read_header(TokenFile *file, int plain_bytes, Diag *diag) {
    const unsigned char *data = file->map.data;
    int32_t magic = 0;
    if (file->map.length_bytes >= sizeof magic) memcpy(&magic, data, sizeof magic);
    for (int kind = 0; kind < 2; kind++) {
        if (magic == LLMC_KINDS[kind].magic) return read_llmc(file, kind, diag);
    }
    if (file->map.length_bytes >= 8 && memcmp(data, NPY_MAGIC, 6) == 0) return read_npy(file, diag);
    if (token_index_is_beside(file->path)) return token_index_read(file, diag);
    return read_plain(file, plain_bytes, diag);
}

/* Of an index, the tokens are opened. */
static char *name_of_tokens(const char *path) {
    if (!token_index_is_name(path)) return strdup(path);
    char *tokens = token_index_other_name(path);
    if (token_index_is_beside(tokens)) return tokens;
    free(tokens);
    return strdup(path);
}

bool token_file_open(TokenFile *file, const char *path, int plain_bytes, Diag *diag) {
    *file = (TokenFile){.path = name_of_tokens(path)};
    if (!file->path) BUG("out of memory");
    if (file_map(file->path, &file->map, diag) && read_header(file, plain_bytes, diag)) return true;
    token_file_close(file);
    return false;
}

void token_file_wrap(TokenFile *file, const char *path, void *tokens, int token_bytes,
                     int64_t n_tokens, unsigned char *counts) {
    *file = (TokenFile){.path = strdup(path),
                        .owned = tokens,
                        .tokens = tokens,
                        .token_bytes = token_bytes,
                        .n_tokens = n_tokens,
                        .counts = counts,
                        .owned_counts = counts};
    if (!file->path) BUG("out of memory");
}

void token_file_number(const TokenFile *file, uint64_t token, char out[TOKEN_NUMBER_CHARS]) {
    if (file->is_signed) {
        snprintf(out, TOKEN_NUMBER_CHARS, "%" PRId64, (int64_t)token);
    } else {
        snprintf(out, TOKEN_NUMBER_CHARS, "%" PRIu64, token);
    }
}

void token_file_close(TokenFile *file) {
    file_unmap(&file->map);
    free(file->owned);
    free(file->owned_counts);
    if (file->mask) token_file_close(file->mask);
    free(file->mask);
    free(file->path);
    *file = (TokenFile){0};
}
