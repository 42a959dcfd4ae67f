/* What a teacher says of data, in a file: its likeliest words at each position of each window, and
 * their log-probabilities. It is run once, and any number of students learn from the file.
 *
 * The file is one of safetensors, for any program to read:
 *   logprobs  f16 or f32 [windows, seq, words], natural logarithms, greatest first
 *   words     u16, or u32 for more than 65,536 of them, likewise: numbers of these words
 *   tokens    u64 [windows]: a hash of each window's tokens (stored_hash)
 * with metadata vocab (how many words the teacher chose among), model (its name) and format.
 *
 * A window is found by its tokens, so that the order of data, their shares and splits may be any;
 * data of which the file knows nothing are noticed. That two windows have one hash is as likely as
 * guessing a number of 64 bits; equal windows share what is stored of the first.
 */
#ifndef RUNTIME_DATA_STORED_LOGITS_H
#define RUNTIME_DATA_STORED_LOGITS_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct StoredShape {
    int64_t n_windows, seq;
    int64_t n_words, vocab; /* of each position, and among how many */
    bool is_f32;            /* log-probabilities; else f16 */
} StoredShape;

uint64_t stored_hash(const int32_t *tokens, int64_t seq);
/* What the file takes, but for its head. */
int64_t stored_bytes(const StoredShape *shape);

typedef struct StoredLogits StoredLogits;
/* NULL: reported. The file stays mapped. */
StoredLogits *stored_logits_open(const char *path, Diag *diag);
void stored_logits_close(StoredLogits *stored); /* NULL is fine */
StoredShape stored_logits_shape(const StoredLogits *stored);
/* The window that has these tokens [seq]; -1: none. */
int64_t stored_logits_find(const StoredLogits *stored, const int32_t *tokens);
/* Its words and their log-probabilities [seq, n_words]. False, reported: the file is damaged. */
bool stored_logits_read(const StoredLogits *stored, int64_t window, int32_t *words, float *logprobs,
                        Diag *diag);

/* Windows in order, of logits f32[seq, vocab]; the file is there after commit, whole. */
typedef struct StoredWriter StoredWriter;
StoredWriter *stored_writer_open(const char *path, const StoredShape *shape, const char *model,
                                 Diag *diag);
bool stored_writer_put(StoredWriter *writer, const int32_t *tokens, const float *logits,
                       Diag *diag);
bool stored_writer_commit(StoredWriter *writer, Diag *diag); /* frees, either way */
void stored_writer_abandon(StoredWriter *writer);            /* likewise; NULL is fine */

#endif
