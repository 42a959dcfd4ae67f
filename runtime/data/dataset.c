#include "runtime/data/dataset.h"

#include "ir/base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are read in place: a little-endian machine is needed"
#endif

enum {
    MAGIC_UINT16 = 20240520,
    MAGIC_UINT32 = 20240801, /* llm.c's files for the Llama 3 vocabulary */
    VERSION = 1,
    N_HEADER_INTS = 256,
    HEADER_BYTES = N_HEADER_INTS * 4,
    N_TOKEN_VALUES = 65536,
    N_FEISTEL_ROUNDS = 8, /* more than a balanced network needs: small domains mix slowly */
};

/* The mapping, shared by a Dataset and its splits. */
typedef struct Source {
    FileMap map;
    char *path;
    const unsigned char *bytes; /* one of these two */
    const uint16_t *words;
    int n_users;
} Source;

struct Dataset {
    Source *source;
    int64_t first, n_tokens, n_windows;
    int seq, vocab;
};

/* --- opening --- */

static Dataset *view(Source *source, int64_t first, int64_t n_tokens, int seq, int vocab) {
    Dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset) BUG("out of memory");
    *dataset = (Dataset){source, first, n_tokens, (n_tokens - 1) / seq, seq, vocab};
    source->n_users++;
    return dataset;
}

static void source_release(Source *source) {
    if (--source->n_users > 0) return;
    file_unmap(&source->map);
    free(source->path);
    free(source);
}

static bool read_token_header(Source *source, int64_t *out_n_tokens, Diag *diag) {
    SourceLoc loc = {source->path, 0};
    size_t length = source->map.length_bytes;
    int32_t header[3];
    if (length < HEADER_BYTES) {
        diag_error(diag, loc, "token file of %zu bytes ends inside its header of %d bytes", length,
                   HEADER_BYTES);
        return false;
    }
    memcpy(header, source->map.data, sizeof header);
    if (header[1] != VERSION) {
        diag_error(diag, loc, "token file of version %d; only version %d is known", header[1],
                   VERSION);
        return false;
    }
    uint64_t n_present = (length - HEADER_BYTES) / sizeof(uint16_t);
    if (header[2] < 0 || (uint64_t)header[2] != n_present || length % 2 != 0) {
        diag_error(diag, loc,
                   "token file promises %d tokens, but %zu bytes follow its header (2 per token)",
                   header[2], length - HEADER_BYTES);
        return false;
    }
    source->words = (const uint16_t *)(const void *)(source->map.data + HEADER_BYTES);
    *out_n_tokens = header[2];
    return true;
}

static bool check_bytes(const Source *source, int vocab, Diag *diag) {
    if (vocab >= 256) return true;
    for (size_t i = 0; i < source->map.length_bytes; i++) {
        if (source->bytes[i] < vocab) continue;
        diag_error(diag, (SourceLoc){source->path, 0},
                   "byte %d at position %zu is outside the vocabulary of %d", source->bytes[i], i,
                   vocab);
        return false;
    }
    return true;
}

/* Finds out the format and the number of tokens. */
static bool source_inspect(Source *source, int vocab, int64_t *out_n_tokens, Diag *diag) {
    int32_t magic = 0;
    if (source->map.length_bytes >= sizeof magic) memcpy(&magic, source->map.data, sizeof magic);
    if (magic == MAGIC_UINT16) return read_token_header(source, out_n_tokens, diag);
    if (magic == MAGIC_UINT32) {
        diag_error(diag, (SourceLoc){source->path, 0},
                   "token file with 32-bit tokens (magic %d); only 16-bit ones (magic %d) are read",
                   magic, MAGIC_UINT16);
        return false;
    }
    source->bytes = source->map.data;
    *out_n_tokens = (int64_t)source->map.length_bytes;
    return check_bytes(source, vocab, diag);
}

Dataset *dataset_open(const char *path, int seq, int vocab, Diag *diag) {
    if (seq < 1 || vocab < 1) BUG("dataset of seq %d, vocab %d", seq, vocab);
    Source *source = calloc(1, sizeof(*source));
    if (!source || !(source->path = strdup(path))) BUG("out of memory");
    Dataset *dataset = NULL;
    int64_t n_tokens;
    if (file_map(path, &source->map, diag) && source_inspect(source, vocab, &n_tokens, diag)) {
        if (n_tokens < (int64_t)seq + 1) {
            diag_error(diag, NO_LOC, "%s has %lld tokens; seq=%d needs at least %lld", path,
                       (long long)n_tokens, seq, (long long)seq + 1);
        } else {
            dataset = view(source, 0, n_tokens, seq, vocab);
        }
    }
    if (!dataset) source_release(source);
    return dataset;
}

