/* The large file, tensor by tensor: beside pages of the small one a piece of some MiB is held, or
 * one row of a parameter where that is more. */
#include "frontend/grow/grow.h"
#include "ir/base/memory.h"
#include "ir/op.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/philox.h"
#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 /* numbers that are written at a time */, MOST_DTYPE_BYTES = 4 };
/* Of rows of new tokens, beside the old ones' root mean square: else all would stay alike. */
static const double LEAST_TOKEN_NOISE = 0.01;

typedef struct Writing {
    const GrowOptions *options;
    Grown *grown;
    Safetensors *file;
    SafetensorsWriter *writer;
    int64_t bytes_done, bytes_all;
    Diag *diag;
} Writing;

/* One parameter: rows are all along its last axis. */
typedef struct Filling {
    const GrowParam *param;
    const Type *type;
    SafetensorsInfo info; /* the small one's; n_dims 0 where there is none, or it is a scalar */
    int64_t n_last, n_last_from, n_slices;
    double size;  /* root mean square of the small one's numbers, as they become */
    double noise; /* deviation of noise on all; of new tokens' rows */
    double token_noise;
    float *mean; /* [n_last_from] of the rows of all tokens; NULL: there are no new ones */
    PhiloxStream random;
} Filling;

static int64_t small_index(const Filling *f, int dim, int64_t at, int64_t expert) {
    const GrowDim *d = &f->param->dims[dim];
    const int64_t large = f->type->dims[dim];
    switch (d->kind) {
    case GROW_SAME: return at;
    case GROW_CLONE: return at % d->from;
    case GROW_EXPERTS: return at / (large / d->from);
    case GROW_MIXTURE: return 0;
    case GROW_SLICE: return expert % f->n_slices * large + at;
    case GROW_TOKENS: return at;
    }
    return at;
}

static void load_row(const SafetensorsInfo *info, int64_t at, int64_t n, float *out) {
    for (int64_t done = 0; done < n; done += TENSOR_BLOCK) {
        tensor_load(info, at + done, n - done < TENSOR_BLOCK ? n - done : TENSOR_BLOCK, out + done);
    }
}

/* Row `row` of the large parameter, before noise; `room` [n_last_from]. True: of a new token. */
static bool copy_row(const Filling *f, int64_t row, float *room, float *out) {
    const Type *type = f->type;
    int64_t at[MAX_RANK] = {0}, offset = 0, expert = 0, rest = row;
    const int rank = type->rank;
    bool is_new = false;
    for (int d = rank - 2; d >= 0; d--) {
        at[d] = rest % type->dims[d];
        rest /= type->dims[d];
    }
    if (rank > 0 && f->param->dims[0].kind == GROW_MIXTURE) expert = at[0];
    for (int d = 0; d < rank - 1; d++) {
        if (f->param->dims[d].kind == GROW_MIXTURE) continue;
        is_new |= f->param->dims[d].kind == GROW_TOKENS && at[d] >= f->param->dims[d].from;
        offset = offset * f->param->dims[d].from + (is_new ? 0 : small_index(f, d, at[d], expert));
    }
    if (is_new) {
        memcpy(room, f->mean, (size_t)f->n_last_from * sizeof(float));
    } else {
        load_row(&f->info, offset * f->n_last_from, f->n_last_from, room);
    }
    const bool by_token = rank == 1 && f->param->dims[0].kind == GROW_TOKENS;
    for (int64_t j = 0; j < f->n_last; j++) {
        const bool beyond = by_token && j >= f->n_last_from;
        const float x = beyond ? f->mean[0] : room[small_index(f, rank - 1, j, expert)];
        out[j] = (float)((double)x * f->param->scale);
    }
    return is_new;
}

static void add_noise(const Filling *f, int64_t first, int64_t n, double deviation, float *out) {
    float draws[256];
    for (int64_t done = 0; deviation > 0 && done < n; done += 256) {
        const int64_t count = n - done < 256 ? n - done : 256;
        philox_normal_run(&f->random, (uint64_t)(first + done), 1, count, draws);
        for (int64_t i = 0; i < count; i++) {
            out[done + i] += (float)(deviation * (double)draws[i]);
        }
    }
}

/* As training would make it (engine_init_parameters), numbered in the whole tensor; neighbours of a
 * router that stand for one expert are alike. */
