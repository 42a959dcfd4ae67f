/* Megatron-LM's indexed datasets (megatron/core/datasets/indexed_dataset.py; also GPT-NeoX's,
 * DeepSpeed's and RWKV's binidx): NAME.bin has the tokens of all sequences, one behind the other,
 * and NAME.idx says what they are. Little-endian:
 *   "MMIDIDX\0\0", u64 version 1, u8 type of a token, u64 n sequences, u64 m,
 *   i32[n] tokens of each sequence, i64[n] byte of NAME.bin where each begins,
 *   i64[m] sequence that each document begins with, at last n; whatever follows is left alone
 */
#ifndef RUNTIME_DATA_TOKEN_INDEX_H
#define RUNTIME_DATA_TOKEN_INDEX_H

#include "runtime/data/token_file.h"

/* Whether a file begins as an index does. */
bool token_index_has_header(const unsigned char *bytes, size_t length);
/* Whether `path` is NAME.bin, and beside it is an index NAME.idx. */
bool token_index_is_beside(const char *path);
/* Whether `path` is NAME.idx, as an index's name would be. */
bool token_index_is_name(const char *path);
/* The name of the tokens of NAME.idx, or of the index of NAME.bin; from malloc. */
char *token_index_other_name(const char *path);
/* What the index beside `file`, whose path and map are there, says of its tokens; reports what is
 * wrong with it, such as sequences that do not follow each other in NAME.bin. */
bool token_index_read(TokenFile *file, Diag *diag);

#endif
