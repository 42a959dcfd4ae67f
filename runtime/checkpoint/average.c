#include "runtime/checkpoint/average.h"

#include "ir/base/memory.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/cpu/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 20, /* numbers that are written at a time */
    N_BLOCKS = PIECE / TENSOR_BLOCK,
    MOST_DTYPE_BYTES = 4,
};

typedef struct Averaging {
    const AverageOptions *options;
    AverageTotals *totals;
    Safetensors **files; /* [n] */
    Safetensors *base;   /* NULL: the method needs none */
    double *shares;      /* [n] */
    MergeRule rule;
    MergeTensor tensor;  /* the one at hand */
    double norm, *apart; /* sums of squares: of the mean; [n], of each file less it */
    double *block_sums;  /* [N_BLOCKS, n + 1], of a piece */
    char *room;          /* [PIECE], as written */
    SafetensorsWriter *writer;
    int64_t bytes_done, bytes_all;
    Diag *diag;
} Averaging;

/* --- what the files have --- */

static bool check_tensor(const Averaging *a, const SafetensorsInfo *first, const Safetensors *file,
                         const char *path) {
    SafetensorsInfo info;
    DType dtype;
    SourceLoc loc = {path, 0};
    if (!safetensors_find(file, first->name, &info)) {
        diag_error(a->diag, loc, "has no tensor '%s', which %s has", first->name,
                   a->options->paths[0]);
    } else if (!tensor_dtype(&info, &dtype)) {
        diag_error(a->diag, loc, "tensor '%s' is %s: f32, bf16 and f16 are averaged", info.name,
                   safetensors_dtype_name(info.dtype));
    } else if (info.n_dims != first->n_dims ||
               memcmp(info.shape, first->shape, sizeof(info.shape[0]) * (size_t)info.n_dims) != 0) {
        diag_error(a->diag, loc, "tensor '%s' has another shape than in %s", info.name,
                   a->options->paths[0]);
    } else {
        return true;
    }
    return false;
}

static bool check_files(Averaging *a) {
    for (int f = 0; f < a->options->n; f++) {
        for (int i = 0; i < safetensors_count(a->files[f]); i++) {
            const SafetensorsInfo *info = safetensors_at(a->files[f], i);
            SafetensorsInfo found;
            if (tensor_is_state(info)) {
                a->totals->n_states += f == 0;
                continue;
            }
            if (f > 0 && !safetensors_find(a->files[0], info->name, &found)) {
                diag_error(a->diag, (SourceLoc){a->options->paths[0], 0},
                           "has no tensor '%s', which %s has", info->name, a->options->paths[f]);
                return false;
            }
            if (f > 0) continue;
            for (int k = 0; k < a->options->n; k++) {
                if (!check_tensor(a, info, a->files[k], a->options->paths[k])) return false;
            }
            if (a->base && !check_tensor(a, info, a->base, a->options->base)) return false;
            a->totals->n_tensors++;
            a->totals->n_numbers += tensor_count(info);
            a->bytes_all += (int64_t)info->n_bytes;
        }
    }
    for (int f = a->options->n - 1; f > 0; f--) {
        const char *of_first = safetensors_find_metadata(a->files[0], a->options->settings_key);
        const char *theirs = safetensors_find_metadata(a->files[f], a->options->settings_key);
        if (strcmp(of_first ? of_first : "", theirs ? theirs : "") != 0) a->totals->differs = f;
    }
    if (a->totals->n_tensors > 0) return true;
    diag_error(a->diag, (SourceLoc){a->options->paths[0], 0}, "has no weights");
    return false;
}

static bool open_writer(Averaging *a) {
    const Safetensors *first = a->files[0];
    a->writer = safetensors_writer_create();
    for (int i = 0; i < safetensors_count(first); i++) {
        const SafetensorsInfo *info = safetensors_at(first, i);
        if (tensor_is_state(info)) continue;
        safetensors_writer_add_tensor(a->writer, info->name, info->dtype, info->shape,
                                      info->n_dims);
    }
    for (int i = 0; i < safetensors_count_metadata(first); i++) {
        const char *key, *value;
        safetensors_metadata_at(first, i, &key, &value);
        if (a->options->leaves_out && a->options->leaves_out(key)) continue;
        safetensors_writer_add_metadata(a->writer, key, value);
    }
    return safetensors_writer_open(a->writer, a->options->to, a->diag);
}

/* --- the mean --- */

/* Of numbers at .. at + n of a tensor, at most TENSOR_BLOCK, to `out`; sums [n_files + 1]: the
 * squares of what each file is apart from the mean as it is written, and of the mean. */
static void average_block(const Averaging *a, const SafetensorsInfo *const *infos, int64_t at,
                          int64_t n, char *out, double *sums) {
    int n_files = a->options->n;
    float values[TENSOR_BLOCK];
    double mean[TENSOR_BLOCK];
    DType dtype;
    merge_block(&a->rule, &a->tensor, at, n, mean);
    for (int64_t i = 0; i < n; i++) values[i] = (float)mean[i];
    tensor_dtype(infos[0], &dtype);
    weights_store(dtype, values, out, n);
    weights_load(dtype, out, 0, values, n);
    for (int64_t i = 0; i < n; i++) {
        mean[i] = (double)values[i];
        sums[n_files] += mean[i] * mean[i];
    }
    for (int f = 0; f < n_files; f++) {
        tensor_load(infos[f], at, n, values);
        for (int64_t i = 0; i < n; i++) {
            double apart = (double)values[i] - mean[i];
            sums[f] += apart * apart;
        }
    }
}