static void make_row(const Filling *f, int64_t row, float *out) {
    const Node *node = f->param->node;
    const char *init = node_string(node, ATTR_init);
    const int64_t n = f->n_last, last = type_elements(f->type) - 1;
    const double low = node_float(node, ATTR_low, 0), high = node_float(node, ATTR_high, 0);
    const uint64_t first = (uint64_t)(row * n);
    if (strcmp(init, "normal") == 0) {
        philox_normal_run(&f->random, first, 1, n, out);
        const float std = (float)node_float(node, ATTR_std, 0.02);
        for (int64_t i = 0; i < n; i++) out[i] *= std;
    } else if (strcmp(init, "uniform") == 0) {
        philox_uniform_run(&f->random, first, 1, n, out);
        for (int64_t i = 0; i < n; i++) out[i] = (float)low + (float)(high - low) * out[i];
    } else {
        const double step = last > 0 ? (high - low) / (double)last : 0;
        const bool range = strcmp(init, "range") == 0;
        const float value = strcmp(init, "ones") == 0 ? 1 : 0;
        for (int64_t i = 0; i < n; i++) {
            out[i] = range ? (float)(low + step * (double)(row * n + i)) : value;
        }
    }
    if (f->param->n_alike <= 1 || f->param->side_axis != f->type->rank - 1) return;
    for (int64_t i = 0; i < n; i++) out[i] = out[i / f->param->n_alike * f->param->n_alike];
}

static void fill_row(const Filling *f, int64_t row, float *room, float *out) {
    if (f->param->zero) {
        memset(out, 0, (size_t)f->n_last * sizeof(float));
    } else if (!f->param->from) {
        make_row(f, row, out);
    } else {
        const bool is_new = copy_row(f, row, room, out);
        const bool by_token = f->type->rank == 1 && f->mean;
        const int64_t old = by_token ? f->n_last_from : is_new ? 0 : f->n_last;
        const int64_t first = row * f->n_last;
        add_noise(f, first, old, f->noise, out);
        add_noise(f, first + old, f->n_last - old, f->token_noise, out + old);
    }
}

/* The mean of all rows, in f64. */
static void find_mean(Filling *f, double *sums, float *row) {
    const int64_t n = f->n_last_from, rows = tensor_count(&f->info) / n;
    const bool by_token = f->type->rank == 1;
    memset(sums, 0, (size_t)n * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        load_row(&f->info, i * n, n, row);
        for (int64_t j = 0; j < n; j++) sums[by_token ? 0 : j] += (double)row[j];
    }
    const double count = (double)(by_token ? n : rows);
    for (int64_t j = 0; j < n; j++) f->mean[j] = (float)(sums[by_token ? 0 : j] / count);
}

/* Is anything there more than once? */
static bool has_copies(const Filling *f) {
    for (int d = 0; d < f->type->rank; d++) {
        const GrowKind kind = f->param->dims[d].kind;
        if (kind == GROW_CLONE || kind == GROW_EXPERTS || kind == GROW_MIXTURE) return true;
    }
    return false;
}

static void begin(Filling *f, const Writing *w, bool *out_has_tokens) {
    const Type *type = f->type;
    const int last = type->rank - 1;
    f->n_last = type->rank > 0 ? type->dims[last] : 1;
    f->n_last_from = f->n_last;
    f->n_slices = 1;
    f->random = (PhiloxStream){.seed = w->options->seed, .key = philox_key_of(f->param->name)};
    *out_has_tokens = false;
    if (!f->param->from || f->param->zero) return;
    if (type->rank > 0) f->n_last_from = f->param->dims[last].from;
    for (int d = 0; d < type->rank; d++) {
        const GrowDim *dim = &f->param->dims[d];
        if (dim->kind == GROW_SLICE) f->n_slices = dim->from / type->dims[d];
        *out_has_tokens |= dim->kind == GROW_TOKENS;
    }
    f->random.step = 1; /* other numbers than those that it could begin with */
    const double noise = w->options->noise;
    if (noise <= 0 && !*out_has_tokens) return;
    TensorValues values = {0};
    tensor_values_add(&f->info, &values);
    const double n = values.n_finite > 0 ? (double)values.n_finite : 1;
    f->size = sqrt(values.squares / n) * f->param->scale;
    if (has_copies(f) && type->rank > 1) f->noise = noise * f->size;
    f->token_noise = (noise > LEAST_TOKEN_NOISE ? noise : LEAST_TOKEN_NOISE) * f->size;
}

