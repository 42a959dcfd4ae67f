#include "runtime/data/image_resize.h"

#include "ir/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISION = 32 - 8 - 2, HALF = 1 << (PRECISION - 1) };

/* --- filters --- */

static double bilinear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys 1981, with a = -1/2. */
static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x) {
    if (x == 0) return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x) {
    return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*at)(double x);
    double support;
} FILTERS[] = {[IMAGE_BILINEAR] = {bilinear, 1},
               [IMAGE_BICUBIC] = {bicubic, 2},
               [IMAGE_LANCZOS] = {lanczos, 3}};

/* --- weights --- */

/* Of each output pixel along one side: which input pixels it is of, and how much of each. */
typedef struct Weights {
    int *first, *count; /* [n_out] */
    int32_t *weights;   /* [n_out, room] */
    int room;
} Weights;

static int32_t to_fixed(double weight) {
    return (int32_t)(weight * (1 << PRECISION) + (weight < 0 ? -0.5 : 0.5));
}

static Weights make_weights(int n_in, int n_out, ImageFilter filter) {
    const double scale = (double)n_in / n_out, stretch = scale < 1 ? 1 : scale;
    const double support = FILTERS[filter].support * stretch, shrink = 1 / stretch;
    const int room = (int)ceil(support) * 2 + 1;
    Weights w = {memory_alloc((size_t)n_out * sizeof(int)),
                 memory_alloc((size_t)n_out * sizeof(int)),
                 memory_zeroed((size_t)n_out * (size_t)room, sizeof(int32_t)), room};
    double *real = memory_alloc((size_t)room * sizeof(*real));
    for (int i = 0; i < n_out; i++) {
        const double center = (i + 0.5) * scale;
        int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
        double sum = 0;
        if (first < 0) first = 0;
        if (end > n_in) end = n_in;
        for (int k = 0; k < end - first; k++) {
            real[k] = FILTERS[filter].at((k + first - center + 0.5) * shrink);
            sum += real[k];
        }
        for (int k = 0; k < end - first; k++) {
            w.weights[(size_t)i * (size_t)room + (size_t)k] =
                to_fixed(sum != 0 ? real[k] / sum : real[k]);
        }
        w.first[i] = first;
        w.count[i] = end - first;
    }
    free(real);
    return w;
}

static void release_weights(Weights *w) {
    free(w->first);
    free(w->count);
    free(w->weights);
}

static inline unsigned char to_byte(int32_t sum) {
    const int32_t value = sum >> PRECISION;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* --- passes --- */

/* Red, green, blue, and what is beside them in memory. */
typedef int32_t Four __attribute__((vector_size(16)));
typedef unsigned char FourBytes __attribute__((vector_size(4)));

/* A row of n_out pixels. Reads a byte behind the pixels that it is of (IMAGE_SLACK). */
static void resize_row(const unsigned char *from, const Weights *w, int n_out, unsigned char *to) {
    for (int x = 0; x < n_out; x++, to += 3) {
        const int32_t *weights = w->weights + (size_t)x * (size_t)w->room;
        const unsigned char *at = from + (size_t)w->first[x] * 3;
        Four sum = {HALF, HALF, HALF, HALF};
        for (int k = 0; k < w->count[x]; k++, at += 3) {
            FourBytes bytes;
            memcpy(&bytes, at, sizeof(bytes));
            sum += __builtin_convertvector(bytes, Four) * weights[k];
        }
        for (int c = 0; c < 3; c++) to[c] = to_byte(sum[c]);
    }
}

static bool resize_rows(Image *image, int width, ImageFilter filter, char *why) {
    Image out;
    if (!image_create(width, image->height, &out, why)) return false;
    Weights w = make_weights(image->width, width, filter);
    for (int y = 0; y < image->height; y++) {
        resize_row(image->rgb + (size_t)y * (size_t)image->width * 3, &w, width,
                   out.rgb + (size_t)y * (size_t)width * 3);
    }
    release_weights(&w);
    image_release(image);
    *image = out;
    return true;
}

/* n numbers of a row, of `count` rows below each other. */
static void sum_rows(const unsigned char *from, size_t n, const int32_t *weights, int count,
                     int32_t *restrict sums, unsigned char *restrict to) {
    for (size_t i = 0; i < n; i++) sums[i] = HALF;
    for (int k = 0; k < count; k++, from += n) {
        const int32_t weight = weights[k];
        for (size_t i = 0; i < n; i++) sums[i] += from[i] * weight;
    }
    for (size_t i = 0; i < n; i++) to[i] = to_byte(sums[i]);
}

static bool resize_columns(Image *image, int height, ImageFilter filter, char *why) {
    Image out;
    if (!image_create(image->width, height, &out, why)) return false;
    Weights w = make_weights(image->height, height, filter);
    const size_t n = (size_t)image->width * 3;
    int32_t *sums = memory_alloc(n * sizeof(*sums));
    for (int y = 0; y < height; y++) {
        sum_rows(image->rgb + (size_t)w.first[y] * n, n, w.weights + (size_t)y * (size_t)w.room,
                 w.count[y], sums, out.rgb + (size_t)y * n);
    }
    free(sums);
    release_weights(&w);
    image_release(image);
    *image = out;
    return true;
}

bool image_resize(Image *image, int width, int height, ImageFilter filter, char *why) {
    if (image->width != width && !resize_rows(image, width, filter, why)) return false;
    return image->height == height || resize_columns(image, height, filter, why);
}
