#include "runtime/data/dataset.h"

#include "runtime/data/folder.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/token_index.h"
#include "runtime/data/token_mask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE_TOKENS = 65536, /* of a sample of tokens */
    LEAST_COUNTS = 65536,
};

/* The files, shared by a Dataset and its splits: tokens are numbered through them. */
typedef struct Source {
    TokenFile *files;
    int64_t *begins; /* [n_files + 1]: the first token of each, and how many there are */
    int n_files, n_users;
    char *path;
} Source;

struct Dataset {
    Source *source;
    int64_t first, n_tokens, n_counted;
    int64_t *windows_before; /* [n_files + 1]: in the files before each */
    int seq, vocab;
};

/* --- opening --- */

/* The i with at[i] <= x < at[i + 1], of ascending at[0 .. n]. */
static int find_interval(const int64_t *at, int n, int64_t x) {
    int low = 0, high = n;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (at[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* This part's tokens of a file: *out_first, counted from the file's first, and how many. */
static int64_t overlap(const Dataset *dataset, int file, int64_t *out_first) {
    const int64_t *begins = dataset->source->begins;
    int64_t first = dataset->first > begins[file] ? dataset->first : begins[file];
    int64_t end = dataset->first + dataset->n_tokens;
    if (end > begins[file + 1]) end = begins[file + 1];
    *out_first = first - begins[file];
    return end > first ? end - first : 0;
}

/* Of so many tokens of a file. */
static int64_t windows_of(const TokenFile *file, int64_t n_tokens, int seq) {
    if (file->counts) return n_tokens / seq;
    return n_tokens > 0 ? (n_tokens - 1) / seq : 0;
}

static int64_t count_counted(const Dataset *dataset) {
    int64_t count = 0, first;
    for (int f = 0; f < dataset->source->n_files; f++) {
        const unsigned char *counts = dataset->source->files[f].counts;
        int64_t n = overlap(dataset, f, &first);
        if (!counts) count += n;
        for (int64_t i = 0; counts && i < n; i++) count += counts[first + i];
    }
    return count;
}

static Dataset *view(Source *source, int64_t first, int64_t n_tokens, int seq, int vocab) {
    Dataset *dataset = calloc(1, sizeof(*dataset));
    int64_t *before = calloc((size_t)source->n_files + 1, sizeof(*before)), at;
    if (!dataset || !before) BUG("out of memory");
    *dataset = (Dataset){source, first, n_tokens, 0, before, seq, vocab};
    dataset->n_counted = count_counted(dataset);
    for (int f = 0; f < source->n_files; f++) {
        int64_t n = overlap(dataset, f, &at);
        before[f + 1] = before[f] + windows_of(&source->files[f], n, seq);
    }
    source->n_users++;
    return dataset;
}

static void source_release(Source *source) {
    if (--source->n_users > 0) return;
    for (int f = 0; f < source->n_files; f++) token_file_close(&source->files[f]);
    free(source->files);
    free(source->begins);
    free(source->path);
    free(source);
}

static bool check_text(const TokenFile *file, int vocab, Diag *diag) {
    if (!file->is_text || vocab >= 256) return true;
    for (int64_t i = 0; i < file->n_tokens; i++) {
        if (file->tokens[i] < vocab) continue;
        diag_error(diag, (SourceLoc){file->path, 0},
                   "byte %d at position %lld is outside the vocabulary of %d", file->tokens[i],
                   (long long)i, vocab);
        return false;
    }
    return true;
}

/* A mask is found through what it masks. */
static bool check_mask_name(const char *path, Diag *diag) {
    Arena *arena = arena_create();
    const char *of = arena_strndup(arena, path, strlen(path) - strlen(token_mask_name(arena, "")));
    bool found = access(of, F_OK) == 0;
    if (!found) diag_error(diag, (SourceLoc){path, 0}, "is a mask, but there is no %s", of);
    arena_destroy(arena);
    return found;
}

static bool add_file(Source *source, const char *path, int vocab, int plain_bytes, Diag *diag) {
    size_t n = (size_t)source->n_files;
    source->files = realloc(source->files, (n + 1) * sizeof(*source->files));
    source->begins = realloc(source->begins, (n + 2) * sizeof(*source->begins));
    if (!source->files || !source->begins) BUG("out of memory");
    TokenFile *file = &source->files[n];
    if (!token_file_open(file, path, plain_bytes, diag)) return false;
    if (!token_mask_open(file, diag)) {
        token_file_close(file);
        return false;
    }
    source->n_files++;
    source->begins[0] = 0;
    source->begins[n + 1] = source->begins[n] + file->n_tokens;
    if (file->is_text != source->files[0].is_text) {
        diag_error(diag, (SourceLoc){path, 0}, "is %s, but %s is %s: keep them in folders apart",
                   file->is_text ? "text" : "tokens", source->files[0].path,
                   file->is_text ? "tokens" : "text");
        return false;
    }
    return check_text(file, vocab, diag);
}

/* An index is found through its tokens; without them, opening it says that they are not there. */
static bool is_index(const char *path) {
    if (!token_index_is_name(path)) return false;
    char *tokens = token_index_other_name(path);
    bool found = token_index_is_beside(tokens) && access(tokens, F_OK) == 0;
    free(tokens);
    return found;
}

static bool add_all(Source *source, int vocab, int plain_bytes, Diag *diag) {
    struct stat st;
    if (stat(source->path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        if (token_mask_is_name(source->path)) {
            diag_error(diag, (SourceLoc){source->path, 0},
                       "is a mask: give the file of tokens that it lies beside");
            return false;
        }
        return add_file(source, source->path, vocab, plain_bytes, diag);
    }
    Arena *arena = arena_create();
    const char **paths = NULL;
    int count = folder_list(arena, source->path, &paths, diag);
    bool good = count > 0;
    for (int i = 0; good && i < count; i++) {
        if (is_index(paths[i])) continue;
        good = token_mask_is_name(paths[i]) ? check_mask_name(paths[i], diag)
                                            : add_file(source, paths[i], vocab, plain_bytes, diag);
    }
    if (good && source->n_files == 0) {
        diag_error(diag, (SourceLoc){source->path, 0}, "is a folder of masks, without tokens");
        good = false;
    }
    arena_destroy(arena);
    return good;
}

static Source *source_create(const char *path, int seq, int vocab) {
    if (seq < 1 || vocab < 1) BUG("dataset of seq %d, vocab %d", seq, vocab);
    Source *source = calloc(1, sizeof(*source));
    if (!source || !(source->path = strdup(path))) BUG("out of memory");
    return source;
}

/* All of the source, which it takes. */
static Dataset *whole(Source *source, int seq, int vocab, Diag *diag) {
    int64_t n_tokens = source->begins[source->n_files];
    Dataset *dataset = view(source, 0, n_tokens, seq, vocab);
    if (dataset_count_windows(dataset) > 0) return dataset;
    diag_error(diag, NO_LOC, "%s has %lld tokens; seq=%d needs at least %lld%s", source->path,
               (long long)n_tokens, seq, (long long)seq + !dataset_is_masked(dataset),
               source->n_files > 1 ? " in one of its files" : "");
    dataset_close(dataset);
    return NULL;
}

Dataset *dataset_open(const char *path, int seq, int vocab, int plain_bytes, Diag *diag) {
    Source *source = source_create(path, seq, vocab);
    if (add_all(source, vocab, plain_bytes, diag)) return whole(source, seq, vocab, diag);
    source_release(source);
    return NULL;
}

Dataset *dataset_from_tokens(const char *path, DatasetTokens tokens, int seq, int vocab,
                             Diag *diag) {
    Source *source = source_create(path, seq, vocab);
    source->files = calloc(1, sizeof(*source->files));
    source->begins = calloc(2, sizeof(*source->begins));
    if (!source->files || !source->begins) BUG("out of memory");
    token_file_wrap(&source->files[0], path, tokens.tokens, tokens.token_bytes, tokens.n_tokens,
                    tokens.counts);
    source->n_files = 1;
    source->begins[1] = tokens.n_tokens;
    return whole(source, seq, vocab, diag);
}

void dataset_close(Dataset *dataset) {
    if (!dataset) return;
    source_release(dataset->source);
    free(dataset->windows_before);
    free(dataset);
}

/* n tokens of the first, or so many fewer that with a mask no window is cut: what was packed into
 * windows stays in them. */
static int64_t whole_windows(const Dataset *dataset, int64_t n) {
    const Source *source = dataset->source;
    int f = find_interval(source->begins, source->n_files, dataset->first + n);
    int64_t begin, at = source->begins[f];
    if (n >= dataset->n_tokens || !source->files[f].counts) return n;
    overlap(dataset, f, &begin);
    at += begin;
    return n - (dataset->first + n - at) % dataset->seq;
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
    int64_t n_train = whole_windows(dataset, dataset->n_tokens - n_val);
    n_val = dataset->n_tokens - n_train;
    *out_train = view(dataset->source, dataset->first, n_train, dataset->seq, dataset->vocab);
    *out_val = view(dataset->source, dataset->first + n_train, n_val, dataset->seq, dataset->vocab);
    if (dataset_count_windows(*out_train) > 0 && dataset_count_windows(*out_val) > 0) return true;
    diag_error(diag, loc,
               "a validation fraction of %g leaves %lld tokens to train and %lld to validate; "
               "seq=%d needs at least %lld in each%s",
               val_fraction, (long long)n_train, (long long)n_val, dataset->seq,
               (long long)dataset->seq + !dataset_is_masked(dataset),
               dataset->source->n_files > 1 ? ", in one of its files" : "");
    dataset_close(*out_train);
    dataset_close(*out_val);
    *out_train = *out_val = NULL;
    return false;
}

int64_t dataset_count_windows(const Dataset *dataset) {
    return dataset->windows_before[dataset->source->n_files];
}

int64_t dataset_count_tokens(const Dataset *dataset) {
    return dataset->n_tokens;
}

int64_t dataset_count_counted(const Dataset *dataset) {
    return dataset->n_counted;
}

int64_t dataset_count_labels(const Dataset *dataset, int64_t left_out) {
    const Source *source = dataset->source;
    int64_t count = 0, first;
    for (int f = 0; f < source->n_files; f++) {
        const TokenFile *file = &source->files[f];
        int64_t n = overlap(dataset, f, &first);
        int64_t n_labels = windows_of(file, n, dataset->seq) * dataset->seq;
        if (!file->counts && left_out < 0) {
            count += n_labels;
            continue;
        }
        for (int64_t i = first + 1; i <= first + n_labels && i < first + n; i++) {
            if (file->counts && !file->counts[i]) continue;
            count += left_out < 0 || token_file_at(file, i) != (uint64_t)left_out;
        }
    }
    return count;
}

bool dataset_is_masked(const Dataset *dataset) {
    const Source *source = dataset->source;
    for (int f = 0; f < source->n_files; f++) {
        if (source->files[f].counts) return true;
    }
    return false;
}

int dataset_count_files(const Dataset *dataset) {
    return dataset->source->n_files;
}

int64_t dataset_mapped_bytes(const Dataset *dataset) {
    int64_t bytes = 0;
    for (int f = 0; f < dataset->source->n_files; f++) {
        const TokenFile *file = &dataset->source->files[f];
        bytes += file->owned ? file->n_tokens * file->token_bytes : (int64_t)file->map.length_bytes;
    }
    return bytes;
}

/* --- windows --- */

bool dataset_window(const Dataset *dataset, int64_t i, int32_t *tokens, int32_t *labels,
                    Diag *diag) {
    const Source *source = dataset->source;
    if (i < 0 || i >= dataset_count_windows(dataset)) {
        BUG("window %lld of %lld", (long long)i, (long long)dataset_count_windows(dataset));
    }
    int f = find_interval(dataset->windows_before, source->n_files, i);
    const TokenFile *file = &source->files[f];
    int64_t begin, left = overlap(dataset, f, &begin);
    int64_t within = (i - dataset->windows_before[f]) * dataset->seq;
    begin += within;
    left -= within;
    for (int64_t k = 0; k <= dataset->seq; k++) {
        if (k == left) { /* the label past the end, in data with a mask */
            labels[k - 1] = DATASET_NO_LABEL;
            break;
        }
        uint64_t token = token_file_at(file, begin + k);
        if (token >= (uint64_t)dataset->vocab) {
            char number[TOKEN_NUMBER_CHARS];
            token_file_number(file, token, number);
            diag_error(diag, (SourceLoc){file->path, 0},
                       "token %s at position %lld is outside the vocabulary of %d", number,
                       (long long)begin + k, dataset->vocab);
            return false;
        }
        if (k < dataset->seq) tokens[k] = (int32_t)token;
        bool counts = !file->counts || file->counts[begin + k];
        if (k > 0) labels[k - 1] = counts ? (int32_t)token : DATASET_NO_LABEL;
    }
    return true;
}

int64_t dataset_sample_window(const Dataset *dataset, uint64_t seed, int64_t index) {
    return shuffle_pick(dataset_count_windows(dataset), seed, index);
}

bool dataset_sample(const Dataset *dataset, uint64_t seed, int64_t index, int32_t *tokens,
                    int32_t *labels, Diag *diag) {
    return dataset_window(dataset, dataset_sample_window(dataset, seed, index), tokens, labels,
                          diag);
}

/* --- frequencies --- */

/* Tokens from n_counts on are not counted: they are outside the vocabulary. */
static int64_t count_tokens(const Dataset *dataset, int64_t first, int64_t n, int64_t *counts,
                            uint64_t n_counts) {
    const Source *source = dataset->source;
    int64_t at = dataset->first + first, end = at + n, counted = 0;
    for (int f = find_interval(source->begins, source->n_files, at); at < end; f++) {
        int64_t last = end < source->begins[f + 1] ? end : source->begins[f + 1];
        const TokenFile *file = &source->files[f];
        for (; at < last; at++) {
            int64_t i = at - source->begins[f];
            uint64_t token = token_file_at(file, i);
            if (token >= n_counts || (file->counts && !file->counts[i])) continue;
            counts[token]++;
            counted++;
        }
    }
    return counted;
}

/* Adds share x frequency of each token to p [n_counts]. */
static void add_frequencies(const Dataset *dataset, double share, int64_t most, double *p,
                            size_t n_counts) {
    int64_t *counts = calloc(n_counts, sizeof(*counts)), n = dataset->n_tokens, counted = 0;
    if (!counts) BUG("out of memory");
    if (n <= most) {
        counted = count_tokens(dataset, 0, n, counts, n_counts);
    } else {
        int64_t piece = most < PIECE_TOKENS ? most : PIECE_TOKENS, n_pieces = most / piece;
        for (int64_t i = 0; i < n_pieces; i++) {
            int64_t first = (int64_t)((double)(n - piece) * (double)i / (double)n_pieces);
            counted += count_tokens(dataset, first, piece, counts, n_counts);
        }
    }
    for (size_t t = 0; t < n_counts && counted; t++) {
        p[t] += share * ((double)counts[t] / (double)counted);
    }
    free(counts);
}

double dataset_blend_entropy(const Dataset *const *parts, const double *shares, int n,
                             int64_t most) {
    size_t n_counts = LEAST_COUNTS;
    for (int i = 0; i < n; i++) {
        if ((size_t)parts[i]->vocab > n_counts) n_counts = (size_t)parts[i]->vocab;
    }
    double *p = calloc(n_counts, sizeof(*p)), entropy = 0;
    if (!p) BUG("out of memory");
    for (int i = 0; i < n; i++) add_frequencies(parts[i], shares[i], most, p, n_counts);
    for (size_t t = 0; t < n_counts; t++) {
        if (p[t] > 0) entropy -= p[t] * log(p[t]);
    }
    free(p);
    return entropy;
}

double dataset_unigram_entropy(const Dataset *dataset, int64_t most) {
    return dataset_blend_entropy(&dataset, (double[]){1}, 1, most);
}
