/* Writes token files that token_file.h reads: llm.c's, of 16 or 32 bits, or NumPy's .npy of u2 or
 * u4. Whole or not at all. Where a token does not count, its mask is written beside the file
 * (token_mask.h); where all do, one that was there goes. */
#ifndef RUNTIME_DATA_TOKEN_WRITER_H
#define RUNTIME_DATA_TOKEN_WRITER_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TokenWriter TokenWriter;

/* token_bytes: 2 or 4; .npy where the path ends so. Reports and returns NULL. */
TokenWriter *token_writer_open(const char *path, int token_bytes, Diag *diag);
/* Tokens must fit. llm.c's files have at most 2^31 - 1. False: reported. */
bool token_writer_put(TokenWriter *writer, const uint32_t *tokens, const unsigned char *marks,
                      size_t count, Diag *diag);
/* The mask's path once there is something in it; NULL: none so far. */
const char *token_writer_mask(const TokenWriter *writer);
/* Has writing failed, as on a full disk? */
bool token_writer_failed(const TokenWriter *writer);
bool token_writer_commit(TokenWriter *writer, Diag *diag); /* frees the writer, either way */
void token_writer_abandon(TokenWriter *writer);

/* The beginning of a .npy of `count` numbers, or rows of `width` (0: one axis), of NumPy's type: so
 * many bytes of out [NPY_HEADER_BYTES]. */
enum { NPY_HEADER_BYTES = 128 };
size_t npy_make_header(const char *type, int64_t count, int64_t width, unsigned char *out);

#endif