/* Numbers at .. at + n, at most PIECE. */
static bool average_piece(Averaging *a, const SafetensorsInfo *const *infos, int64_t at,
                          int64_t n) {
    int n_files = a->options->n, n_blocks = (int)((n + TENSOR_BLOCK - 1) / TENSOR_BLOCK);
    size_t each = safetensors_dtype_bytes(infos[0]->dtype);
    memset(a->block_sums, 0, sizeof(double) * (size_t)n_blocks * (size_t)(n_files + 1));
#pragma omp parallel for schedule(dynamic)
    for (int b = 0; b < n_blocks; b++) {
        int64_t first = (int64_t)b * TENSOR_BLOCK, rest = n - first;
        average_block(a, infos, at + first, rest < TENSOR_BLOCK ? rest : TENSOR_BLOCK,
                      a->room + (size_t)first * each,
                      a->block_sums + (size_t)b * (size_t)(n_files + 1));
    }
    for (int b = 0; b < n_blocks; b++) {
        const double *sums = a->block_sums + (size_t)b * (size_t)(n_files + 1);
        for (int f = 0; f < n_files; f++) a->apart[f] += sums[f];
        a->norm += sums[n_files];
    }
    bool good =
        safetensors_writer_put(a->writer, infos[0]->name, a->room, (size_t)n * each, a->diag);
    a->totals->failed_to_write |= !good;
    a->bytes_done += (int64_t)((size_t)n * each);
    if (a->options->progress) {
        a->options->progress(a->options->progress_user, a->bytes_done, a->bytes_all);
    }
    return good;
}

static bool average_tensors(Averaging *a) {
    int n_files = a->options->n;
    const SafetensorsInfo **infos = memory_zeroed((size_t)n_files, sizeof(*infos));
    SafetensorsInfo *found = memory_zeroed((size_t)n_files, sizeof(*found));
    SafetensorsInfo base;
    bool good = true;
    for (int i = 0; good && i < safetensors_count(a->files[0]); i++) {
        const SafetensorsInfo *info = safetensors_at(a->files[0], i);
        if (tensor_is_state(info)) continue;
        for (int f = 0; f < n_files; f++) {
            if (!safetensors_find(a->files[f], info->name, &found[f]))
                BUG("%s is gone", info->name);
            infos[f] = &found[f];
        }
        if (a->base && !safetensors_find(a->base, info->name, &base)) BUG("%s is gone", info->name);
        a->tensor.infos = infos;
        a->tensor.base = a->base ? &base : NULL;
        merge_prepare(&a->rule, &a->tensor);
        int64_t n = tensor_count(info);
        for (int64_t at = 0; good && at < n; at += PIECE) {
            good = average_piece(a, infos, at, n - at < PIECE ? n - at : PIECE);
        }
    }
    free(infos);
    free(found);
    return good;
}

static void set_rule(Averaging *a) {
    const AverageOptions *options = a->options;
    for (int f = 0; f < options->n; f++) a->shares[f] = options->shares ? options->shares[f] : 1;
    a->rule = (MergeRule){.method = options->method,
                          .n = options->n,
                          .shares = a->shares,
                          .density = options->density,
                          .scale = options->scale,
                          .seed = options->seed};
}

static bool run(Averaging *a) {
    for (int f = 0; f < a->options->n; f++) {
        a->files[f] = safetensors_open(a->options->paths[f], a->diag);
        if (!a->files[f]) return false;
    }
    if (merge_needs_base(a->options->method)) {
        a->base = safetensors_open(a->options->base, a->diag);
        if (!a->base) return false;
    }
    if (!check_files(a)) return false;
    bool good = open_writer(a) && average_tensors(a);
    if (!good) {
        safetensors_writer_abandon(a->writer);
    } else if (!safetensors_writer_commit(a->writer, a->diag)) {
        a->totals->failed_to_write = true;
        good = false;
    }
    for (int f = 0; good && f < a->options->n; f++) {
        a->totals->distances[f] = a->norm > 0 ? sqrt(a->apart[f] / a->norm) : 0;
    }
    return good;
}

bool weights_average(const AverageOptions *options, AverageTotals *out, Diag *diag) {
    size_t n = (size_t)options->n;
    *out = (AverageTotals){.distances = out->distances};
    Averaging a = {.options = options, .totals = out, .diag = diag};
    a.files = memory_zeroed(n, sizeof(*a.files));
    a.shares = memory_zeroed(n, sizeof(double));
    a.apart = memory_zeroed(n, sizeof(double));
    a.block_sums = memory_zeroed((n + 1) * N_BLOCKS, sizeof(double));
    a.room = memory_alloc((size_t)PIECE * MOST_DTYPE_BYTES);
    a.tensor.least = memory_zeroed(n, sizeof(float));
    set_rule(&a);
    bool good = run(&a);
    for (size_t f = 0; f < n; f++) {
        if (a.files[f]) safetensors_close(a.files[f]);
    }
    if (a.base) safetensors_close(a.base);
    free(a.files);
    free(a.tensor.least);
    free(a.shares);
    free(a.apart);
    free(a.block_sums);
    free(a.room);
    return good;
}
