#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/data/stored_logits.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "ir/base/hash.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/cpu/vmath.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "perilune stored logits 1";
enum { MOST_U16 = 1 << 16, MOST_VOCAB = 1 << 30 };
/* What probabilities of a position may add to: f16 rounds each logarithm by 2^-11 of it at most. */
static const float MOST_SUM = 1.02f;

uint64_t stored_hash(const int32_t *tokens, int64_t seq) {
    return hash_bytes(tokens, (size_t)seq * sizeof(int32_t), 0);
}

static SafetensorsDtype words_dtype(const StoredShape *shape) {
    return shape->vocab <= MOST_U16 ? SAFETENSORS_U16 : SAFETENSORS_U32;
}

static SafetensorsDtype logprobs_dtype(const StoredShape *shape) {
    return shape->is_f32 ? SAFETENSORS_F32 : SAFETENSORS_F16;
}

int64_t stored_bytes(const StoredShape *shape) {
    const int64_t each = (int64_t)(safetensors_dtype_bytes(words_dtype(shape)) +
                                   safetensors_dtype_bytes(logprobs_dtype(shape)));
    return shape->n_windows * (shape->seq * shape->n_words * each + (int64_t)sizeof(uint64_t));
}

/* --- reading --- */

struct StoredLogits {
    Arena *arena;
    const char *path;
    Safetensors *file;
    StoredShape shape;
    SafetensorsInfo tokens, words, logprobs;
    int64_t *table; /* [n_places]: 1 + the window of a hash that begins here; 0: none */
    uint64_t n_places;
};

static bool refuse(const StoredLogits *s, Diag *diag, const char *why) {
    diag_error(diag, (SourceLoc){s->path, 0}, "%s", why);
    return false;
}

static bool find_tensors(StoredLogits *s, Diag *diag) {
    const char *format = safetensors_find_metadata(s->file, "format");
    const char *vocab = safetensors_find_metadata(s->file, "vocab");
    if (!format || strcmp(format, FORMAT) != 0) {
        return refuse(s, diag,
                      "is no file of stored logits, as evaluate --store-logits writes them");
    }
    if (!safetensors_find(s->file, "tokens", &s->tokens) ||
        !safetensors_find(s->file, "words", &s->words) ||
        !safetensors_find(s->file, "logprobs", &s->logprobs) || !vocab || s->tokens.n_dims != 1 ||
        s->words.n_dims != 3 || s->logprobs.n_dims != 3 ||
        memcmp(s->words.shape, s->logprobs.shape, 3 * sizeof(int64_t)) != 0 ||
        s->words.shape[0] != s->tokens.shape[0]) {
        return refuse(s, diag, "is damaged: of stored logits it has other tensors than it should");
    }
    char *end;
    s->shape = (StoredShape){.n_windows = s->words.shape[0],
                             .seq = s->words.shape[1],
                             .n_words = s->words.shape[2],
                             .vocab = strtoll(vocab, &end, 10),
                             .is_f32 = s->logprobs.dtype == SAFETENSORS_F32};
    const StoredShape *shape = &s->shape;
    if (*end || shape->vocab < 1 || shape->vocab > MOST_VOCAB || shape->n_words < 1 ||
        shape->n_words > shape->vocab || shape->seq < 1 || shape->n_windows < 1 ||
        s->tokens.dtype != SAFETENSORS_U64 || s->words.dtype != words_dtype(shape) ||
        s->logprobs.dtype != logprobs_dtype(shape)) {
        return refuse(s, diag, "is damaged: its sizes are none of stored logits");
    }
    return true;
}

static uint64_t hash_at(const StoredLogits *s, int64_t window) {
    uint64_t hash;
    memcpy(&hash, (const char *)s->tokens.data + (size_t)window * sizeof(hash), sizeof(hash));
    return hash;
}

/* Where the hash is in the table, or would be. */
static int64_t *place_of(const StoredLogits *s, uint64_t hash) {
    uint64_t at = hash_number(hash, hash_key()) % s->n_places;
    while (s->table[at] && hash_at(s, s->table[at] - 1) != hash) at = (at + 1) % s->n_places;
    return &s->table[at];
}

StoredLogits *stored_logits_open(const char *path, Diag *diag) {
    Arena *arena = arena_create();
    StoredLogits *s = ARENA_NEW(arena, StoredLogits);
    *s = (StoredLogits){.arena = arena, .path = arena_strdup(arena, path)};
    s->file = safetensors_open(path, diag);
    if (!s->file || !find_tensors(s, diag)) {
        stored_logits_close(s);
        return NULL;
    }
    s->n_places = 2 * (uint64_t)s->shape.n_windows;
    s->table = ARENA_ARRAY(arena, int64_t, s->n_places);
    memset(s->table, 0, s->n_places * sizeof(*s->table));
    for (int64_t i = 0; i < s->shape.n_windows; i++) {
        int64_t *place = place_of(s, hash_at(s, i));
        if (!*place) *place = i + 1;
    }
    return s;
}

