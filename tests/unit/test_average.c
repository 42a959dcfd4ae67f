/* The mean of files of weights against f64: in the first file's dtypes, of any number of files,
 * with shares, whatever the number of threads; what is not of one model is refused. */
#include "runtime/checkpoint/average.h"

#include "ir/base/arena.h"
#include "ir/type.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/cpu/blocks.h"
#include "tests/unit/check.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two pieces and a bit, so that there are several of all. */
enum { ROWS = 2100, COLUMNS = 1009, N = ROWS * COLUMNS, N_FILES = 3 };

static char folder[] = "/tmp/test_average-XXXXXX";
static Arena *arena;
static float *numbers[N_FILES]; /* [N], as they are in the files */

static float number(int file, int64_t i) {
    uint64_t x = (uint64_t)(i * 7 + file + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    return (float)(x % 2000003) / 1000001.f - 1;
}

typedef struct Made {
    SafetensorsDtype dtype;
    const char *extra; /* another tensor's name; NULL: none */
    const char *settings;
    int64_t rows;
} Made;

static const char *make(int file, Made how) {
    const char *path = arena_printf(arena, "%s/%d.st", folder, file);
    static const int64_t ONE[] = {1};
    const int64_t shape[] = {how.rows, COLUMNS};
    static const int32_t one = 1;
    size_t each = safetensors_dtype_bytes(how.dtype);
    Diag *diag = diag_create();
    SafetensorsWriter *writer = safetensors_writer_create();
    char *bytes = malloc((size_t)N * each);
    DType dtype = how.dtype == SAFETENSORS_F32    ? DTYPE_F32
                  : how.dtype == SAFETENSORS_BF16 ? DTYPE_BF16
                                                  : DTYPE_F16;
    for (int64_t i = 0; i < N; i++) numbers[file][i] = number(file, i);
    weights_store(dtype, numbers[file], bytes, N);
    weights_load(dtype, bytes, 0, numbers[file], N);
    if (how.extra) safetensors_writer_add_tensor(writer, how.extra, SAFETENSORS_I32, ONE, 1);
    safetensors_writer_add_tensor(writer, "w", how.dtype, shape, 2);
    safetensors_writer_add_metadata(writer, "model", "gpt");
    safetensors_writer_add_metadata(writer, "settings", how.settings);
    safetensors_writer_add_metadata(writer, "step", "7");
    bool good =
        safetensors_writer_open(writer, path, diag) &&
        (!how.extra || safetensors_writer_put(writer, how.extra, &one, sizeof(one), diag)) &&
        safetensors_writer_put(writer, "w", bytes, (size_t)(how.rows * COLUMNS) * each, diag) &&
        safetensors_writer_commit(writer, diag);
    CHECK(good, "%s", diag_text(diag));
    free(bytes);
    diag_destroy(diag);
    return path;
}

static bool is_step(const char *key) {
    return strcmp(key, "step") == 0;
}

static const char *paths[N_FILES];

static bool average(int n, const double *shares, AverageTotals *totals, Diag *diag) {
    const AverageOptions options = {.paths = paths,
                                    .shares = shares,
                                    .n = n,
                                    .to = arena_printf(arena, "%s/mean.st", folder),
                                    .leaves_out = is_step,
                                    .settings_key = "settings"};
    return weights_average(&options, totals, diag);
}

/* The mean's numbers and how far files are from it, against f64. */
static void check_mean(int n, const double *shares, SafetensorsDtype dtype, double rounding) {
    Diag *diag = diag_create();
    double distances[N_FILES] = {0}, expected[N_FILES] = {0}, norm = 0, sum = 0, worst = 0;
    AverageTotals totals = {.distances = distances};
    SafetensorsInfo info;
    bool good = average(n, shares, &totals, diag);
    CHECK(good, "%s", diag_text(diag));
    Safetensors *file =
        good ? safetensors_open(arena_printf(arena, "%s/mean.st", folder), diag) : NULL;
    if (file && safetensors_find(file, "w", &info)) {
        float *mean = malloc(N * sizeof(float));
        char *bytes = malloc(info.n_bytes);
        memcpy(bytes, info.data, info.n_bytes);
        CHECK(info.dtype == dtype && info.n_dims == 2 && info.shape[0] == ROWS, "another kind");
        weights_load(dtype == SAFETENSORS_F32 ? DTYPE_F32 : DTYPE_BF16, bytes, 0, mean, N);
        for (int f = 0; f < n; f++) sum += shares ? shares[f] : 1;
        for (int64_t i = 0; i < N; i++) {
            double exact = 0;
            for (int f = 0; f < n; f++)
                exact += (shares ? shares[f] : 1) / sum * (double)numbers[f][i];
            double apart = fabs((double)mean[i] - exact) - rounding * fabs(exact);
            if (apart > worst) worst = apart;
            norm += (double)mean[i] * (double)mean[i];
            for (int f = 0; f < n; f++)
                expected[f] += pow((double)numbers[f][i] - (double)mean[i], 2);
        }
        CHECK(worst < 1e-12, "%g apart beyond rounding", worst);
        for (int f = 0; f < n; f++) {
            double is = sqrt(expected[f] / norm);
            CHECK(fabs(distances[f] - is) < 1e-9 * is + 1e-12, "file %d: %g, not %g", f,
                  distances[f], is);
        }
        CHECK(totals.n_numbers == N && totals.n_tensors == 1, "%lld numbers",
              (long long)totals.n_numbers);
        const char *model = safetensors_find_metadata(file, "model");
        CHECK(model && strcmp(model, "gpt") == 0, "metadata are gone");
        CHECK(!safetensors_find_metadata(file, "step"), "a place in a run is there");
        free(bytes);
        free(mean);
    } else {
        CHECK(false, "no tensor");
    }
    if (file) safetensors_close(file);
    diag_destroy(diag);
}

/* --- merges, against their formulas in f64 --- */

enum { SMALL_ROWS = 3, SMALL = SMALL_ROWS * COLUMNS };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The `kept`th largest absolute difference of file f from the base, which is the last file. */
static double least_kept(int f, int base, int kept) {
    static double sizes[SMALL];
    for (int i = 0; i < SMALL; i++) {
        sizes[i] = (double)fabsf(numbers[f][i] - numbers[base][i]);
    }
    qsort(sizes, SMALL, sizeof(double), by_size);
    return sizes[kept - 1];
}

static double merged_exactly(MergeMethod method, int i, const double *shares, double scale,
                             const double *least) {
    const double base = (double)numbers[2][i];
    double sum = 0, sign = 0, weight = 0;
    for (int f = 0; f < 2; f++) sum += shares[f] * ((double)numbers[f][i] - base);
    if (method == MERGE_TASK) return base + scale * sum;
    for (int pass = 0, f = 0; pass < 2; f++) {
        const float apart = numbers[f][i] - numbers[2][i];
        if (f == 0) sum = 0;
        if ((double)fabsf(apart) >= least[f]) {
            if (pass == 0) sign += shares[f] * (double)apart;
            if (pass == 1 && sign * (double)apart > 0) {
                sum += shares[f] * (double)apart;
                weight += shares[f];
            }
        }
        if (f == 1) pass++, f = -1;
    }
    return base + (weight > 0 ? scale * sum / weight : 0);
}

static void check_merge(const char *name, MergeMethod method) {
    static const double SHARES[] = {0.5, 0.25};
    const Made how = {SAFETENSORS_F32, NULL, "a=1", SMALL_ROWS};
    const double density = 0.3, scale = 0.7;
    Diag *diag = diag_create();
    double distances[N_FILES], worst = 0, least[2];
    AverageTotals totals = {.distances = distances};
    SafetensorsInfo info;
    int n_dropped = 0;
    check_begin(name);
    for (int f = 0; f < N_FILES; f++) paths[f] = make(f, how);
    const AverageOptions options = {.paths = paths,
                                    .shares = SHARES,
                                    .n = 2,
                                    .to = arena_printf(arena, "%s/merged.st", folder),
                                    .method = method,
                                    .base = paths[2],
                                    .density = density,
                                    .scale = scale,
                                    .seed = 4,
                                    .settings_key = "settings"};
    CHECK(weights_average(&options, &totals, diag), "%s", diag_text(diag));
    for (int f = 0; f < 2; f++) least[f] = least_kept(f, 2, (int)ceil(density * SMALL));
    double dot = 0, squares[2] = {0};
    for (int i = 0; i < SMALL; i++) {
        dot += (double)numbers[0][i] * (double)numbers[1][i];
        for (int f = 0; f < 2; f++) squares[f] += pow((double)numbers[f][i], 2);
    }
    const double angle = acos(dot / sqrt(squares[0] * squares[1])), t = 0.25 / 0.75;
    Safetensors *file = safetensors_open(options.to, diag);
    if (file && safetensors_find(file, "w", &info)) {
        for (int i = 0; i < SMALL; i++) {
            float is;
            double exact;
            memcpy(&is, (const char *)info.data + (size_t)i * sizeof(is), sizeof(is));
            if (method == MERGE_DARE) {
                /* Each difference is there or not: one of four numbers. */
                double nearest = INFINITY;
                exact = 0;
                for (int kept = 0; kept < 4; kept++) {
                    double some = (double)numbers[2][i];
                    for (int f = 0; f < 2; f++) {
                        const double apart = (double)numbers[f][i] - (double)numbers[2][i];
                        if (kept >> f & 1) some += scale * SHARES[f] * apart / density;
                    }
                    if (fabs(some - (double)is) < nearest) exact = some;
                    nearest = fmin(nearest, fabs(some - (double)is));
                }
                n_dropped += fabs((double)is - (double)numbers[2][i]) < 1e-9;
            } else if (method == MERGE_SLERP) {
                exact = (sin((1 - t) * angle) * (double)numbers[0][i] +
                         sin(t * angle) * (double)numbers[1][i]) /
                        sin(angle);
            } else {
                exact = merged_exactly(method, i, SHARES, scale, least);
            }
            worst = fmax(worst, fabs((double)is - exact) / (1 + fabs(exact)));
        }
        safetensors_close(file);
    } else {
        CHECK(false, "no tensor");
    }
    CHECK(worst < 1e-7, "%g apart", worst);
    const double none = (double)n_dropped / SMALL;
    CHECK(method != MERGE_DARE || fabs(none - 0.49) < 0.04, "%g of numbers kept nothing", none);
    diag_destroy(diag);
}

static void refuse(const char *name, int n, const char *expected) {
    Diag *diag = diag_create();
    double distances[N_FILES];
    AverageTotals totals = {.distances = distances};
    check_begin(name);
    bool good = average(n, NULL, &totals, diag);
    CHECK(!good && strstr(diag_text(diag), expected), "%s", diag_text(diag));
    CHECK(!totals.failed_to_write, "said to be a failure to write");
    diag_destroy(diag);
}

int main(void) {
    static const double SHARES[] = {3, 0, 1};
    const Made f32 = {SAFETENSORS_F32, NULL, "a=1", ROWS},
               bf16 = {SAFETENSORS_BF16, NULL, "a=1", ROWS},
               f16 = {SAFETENSORS_F16, NULL, "a=1", ROWS};
    arena = arena_create();
    if (!mkdtemp(folder)) return 1;
    for (int f = 0; f < N_FILES; f++) numbers[f] = malloc(N * sizeof(float));
    check_begin("three files in f32, with one thread and with three");
    for (int f = 0; f < N_FILES; f++) paths[f] = make(f, f32);
    omp_set_num_threads(1);
    check_mean(3, NULL, SAFETENSORS_F32, 0x1p-24);
    omp_set_num_threads(3);
    check_mean(3, NULL, SAFETENSORS_F32, 0x1p-24);
    check_begin("shares, one of them 0");
    check_mean(3, SHARES, SAFETENSORS_F32, 0x1p-24);
    check_begin("one file twice is itself");
    paths[1] = paths[0];
    memcpy(numbers[1], numbers[0], N * sizeof(float));
    check_mean(2, NULL, SAFETENSORS_F32, 0);
    check_begin("bf16 first, then f32 and f16");
    paths[0] = make(0, bf16), paths[1] = make(1, f32), paths[2] = make(2, f16);
    check_mean(3, NULL, SAFETENSORS_BF16, 0x1p-8);
    check_begin("a file whose data begin anywhere");
    paths[1] = make(1, (Made){SAFETENSORS_F32, "adam_m/i", "a=2", ROWS});
    check_mean(2, NULL, SAFETENSORS_BF16, 0x1p-8);

    check_merge("slerp", MERGE_SLERP);
    check_merge("task", MERGE_TASK);
    check_merge("ties", MERGE_TIES);
    check_merge("dare", MERGE_DARE);
    paths[0] = make(0, bf16), paths[1] = make(1, (Made){SAFETENSORS_F32, "adam_m/i", "a=2", ROWS});

    check_begin("other settings are noticed");
    Diag *diag = diag_create();
    double distances[N_FILES];
    AverageTotals totals = {.distances = distances};
    CHECK(average(2, NULL, &totals, diag) && totals.differs == 1, "%d", totals.differs);
    diag_destroy(diag);
    paths[1] = make(1, (Made){SAFETENSORS_F32, "i", "a=1", ROWS});
    refuse("a tensor that the first has not", 2, "/0.st: has no tensor 'i', which ");
    const char *first = paths[0];
    paths[0] = paths[1], paths[1] = first;
    refuse("numbers that are no weights", 2,
           "/1.st: tensor 'i' is I32: f32, bf16 and f16 are averaged");
    paths[0] = make(0, f32), paths[1] = make(1, (Made){SAFETENSORS_F32, NULL, "a=1", ROWS - 1});
    refuse("another shape", 2, "/1.st: tensor 'w' has another shape than in ");
    paths[1] = arena_printf(arena, "%s/none.st", folder);
    refuse("no such file", 2, "none.st: cannot open");
    check_end();
    for (int f = 0; f < N_FILES; f++) free(numbers[f]);
    arena_destroy(arena);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return check_report();
}
