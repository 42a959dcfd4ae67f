/* Numbers -> blocks of 256: the k-quants q4_K, q5_K and q6_K, whose scales are searched for as
 * llama.cpp's reference code does (quantize_row_q4_K_ref and on, make_qkx2_quants and
 * make_qx_quants in ggml-quants.c). Sums are in f64, so that codes do not depend on how a compiler
 * orders them; they are then the same as there but where two are as good as each other. */
#include "frontend/gguf/gguf_types.h"

#include "runtime/cpu/ggml_blocks.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, RUN = 32, RUNS = BLOCK / RUN, MOST_SIX_BITS = 63 };

static int nearest(double number, int least, int most) {
    const double kept = fmax(least, fmin(most, number));
    return (int)lrint(kept);
}

/* --- scale and offset: x = scale code - offset --- */

typedef struct Fit {
    const float *x;
    double weights[RUN], sum_w, sum_x; /* each number's weight in the error; sums of w, w x */
    int most;                          /* the greatest code */
} Fit;

/* The least squares of scale and offset, at most 0, where codes are those of `inverse`. Returns the
 * error that these have, or -1: there is no such scale. */
static double fit_codes(const Fit *fit, double inverse, double least, double *scale,
                        double *offset) {
    double sum_l = 0, sum_l2 = 0, sum_xl = 0, error = 0;
    int codes[RUN];
    for (int i = 0; i < RUN; i++) {
        const double w = fit->weights[i];
        codes[i] = nearest(inverse * (fit->x[i] - least), 0, fit->most);
        sum_l += w * codes[i];
        sum_l2 += w * codes[i] * codes[i];
        sum_xl += w * codes[i] * fit->x[i];
    }
    const double spread = fit->sum_w * sum_l2 - sum_l * sum_l;
    if (!(spread > 0)) return -1;
    *scale = (fit->sum_w * sum_xl - fit->sum_x * sum_l) / spread;
    *offset = (sum_l2 * fit->sum_x - sum_l * sum_xl) / spread;
    if (*offset > 0) {
        *offset = 0;
        *scale = sum_xl / sum_l2;
    }
    for (int i = 0; i < RUN; i++) {
        const double off = *scale * codes[i] + *offset - fit->x[i];
        error += fit->weights[i] * off * off;
    }
    return error;
}

/* The best of n_steps + 1 scales around the one that spans all numbers. */
static void fit_run(const float *x, int most, double first, int n_steps, double *out_scale,
                    double *out_less) {
    Fit fit = {.x = x, .most = most};
    double squares = 0, least = 0, greatest = x[0], lowest = x[0], error = 0;
    for (int i = 0; i < RUN; i++) squares += (double)x[i] * x[i];
    for (int i = 0; i < RUN; i++) {
        fit.weights[i] = sqrt(squares / RUN) + fabs((double)x[i]);
        fit.sum_w += fit.weights[i];
        fit.sum_x += fit.weights[i] * x[i];
        greatest = fmax(greatest, x[i]);
        lowest = fmin(lowest, x[i]);
    }
    least = fmin(lowest, 0);
    *out_scale = 0;
    *out_less = -least;
    if (greatest == least) return;
    double scale = (greatest - least) / most;
    for (int i = 0; i < RUN; i++) {
        const double off = scale * nearest((x[i] - least) / scale, 0, most) + least - x[i];
        error += fit.weights[i] * off * off;
    }
    for (int step = 0; step <= n_steps; step++) {
        double other, shifted;
        const double inverse = (first + 0.1 * step + most) / (greatest - least);
        const double its = fit_codes(&fit, inverse, least, &other, &shifted);
        if (its < 0 || its >= error) continue;
        error = its;
        scale = other;
        least = shifted; /* further steps begin from it */
    }
    *out_scale = scale;
    *out_less = -least;
}

/* Scale k and offset k of 8, of 6 bits each, in 12 bytes (scale_and_offset's reverse). */
static void pack_six(unsigned char *packed, int k, unsigned scale, unsigned less) {
    if (k < 4) {
        packed[k] |= (unsigned char)scale;
        packed[k + 4] |= (unsigned char)less;
        return;
    }
    packed[k + 4] = (unsigned char)((scale & 15U) | (less & 15U) << 4);
    packed[k - 4] |= (unsigned char)(scale >> 4 << 6);
    packed[k] |= (unsigned char)(less >> 4 << 6);
}

/* Scales and offsets of all runs to the block's head, and what they are there: *n_runs each. */
static bool put_scales(const double *scales, const double *lesses, unsigned char *head, float *each,
                       float *less) {
    double most = 0, most_less = 0;
    for (int k = 0; k < RUNS; k++) {
        most = fmax(most, scales[k]);
        most_less = fmax(most_less, lesses[k]);
    }
    memset(head, 0, 16);
    if (!ggml_put_half((float)(most / MOST_SIX_BITS), head) ||
        !ggml_put_half((float)(most_less / MOST_SIX_BITS), head + 2)) {
        return false;
    }
    const float scale = ggml_half(head), offset = ggml_half(head + 2);
    for (int k = 0; k < RUNS; k++) {
        const int a = most > 0 ? nearest(MOST_SIX_BITS / most * scales[k], 0, MOST_SIX_BITS) : 0;
        const int b =
            most_less > 0 ? nearest(MOST_SIX_BITS / most_less * lesses[k], 0, MOST_SIX_BITS) : 0;
        pack_six(head + 4, k, (unsigned)a, (unsigned)b);
        each[k] = scale * (float)a;
        less[k] = offset * (float)b;
    }
    return true;
}