void stored_logits_close(StoredLogits *s) {
    if (!s) return;
    if (s->file) safetensors_close(s->file);
    arena_destroy(s->arena);
}

StoredShape stored_logits_shape(const StoredLogits *s) {
    return s->shape;
}

int64_t stored_logits_find(const StoredLogits *s, const int32_t *tokens) {
    return *place_of(s, stored_hash(tokens, s->shape.seq)) - 1;
}

/* Word i of all. */
static uint32_t word_at(const StoredLogits *s, int64_t i) {
    const char *from = s->words.data;
    uint16_t half;
    uint32_t word;
    if (s->words.dtype == SAFETENSORS_U32) {
        memcpy(&word, from + (size_t)i * sizeof(word), sizeof(word));
        return word;
    }
    memcpy(&half, from + (size_t)i * sizeof(half), sizeof(half));
    return half;
}

/* Each may be one, and all together none: where a part of the file is zeros. */
static bool check_sums(const StoredLogits *s, int64_t window, const float *logprobs, Diag *diag) {
    const int64_t n = s->shape.n_words;
    for (int64_t t = 0; t < s->shape.seq; t++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = t * n; k < (t + 1) * n; k++) sum += vmath_exp(logprobs[k]);
        if (sum <= MOST_SUM) continue;
        diag_error(diag, (SourceLoc){s->path, 0},
                   "is damaged: of window %" PRId64 " probabilities at position %" PRId64
                   " add to %g",
                   window, t, (double)sum);
        return false;
    }
    return true;
}

bool stored_logits_read(const StoredLogits *s, int64_t window, int32_t *words, float *logprobs,
                        Diag *diag) {
    const int64_t n = s->shape.seq * s->shape.n_words, first = window * n;
    for (int64_t i = 0; i < n; i += TENSOR_BLOCK) {
        tensor_load(&s->logprobs, first + i, n - i < TENSOR_BLOCK ? n - i : TENSOR_BLOCK,
                    logprobs + i);
    }
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = word_at(s, first + i);
        words[i] = (int32_t)word;
        if (word < s->shape.vocab && logprobs[i] <= 0) continue; /* or it is no number */
        diag_error(diag, (SourceLoc){s->path, 0},
                   "is damaged: of window %" PRId64 " it has word %" PRIu32 " of %" PRId64
                   " with the log-probability %g",
                   window, word, s->shape.vocab, (double)logprobs[i]);
        return false;
    }
    return check_sums(s, window, logprobs, diag);
}

/* --- writing --- */

struct StoredWriter {
    Arena *arena;
    StoredShape shape;
    SafetensorsWriter *file;
    FilePart *part;
    size_t at[3]; /* where logprobs, words and tokens begin */
    int64_t n_put;
    float *logprobs; /* [seq, n_words], as they will be stored: f16 in the same place */
    uint32_t *words; /* likewise: u16 */
};

StoredWriter *stored_writer_open(const char *path, const StoredShape *shape, const char *model,
                                 Diag *diag) {
    Arena *arena = arena_create();
    StoredWriter *w = ARENA_NEW(arena, StoredWriter);
    *w = (StoredWriter){.arena = arena, .shape = *shape, .file = safetensors_writer_create()};
    const int64_t dims[3] = {shape->n_windows, shape->seq, shape->n_words};
    safetensors_writer_add_tensor(w->file, "logprobs", logprobs_dtype(shape), dims, 3);
    safetensors_writer_add_tensor(w->file, "words", words_dtype(shape), dims, 3);
    safetensors_writer_add_tensor(w->file, "tokens", SAFETENSORS_U64, dims, 1);
    safetensors_writer_add_metadata(w->file, "format", FORMAT);
    safetensors_writer_add_metadata(w->file, "model", model);
    safetensors_writer_add_metadata(w->file, "vocab",
                                    arena_printf(arena, "%" PRId64, shape->vocab));
    w->logprobs = ARENA_ARRAY(arena, float, shape->seq * shape->n_words);
    w->words = ARENA_ARRAY(arena, uint32_t, shape->seq * shape->n_words);
    if (safetensors_writer_open_parts(w->file, path, diag)) {
        for (int i = 0; i < 3; i++) w->at[i] = safetensors_writer_offset(w->file, i);
        w->part = file_part_open(safetensors_writer_temporary(w->file),
                                 safetensors_writer_offset(w->file, 3), diag);
    }
    if (w->part) return w;
    stored_writer_abandon(w);
    return NULL;
}

/* One word and its logit. */
typedef struct Word {
    float logit;
    uint32_t word;
} Word;

/* Of two alike the one with the lesser number comes first, on every machine. */
static inline bool is_less(Word a, Word b) {
    return a.logit < b.logit || (a.logit == b.logit && a.word > b.word);
}

static int compare_words(const void *a, const void *b) {
    const Word *x = a, *y = b;
    return is_less(*x, *y) ? 1 : is_less(*y, *x) ? -1 : 0;
}

