/* One file of tokens, mapped. Kinds, told apart by their first bytes, all little-endian:
 *   - llm.c's token files: int32[256] header {magic, version, n_tokens, ...}, then uint16 tokens
 *     (magic 20240520, version 1) or uint32 ones (20240801, version 7)
 *   - NumPy's .npy of integers of 1, 2, 4 or 8 bytes, in C order
 *   - Megatron-LM's NAME.bin beside its index NAME.idx, by either's name (token_index.h)
 *   - any other file: bytes, uint16 or uint32 without a header, as the caller says
 */
#ifndef RUNTIME_DATA_TOKEN_FILE_H
#define RUNTIME_DATA_TOKEN_FILE_H

#include "ir/base/diag.h"
#include "ir/base/file.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct TokenFile {
    FileMap map;
    void *owned; /* tokens in memory instead of in a file; NULL: none */
    char *path;
    const unsigned char *tokens;
    int token_bytes; /* 1, 2, 4 or 8 */
    bool is_signed;  /* more than a byte: what is below 0 is beyond every vocabulary */
    bool is_text;    /* without a header, a byte a token */
    int64_t n_tokens;
    const unsigned char *counts; /* [n_tokens]: 1 where a token counts as a label; NULL: all do */
    void *owned_counts;          /* with `owned` */
    struct TokenFile *mask;      /* that `counts` lies in; NULL: none (token_mask.h) */
} TokenFile;

/* plain_bytes: 1, 2 or 4, a token's in a file that does not say it itself. Reports what is wrong.
 */
bool token_file_open(TokenFile *file, const char *path, int plain_bytes, Diag *diag);
/* Whether a file begins as one that says what its tokens are. */
bool token_file_has_header(const unsigned char *bytes, size_t length);
/* Whether a file, whose first bytes these are, says what its tokens are, or one beside it does. */
bool token_file_is_tokens(const char *path, const unsigned char *bytes, size_t length);
/* Whether bytes without such a header can be text; reports what is compressed, in columns or in
 * UTF-16, whose bytes a model would learn instead of its text. */
bool token_file_check_text(const char *path, const unsigned char *bytes, size_t length, Diag *diag);
/* Tokens in memory, from malloc, which the file takes, and which of them count (NULL: all);
 * `path` is where they came from. */
void token_file_wrap(TokenFile *file, const char *path, void *tokens, int token_bytes,
                     int64_t n_tokens, unsigned char *counts);
void token_file_close(TokenFile *file);

/* A token as a number, which is below 0 where that is what the file has. */
enum { TOKEN_NUMBER_CHARS = 24 };
void token_file_number(const TokenFile *file, uint64_t token, char out[TOKEN_NUMBER_CHARS]);

/* Token i, 0 <= i < n_tokens; one below 0 as two's complement of 64 bits. */
static inline uint64_t token_file_at(const TokenFile *file, int64_t i) {
    const unsigned char *at = file->tokens + i * file->token_bytes;
    uint64_t eight;
    uint32_t four;
    uint16_t two;
    switch (file->token_bytes) {
    case 1: return *at;
    case 2: memcpy(&two, at, sizeof(two)); return file->is_signed ? (uint64_t)(int16_t)two : two;
    case 4:
        memcpy(&four, at, sizeof(four));
        return file->is_signed ? (uint64_t)(int32_t)four : four;
    default: memcpy(&eight, at, sizeof(eight)); return eight;
    }
}

#endif