/* fifth: where fifth bits go, or NULL: codes have four. */
static bool narrow_block(const float *x, unsigned char *head, unsigned char *fifth,
                         unsigned char *codes) {
    double scales[RUNS], lesses[RUNS];
    float each[RUNS], less[RUNS];
    const int most = fifth ? 31 : 15;
    for (int k = 0; k < RUNS; k++) {
        fit_run(x + k * RUN, most, fifth ? -0.5 : -1, fifth ? 15 : 20, &scales[k], &lesses[k]);
        if (!isfinite(scales[k]) || !isfinite(lesses[k])) return false;
    }
    if (!put_scales(scales, lesses, head, each, less)) return false;
    memset(codes, 0, BLOCK / 2);
    if (fifth) memset(fifth, 0, RUN);
    for (int i = 0; i < BLOCK; i++) {
        const int k = i / RUN;
        const unsigned code =
            each[k] != 0 ? (unsigned)nearest(((double)x[i] + less[k]) / each[k], 0, most) : 0;
        codes[k / 2 * RUN + i % RUN] |= (unsigned char)((code & 15U) << (k % 2 * 4));
        if (fifth) fifth[i % RUN] |= (unsigned char)(code >> 4 << k);
    }
    return true;
}

bool gguf_narrow_q4_k(const float *numbers, int64_t n_blocks, unsigned char *out) {
    enum { HEAD = 16, BYTES = HEAD + BLOCK / 2 };
    bool fine = true;
#pragma omp parallel for reduction(&& : fine)
    for (int64_t i = 0; i < n_blocks; i++) {
        unsigned char *to = out + i * BYTES;
        fine = narrow_block(numbers + i * BLOCK, to, NULL, to + HEAD) && fine;
    }
    return fine;
}

bool gguf_narrow_q5_k(const float *numbers, int64_t n_blocks, unsigned char *out) {
    enum { HEAD = 16, CODES = HEAD + RUN, BYTES = CODES + BLOCK / 2 };
    bool fine = true;
#pragma omp parallel for reduction(&& : fine)
    for (int64_t i = 0; i < n_blocks; i++) {
        unsigned char *to = out + i * BYTES;
        fine = narrow_block(numbers + i * BLOCK, to, to + HEAD, to + CODES) && fine;
    }
    return fine;
}

/* --- a scale alone --- */

/* Of 16 numbers, whose codes go from -32 to 31: the one that fits best, weighted by their squares.
 */
static double fit_scale(const float *x) {
    enum { N = 16, HALF = 32 };
    const double nothing = 1e-15;
    double most = 0, scale = 0, best = 0;
    for (int i = 0; i < N; i++) {
        if (fabs((double)x[i]) > fabs(most)) most = x[i];
    }
    if (fabs(most) < nothing) return 0;
    for (int turn = 0; turn <= 18; turn++) {
        /* From the one where the greatest number's code is -32. */
        const int step = turn == 0 ? 0 : turn <= 9 ? turn - 10 : turn - 9;
        const double inverse = -(HALF + 0.1 * step) / most;
        double sum_xl = 0, sum_l2 = 0;
        for (int i = 0; i < N; i++) {
            const double w = (double)x[i] * x[i];
            const int code = nearest(inverse * x[i], -HALF, HALF - 1);
            sum_xl += w * x[i] * code;
            sum_l2 += w * code * code;
        }
        if (sum_l2 > 0 && (turn == 0 || sum_xl * sum_xl > best * sum_l2)) {
            scale = sum_xl / sum_l2;
            best = scale * sum_xl;
        }
    }
    return scale;
}

static bool narrow_six(const float *x, unsigned char *out) {
    enum { HIGH = BLOCK / 2, EACH = HIGH + BLOCK / 4, N = BLOCK / 16, SCALE = EACH + N };
    double scales[N], most = 0;
    for (int k = 0; k < N; k++) {
        scales[k] = fit_scale(x + 16 * k);
        if (!isfinite(scales[k])) return false;
        if (fabs(scales[k]) > fabs(most)) most = scales[k];
    }
    memset(out, 0, SCALE);
    if (!ggml_put_half((float)(most / -128), out + SCALE)) return false;
    const float scale = ggml_half(out + SCALE);
    for (int k = 0; k < N && most != 0; k++) {
        out[EACH + k] = (unsigned char)(int8_t)nearest(-128 / most * scales[k], -128, 127);
    }
    for (int i = 0; i < BLOCK; i++) {
        const float each = scale * (float)(int8_t)out[EACH + i / 16];
        const unsigned code =
            each != 0 ? (unsigned)(nearest((double)x[i] / each, -32, 31) + 32) : 32;
        out[i / 128 * 64 + i % 64] |= (unsigned char)((code & 15U) << (i % 128 / 64 * 4));
        out[HIGH + i / 128 * 32 + i % 32] |= (unsigned char)(code >> 4 << (i % 128 / 32 * 2));
    }
    return true;
}

bool gguf_narrow_q6_k(const float *numbers, int64_t n_blocks, unsigned char *out) {
    enum { BYTES = 210 };
    bool fine = true;
#pragma omp parallel for reduction(&& : fine)
    for (int64_t i = 0; i < n_blocks; i++) {
        fine = narrow_six(numbers + i * BLOCK, out + i * BYTES) && fine;
    }
    return fine;
}