/* The heap's least word is at its top, heap[0]. */
static void sift_down(Word *heap, int64_t n, Word word) {
    int64_t at = 0;
    for (int64_t next; (next = 2 * at + 1) < n; at = next) {
        next += next + 1 < n && is_less(heap[next + 1], heap[next]);
        if (!is_less(heap[next], word)) break;
        heap[at] = heap[next];
    }
    heap[at] = word;
}

/* The greatest n of the logits [vocab], in order; false: they are not finite. */
static bool find_greatest(const float *logits, int64_t vocab, int64_t n, Word *out,
                          double *out_lse) {
    double sum = 0;
    float most = logits[0];
    for (int64_t i = 1; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t first = 0; first < vocab; first += TENSOR_BLOCK) {
        const int64_t end = first + TENSOR_BLOCK < vocab ? first + TENSOR_BLOCK : vocab;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = first; i < end; i++) part += vmath_exp(logits[i] - most);
        sum += (double)part;
    }
    *out_lse = (double)most + log(sum);
    if (!isfinite(*out_lse)) return false;
    for (int64_t k = 0; k < n; k++) out[k] = (Word){-INFINITY, UINT32_MAX};
    for (int64_t i = 0; i < vocab; i++) {
        const Word word = {logits[i], (uint32_t)i};
        if (is_less(out[0], word)) sift_down(out, n, word);
    }
    qsort(out, (size_t)n, sizeof(*out), compare_words);
    return true;
}

/* In place, from the first on: a number of 16 bits never reaches one of 32 that is still read. */
static void narrow(StoredWriter *w) {
    const int64_t n = w->shape.seq * w->shape.n_words;
    char *words = (char *)w->words, *logprobs = (char *)w->logprobs;
    for (int64_t i = 0; i < n && words_dtype(&w->shape) == SAFETENSORS_U16; i++) {
        const uint16_t word = (uint16_t)w->words[i];
        memcpy(words + (size_t)i * sizeof(word), &word, sizeof(word));
    }
    for (int64_t i = 0; i < n && !w->shape.is_f32; i++) {
        const uint16_t half = vec_f16_round(w->logprobs[i]);
        memcpy(logprobs + (size_t)i * sizeof(half), &half, sizeof(half));
    }
}

/* The part of tensor i that is the next window's. */
static bool put_part(StoredWriter *w, int i, SafetensorsDtype dtype, const void *bytes, int64_t n,
                     Diag *diag) {
    const size_t size = safetensors_dtype_bytes(dtype) * (size_t)n;
    return file_part_put(w->part, w->at[i] + (size_t)w->n_put * size, bytes, size, diag);
}

bool stored_writer_put(StoredWriter *w, const int32_t *tokens, const float *logits, Diag *diag) {
    const int64_t n = w->shape.n_words, vocab = w->shape.vocab, seq = w->shape.seq;
    bool finite = true;
#pragma omp parallel reduction(&& : finite)
    {
        Word *words = malloc((size_t)n * sizeof(*words));
        double lse;
        if (!words) BUG("out of memory");
#pragma omp for schedule(static)
        for (int64_t t = 0; t < seq; t++) {
            if (!find_greatest(logits + t * vocab, vocab, n, words, &lse)) {
                finite = false;
                continue;
            }
            for (int64_t k = 0; k < n; k++) {
                const double logprob = (double)words[k].logit - lse;
                w->words[t * n + k] = words[k].word;
                w->logprobs[t * n + k] = (float)fmin(0, fmax(logprob, -60000)); /* f16's range */
            }
        }
        free(words);
    }
    if (!finite) {
        diag_error(diag, NO_LOC, "logits are not finite; wrong weights?");
        return false;
    }
    const uint64_t hash = stored_hash(tokens, seq);
    narrow(w);
    if (!put_part(w, 0, logprobs_dtype(&w->shape), w->logprobs, seq * n, diag) ||
        !put_part(w, 1, words_dtype(&w->shape), w->words, seq * n, diag) ||
        !put_part(w, 2, SAFETENSORS_U64, &hash, 1, diag)) {
        return false;
    }
    w->n_put++;
    return true;
}

bool stored_writer_commit(StoredWriter *w, Diag *diag) {
    if (w->n_put != w->shape.n_windows) BUG("not all windows are stored");
    FilePart *part = w->part;
    w->part = NULL;
    if (!file_part_close(part, diag)) {
        stored_writer_abandon(w);
        return false;
    }
    const bool good = safetensors_writer_commit(w->file, diag);
    arena_destroy(w->arena);
    return good;
}

void stored_writer_abandon(StoredWriter *w) {
    if (!w) return;
    Diag *unseen = diag_create();
    if (w->part) file_part_close(w->part, unseen);
    diag_destroy(unseen);
    safetensors_writer_abandon(w->file);
    arena_destroy(w->arena);
}