void dataset_close(Dataset *dataset) {
    if (!dataset) return;
    source_release(dataset->source);
    free(dataset);
}

bool dataset_split(const Dataset *dataset, double val_fraction, Dataset **out_train,
                   Dataset **out_val, Diag *diag) {
    SourceLoc loc = {dataset->source->path, 0};
    *out_train = *out_val = NULL;
    if (!(val_fraction > 0 && val_fraction < 1)) {
        diag_error(diag, loc, "the validation fraction %g is not between 0 and 1", val_fraction);
        return false;
    }
    int64_t n_val = (int64_t)llround(val_fraction * (double)dataset->n_tokens);
    int64_t n_train = dataset->n_tokens - n_val, needed = (int64_t)dataset->seq + 1;
    if (n_val < needed || n_train < needed) {
        diag_error(diag, loc,
                   "a validation fraction of %g leaves %lld tokens to train and %lld to validate; "
                   "seq=%d needs at least %lld in each",
                   val_fraction, (long long)n_train, (long long)n_val, dataset->seq,
                   (long long)needed);
        return false;
    }
    *out_train = view(dataset->source, dataset->first, n_train, dataset->seq, dataset->vocab);
    *out_val = view(dataset->source, dataset->first + n_train, n_val, dataset->seq, dataset->vocab);
    return true;
}

int64_t dataset_count_windows(const Dataset *dataset) {
    return dataset->n_windows;
}

int64_t dataset_count_tokens(const Dataset *dataset) {
    return dataset->n_tokens;
}

int64_t dataset_mapped_bytes(const Dataset *dataset) {
    return (int64_t)dataset->source->map.length_bytes;
}

/* --- windows --- */

static int32_t token_at(const Source *source, int64_t i) {
    return source->words ? source->words[i] : source->bytes[i];
}

bool dataset_window(const Dataset *dataset, int64_t i, int32_t *tokens, int32_t *labels,
                    Diag *diag) {
    if (i < 0 || i >= dataset->n_windows) {
        BUG("window %lld of %lld", (long long)i, (long long)dataset->n_windows);
    }
    const Source *source = dataset->source;
    int64_t begin = dataset->first + i * dataset->seq;
    for (int64_t k = 0; k <= dataset->seq; k++) {
        int32_t token = token_at(source, begin + k);
        if (token >= dataset->vocab) {
            diag_error(diag, (SourceLoc){source->path, 0},
                       "token %d at position %lld is outside the vocabulary of %d", token,
                       (long long)begin + k, dataset->vocab);
            return false;
        }
        if (k < dataset->seq) tokens[k] = token;
        if (k > 0) labels[k - 1] = token;
    }
    return true;
}

/* The finalizer of SplitMix64 (Steele, Lea & Flood 2014): every input bit moves every output bit.
 */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A permutation of 0..n-1. The network permutes the next even power of two, at most 4n numbers;
 * following it until it lands below n again permutes 0..n-1, after fewer than 4 steps on average.
 */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t key) {
    int half_bits = 1;
    while (half_bits < 31 && (uint64_t)1 << (2 * half_bits) < n) half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = x >> half_bits, right = x & mask;
        for (uint64_t round = 0; round < N_FEISTEL_ROUNDS; round++) {
            uint64_t next = left ^ (mix(mix(key + round) ^ right) & mask);
            left = right;
            right = next;
        }
        x = left << half_bits | right;
    } while (x >= n);
    return x;
}

bool dataset_sample(const Dataset *dataset, uint64_t seed, int64_t index, int32_t *tokens,
                    int32_t *labels, Diag *diag) {
    if (index < 0) BUG("sample %lld", (long long)index);
    uint64_t n = (uint64_t)dataset->n_windows;
    uint64_t epoch = (uint64_t)index / n, place = (uint64_t)index % n;
    uint64_t key = mix(mix(seed) ^ epoch);
    return dataset_window(dataset, (int64_t)permute(place, n, key), tokens, labels, diag);
}

double dataset_unigram_entropy(const Dataset *dataset) {
    int64_t *counts = calloc(N_TOKEN_VALUES, sizeof(*counts));
    if (!counts) BUG("out of memory");
    for (int64_t i = 0; i < dataset->n_tokens; i++) {
        counts[token_at(dataset->source, dataset->first + i)]++;
    }
    double entropy = 0, n = (double)dataset->n_tokens;
    for (int t = 0; t < N_TOKEN_VALUES; t++) {
        if (counts[t]) entropy -= (double)counts[t] / n * log((double)counts[t] / n);
    }
    free(counts);
    return entropy;
}