static bool write_pieces(Writing *w, const Filling *f, DType dtype) {
    const int64_t rows = type_elements(f->type) / f->n_last;
    const int64_t most = f->n_last < PIECE ? PIECE / f->n_last : 1;
    const size_t numbers = (size_t)(most * f->n_last), each = (size_t)dtype_bytes(dtype);
    float *values = memory_alloc(numbers * sizeof(float));
    char *bytes = memory_alloc(numbers * each);
    bool good = true;
    for (int64_t first = 0; good && first < rows; first += most) {
        const int64_t n = rows - first < most ? rows - first : most;
#pragma omp parallel
        {
            float *room = memory_alloc((size_t)f->n_last_from * sizeof(float));
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n; i++) fill_row(f, first + i, room, values + i * f->n_last);
            free(room);
        }
        const size_t size = (size_t)(n * f->n_last) * each;
        weights_store(dtype, values, bytes, n * f->n_last);
        good = safetensors_writer_put(w->writer, f->param->name, bytes, size, w->diag);
        w->bytes_done += (int64_t)size;
        if (w->options->progress) {
            w->options->progress(w->options->progress_user, w->bytes_done, w->bytes_all);
        }
    }
    free(values);
    free(bytes);
    return good;
}

/* What a new parameter is kept in: as the file's first. */
static DType dtype_of(const Writing *w, const GrowParam *param) {
    SafetensorsInfo info;
    DType dtype = DTYPE_F32;
    for (int i = 0; i < safetensors_count(w->file); i++) {
        const SafetensorsInfo *first = safetensors_at(w->file, i);
        if (!tensor_is_state(first) && tensor_dtype(first, &dtype)) break;
    }
    if (param->from && safetensors_find(w->file, param->from_name, &info)) {
        tensor_dtype(&info, &dtype);
    }
    return dtype;
}

static bool write_param(Writing *w, const GrowParam *param) {
    Filling f = {.param = param, .type = &param->node->types[0]};
    bool has_tokens;
    if (param->from && !safetensors_find(w->file, param->from_name, &f.info)) {
        BUG("%s is gone", param->from_name);
    }
    begin(&f, w, &has_tokens);
    if (has_tokens) {
        const size_t n = (size_t)f.n_last_from;
        double *sums = memory_zeroed(n, sizeof(double));
        float *row = memory_zeroed(n, sizeof(float));
        f.mean = memory_zeroed(n, sizeof(float));
        find_mean(&f, sums, row);
        free(sums);
        free(row);
    }
    const bool good = write_pieces(w, &f, dtype_of(w, param));
    free(f.mean);
    return good;
}

static bool write_all(Arena *arena, Writing *w) {
    const Model *into = w->options->into;
    for (int i = 0; i < w->grown->n_params; i++) {
        const GrowParam *param = &w->grown->params[i];
        const Type *type = &param->node->types[0];
        const DType dtype = dtype_of(w, param);
        safetensors_writer_add_tensor(w->writer, param->name, tensor_file_dtype(dtype), type->dims,
                                      type->rank);
        w->bytes_all += type_elements(type) * dtype_bytes(dtype);
    }
    safetensors_writer_add_metadata(w->writer, "format", "pt");
    safetensors_writer_add_metadata(w->writer, "model", into->name);
    safetensors_writer_add_metadata(w->writer, ENGINE_SETTINGS_KEY,
                                    settings_text(&into->settings, arena));
    bool good = safetensors_writer_open(w->writer, w->options->to, w->diag);
    for (int i = 0; good && i < w->grown->n_params; i++) {
        good = write_param(w, &w->grown->params[i]);
    }
    if (good) return safetensors_writer_commit(w->writer, w->diag);
    safetensors_writer_abandon(w->writer);
    return false;
}

bool grow_write(Arena *arena, const GrowOptions *options, Grown *grown, Diag *diag) {
    Writing w = {.options = options, .grown = grown, .diag = diag};
    w.file = safetensors_open(options->path, diag);
    if (!w.file) return false;
    w.writer = safetensors_writer_create();
    const bool good = write_all(arena, &w);
    grown->failed_to_write = !good;
    safetensors_close(w.file);
    return good;
}
