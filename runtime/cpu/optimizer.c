#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "ir/moments.h"
#include "runtime/cpu/moments.h"
#include "runtime/cpu/optimizer.h"

#include <math.h>

#define CHUNK 8192 /* elements a thread updates at a time */
#define TILE  1024 /* and of those that are widened first */

uint32_t optimizer_threshold(float step) {
    uint32_t x = (uint32_t)(int64_t)step; /* Murmur3's last steps */
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (x ^ x >> 16) & 0xffff;
}

static int64_t tile_length(DType state, DType gradient, bool halves) {
    return state != DTYPE_F32 || dtype_is_low(gradient) || halves ? TILE : CHUNK;
}

/* Is the copy the upper half of the parameter's memory? */
static bool in_halves(const void *p, const uint16_t *copy) {
    return p == copy;
}

/* Elements of a parameter of n from the first-th on: where they are, or joined in `tile`. */
static float *open_parameter(void *p, const uint16_t *copy, int64_t n, int64_t first, int64_t count,
                             float *tile) {
    if (!in_halves(p, copy)) return (float *)p + first;
    halves_load(copy + first, copy + n + first, tile, count);
    return tile;
}

/* Keeps what open_parameter gave, with its copy, if it has one. */
static void close_parameter(DType copy_dtype, const void *p, uint16_t *copy, int64_t n,
                            int64_t first, int64_t count, const float *ps) {
    if (in_halves(p, copy)) {
        halves_store(ps, copy + first, copy + n + first, count);
    } else if (copy) {
        copy_store(copy_dtype, ps, copy + first, count);
    }
}

/* Elements of a state from the first-th on, as f32: where they are, or in `tile`. */
static float *open_state(void *state, DType dtype, int64_t first, int64_t n, float *tile) {
    if (dtype == DTYPE_F32) return (float *)state + first;
    if (dtype_is_moment(dtype)) {
        moments_load(dtype, state, first, tile, n);
    } else {
        vec_bf16_load((const uint16_t *)state + first, tile, n);
    }
    return tile;
}

/* Keeps first moments that open_state gave. */
static void close_state(void *state, DType dtype, int64_t first, int64_t n, const float *tile) {
    if (dtype_is_moment(dtype)) {
        moments_store(dtype, tile, state, first, n, NEAREST_THRESHOLD);
    } else {
        vec_close_tile(state, dtype, first, n, tile);
    }
}

/* And second ones, at least 0, as the threshold has it. */
static void close_squares(void *state, DType dtype, int64_t first, int64_t n, const float *tile,
                          uint32_t threshold) {
    if (dtype_is_moment(dtype)) moments_store(dtype, tile, state, first, n, threshold);
    if (!dtype_is_low(dtype)) return;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)state + first)[i] = (uint16_t)((vec_bits(tile[i]) + threshold) >> 16);
    }
}

void optimizer_loss_scale(int64_t interval, float most, const float *factor, float *scale,
                          float *finite_steps, float *updates) {
    const bool finite = isfinite(*factor);
    if (isinf(*factor)) return;
    *finite_steps = finite ? *finite_steps + 1 : 0;
    if (finite) *updates += 1;
    if (interval == 0) return;
    if (!finite) *scale = fmaxf(*scale * 0.5f, 1);
    if (*finite_steps >= (float)interval) {
        *scale = fminf(*scale * 2, most);
        *finite_steps = 0;
    }
}

void optimizer_adamw(const AdamwConfig *config, int64_t n, const float *lr, const float *step,
                     const float *clip, const void *g, void *p, void *m, void *v, uint16_t *copy) {
    const DType state = config->state_dtype;
    const DType squares = state == DTYPE_DYN8 ? DTYPE_DYN8U : state;
    const int64_t length = tile_length(state, config->gradient_dtype, in_halves(p, copy));
    const uint32_t threshold = optimizer_threshold(*step);
    const float factor = clip ? *clip : 1.0f;
    if (!isfinite(factor)) return;
    /* The scalars in f64, as PyTorch has them. */
    const double rate = (double)*lr * config->lr_scale, t = (double)*step;
    const double correction1 = 1.0 - pow(config->beta1, t);
    const double correction2 = 1.0 - pow(config->beta2, t);
    const float keep = (float)(1.0 - rate * config->weight_decay);
    const float size = (float)(rate / correction1);
    const float unscale = (float)(1.0 / sqrt(correction2)), eps = (float)config->eps;
    const float beta2 = (float)config->beta2;
    const float take1 = (float)(1.0 - config->beta1), take2 = (float)(1.0 - config->beta2);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += length) {
        const int64_t count = n - first < length ? n - first : length;
        float tiles[4][TILE];
        const float *gs = vec_tile(g, config->gradient_dtype, first, count, tiles[2]);
        float *ms = open_state(m, state, first, count, tiles[0]);
        float *vs = open_state(v, squares, first, count, tiles[1]);
        float *ps = open_parameter(p, copy, n, first, count, tiles[3]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float gi = gs[i] * factor;
            const float mi = ms[i] + take1 * (gi - ms[i]);
            const float vi = beta2 * vs[i] + take2 * gi * gi;
            ms[i] = mi;
            vs[i] = vi;
            ps[i] = ps[i] * keep - size * (mi / (sqrtf(vi) * unscale + eps));
        }
        close_state(m, state, first, count, ms);
        close_squares(v, squares, first, count, vs, threshold);
        close_parameter(config->copy_dtype, p, copy, n, first, count, ps);
    }
}

void optimizer_sgd(const SgdConfig *config, int64_t n, const float *lr, const float *clip,
                   const void *g, void *p, void *buf, uint16_t *copy) {
    const DType state = config->state_dtype;
    const int64_t length = tile_length(state, config->gradient_dtype, in_halves(p, copy));
    const float factor = clip ? *clip : 1.0f;
    if (!isfinite(factor)) return;
    const float rate = (float)((double)*lr * config->lr_scale);
    const float momentum = (float)config->momentum;
    const float decay = (float)config->weight_decay;
    const bool nesterov = config->nesterov;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += length) {
        const int64_t count = n - first < length ? n - first : length;
        float tiles[3][TILE], *bs, *ps = open_parameter(p, copy, n, first, count, tiles[2]);
        const float *gs = vec_tile(g, config->gradient_dtype, first, count, tiles[1]);
        if (momentum == 0) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) ps[i] -= rate * (gs[i] * factor + decay * ps[i]);
            close_parameter(config->copy_dtype, p, copy, n, first, count, ps);
            continue;
        }
        bs = open_state(buf, state, first, count, tiles[0]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float gi = gs[i] * factor + decay * ps[i];
            const float bi = momentum * bs[i] + gi;
            bs[i] = bi;
            ps[i] -= rate * (nesterov ? gi + momentum * bi : bi);
        }
        close_state(buf, state, first, count, bs);
        close_parameter(config->copy_dtype, p, copy, n, first, count, ps);
    }
}

static float sign_of(float x) {
    return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

void optimizer_lion(const LionConfig *config, int64_t n, const float *lr, const float *clip,
                    const void *g, void *p, void *m, uint16_t *copy) {
    const DType state = config->state_dtype;
    const int64_t length = tile_length(state, config->gradient_dtype, in_halves(p, copy));
    const float factor = clip ? *clip : 1.0f;
    if (!isfinite(factor)) return;
    const double rate = (double)*lr * config->lr_scale;
    const float keep = (float)(1.0 - rate * config->weight_decay), size = (float)rate;
    const float take1 = (float)(1.0 - config->beta1), take2 = (float)(1.0 - config->beta2);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += length) {
        const int64_t count = n - first < length ? n - first : length;
        float tiles[3][TILE], *ms = open_state(m, state, first, count, tiles[0]);
        float *ps = open_parameter(p, copy, n, first, count, tiles[2]);
        const float *gs = vec_tile(g, config->gradient_dtype, first, count, tiles[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float gi = gs[i] * factor, mi = ms[i];
            ps[i] = ps[i] * keep - size * sign_of(mi + take1 * (gi - mi));
            ms[i] = mi + take2 * (gi - mi);
        }
        close_state(m, state, first, count, ms);
        close_parameter(config->copy_dtype, p, copy, n, first, count, ps);
    }
}

/* What one element's direction needs, in f32. */
typedef struct LambFactors {
    float size, unscale, eps, decay;
} LambFactors;

static LambFactors lamb_factors(const LambConfig *config, double step) {
    return (LambFactors){.size = (float)(1.0 / (1.0 - pow(config->beta1, step))),
                         .unscale = (float)(1.0 / sqrt(1.0 - pow(config->beta2, step))),
                         .eps = (float)config->eps,
                         .decay = (float)config->weight_decay};
}

static inline float lamb_direction(const LambFactors *f, float p, float m, float v) {
    return f->size * (m / (sqrtf(v) * f->unscale + f->eps)) + f->decay * p;
}

/* The moments of up to TILE elements, kept, and the squares of p and r in f64: of r as the moments
 * are kept. */
static void lamb_moments_tile(const LambConfig *config, const LambFactors *f, uint32_t threshold,
                              float factor, int64_t first, int64_t n, const void *g, const float *p,
                              void *m, void *v, double sums[2]) {
    const float beta2 = (float)config->beta2;
    const float take1 = (float)(1.0 - config->beta1), take2 = (float)(1.0 - config->beta2);
    const DType state = config->state_dtype;
    double p2 = 0, r2 = 0;
    float tiles[3][TILE];
    const float *gs = vec_tile(g, config->gradient_dtype, first, n, tiles[2]);
    float *ms = open_state(m, state, first, n, tiles[0]);
    float *vs = open_state(v, state, first, n, tiles[1]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gi = gs[i] * factor;
        ms[i] = ms[i] + take1 * (gi - ms[i]);
        vs[i] = beta2 * vs[i] + take2 * gi * gi;
    }
    vec_close_tile(m, state, first, n, ms);
    close_squares(v, state, first, n, vs, threshold);
    ms = open_state(m, state, first, n, tiles[0]);
    vs = open_state(v, state, first, n, tiles[1]);
#pragma omp simd reduction(+ : p2, r2)
    for (int64_t i = 0; i < n; i++) {
        const float pi = p[first + i], ri = lamb_direction(f, pi, ms[i], vs[i]);
        p2 += (double)pi * (double)pi;
        r2 += (double)ri * (double)ri;
    }
    sums[0] += p2;
    sums[1] += r2;
}

void optimizer_lamb_moments(const LambConfig *config, int64_t n, const float *step,
                            const float *clip, const void *g, const float *p, void *m, void *v,
                            float *p_squared, float *r_squared) {
    enum { MOST_PARTS = 256 }; /* as many as there are chunks: the sums do not know the threads */
    const float factor = *clip;
    const uint32_t threshold = optimizer_threshold(*step);
    double parts[MOST_PARTS][2] = {{0}}, sums[2] = {0};
    *p_squared = *r_squared = 0;
    if (!isfinite(factor)) return;
    const LambFactors f = lamb_factors(config, (double)*step);
    const int64_t n_chunks = (n + CHUNK - 1) / CHUNK;
    const int64_t n_parts = n_chunks < MOST_PARTS ? n_chunks : MOST_PARTS;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t part = 0; part < n_parts; part++) {
        const int64_t first = n_chunks * part / n_parts * CHUNK;
        const int64_t last = n_chunks * (part + 1) / n_parts * CHUNK, end = last < n ? last : n;
        for (int64_t at = first; at < end; at += TILE) {
            const int64_t count = end - at < TILE ? end - at : TILE;
            lamb_moments_tile(config, &f, threshold, factor, at, count, g, p, m, v, parts[part]);
        }
    }
    for (int64_t part = 0; part < n_parts; part++) {
        for (int k = 0; k < 2; k++) sums[k] += parts[part][k];
    }
    *p_squared = (float)sums[0];
    *r_squared = (float)sums[1];
}

static double lamb_trust(const LambConfig *config, double p_squared, double r_squared) {
    double trust = p_squared > 0 && r_squared > 0 ? sqrt(p_squared) / sqrt(r_squared) : 1;
    return config->trust_max > 0 && trust > config->trust_max ? config->trust_max : trust;
}

void optimizer_lamb(const LambConfig *config, int64_t n, const float *lr, const float *step,
                    const float *clip, const float *p_squared, const float *r_squared,
                    const void *m, const void *v, float *p, uint16_t *copy) {
    const DType state = config->state_dtype;
    const int64_t length = tile_length(state, DTYPE_F32, false);
    const double trust = lamb_trust(config, (double)*p_squared, (double)*r_squared);
    if (!isfinite(*clip)) return;
    const LambFactors f = lamb_factors(config, (double)*step);
    const float size = (float)((double)*lr * config->lr_scale * trust);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += length) {
        const int64_t count = n - first < length ? n - first : length;
        float tiles[2][TILE], *ps = p + first;
        const float *ms = vec_tile(m, state, first, count, tiles[0]);
        const float *vs = vec_tile(v, state, first, count, tiles[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) ps[i] -= size * lamb_direction(&f, ps[i], ms[i], vs[i]);
        if (copy) copy_store(config->copy_dtype, ps, copy + first, count);
    }
}

void optimizer_muon_momentum(double momentum, DType state, DType gradient, int64_t n,
                             const float *clip, const void *g, void *m, float *direction) {
    const int64_t length = tile_length(state, gradient, false);
    const float factor = *clip, keep = (float)momentum;
    if (!isfinite(factor)) {
        for (int64_t i = 0; i < n; i++) direction[i] = 0;
        return;
    }
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += length) {
        const int64_t count = n - first < length ? n - first : length;
        float tiles[2][TILE], *ms = open_state(m, state, first, count, tiles[0]);
        const float *gs = vec_tile(g, gradient, first, count, tiles[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float gi = gs[i] * factor;
            const float mi = keep * ms[i] + gi;
            ms[i] = mi;
            direction[first + i] = gi + keep * mi;
        }
        vec_close_tile(m, state, first, count, ms);
    }
}

void optimizer_muon(const MuonConfig *config, int64_t n, const float *lr, const float *clip,
                    const void *direction, void *p, uint16_t *copy) {
    enum { PART = 256 };
    if (!isfinite(*clip)) return;
    const double rate = (double)*lr * config->lr_scale;
    const float keep = (float)(1.0 - rate * config->weight_decay);
    const float size = (float)(rate * config->scale);
    const bool low = dtype_is_low(config->direction_dtype);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t count = n - first < PART ? n - first : PART;
        float wide[PART], whole[PART], *ps = open_parameter(p, copy, n, first, count, whole);
        const float *x = (const float *)direction + first;
        if (low) {
            vec_low_load(config->direction_dtype, (const uint16_t *)direction + first, wide, count);
            x = wide;
        }
#pragma omp simd
        for (int64_t i = 0; i < count; i++) ps[i] = ps[i] * keep - size * x[i];
        close_parameter(config->copy_dtype, p, copy, n, first, count, ps);
    }
}

void optimizer_rescale(int64_t n, int64_t inner, int64_t count, const float *clip,
                       const float *factors, void *p, uint16_t *copy, DType copy_dtype) {
    if (!isfinite(*clip)) return;
    const int64_t n_runs = n / inner;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t run = 0; run < n_runs; run++) {
        const float factor = factors[run % count];
        if (factor == 1) continue; /* most heads, in most steps */
        for (int64_t at = 0; at < inner; at += TILE) {
            const int64_t first = run * inner + at, left = inner - at;
            const int64_t count_here = left < TILE ? left : TILE;
            float tile[TILE], *ps = open_parameter(p, copy, n, first, count_here, tile);
#pragma omp simd
            for (int64_t i = 0; i < count_here; i++) ps[i] *= factor;
            close_parameter(copy_dtype, p, copy, n, first, count_here, ps);
        }
    }
}

void optimizer_balance(double step, int64_t n, const float *clip, const float *tally, float *p) {
    double total = 0;
    if (!isfinite(*clip)) return;
    for (int64_t i = 0; i < n; i++) total += (double)tally[i];
    for (int64_t i = 0; i < n; i++) {
        const double over = total - (double)tally[i] * (double)n;
        p[i] += (float)step * (float)((over > 0) - (over < 0));
    }
}

float optimizer_ema_take(double decay, float step) {
    const double t = (double)step, warm = t > 1 ? (t - 1) / (t + 8) : 0;
    return (float)(1.0 - (warm < decay ? warm : decay));
}

void optimizer_ema(double decay, int64_t n, const float *step, const float *clip, const float *p,
                   float *average) {
    if (!isfinite(*clip)) return;
    const float take = optimizer_ema_take(decay, *step);
#pragma omp parallel for simd schedule(static) if (parallel : n > CHUNK)
    for (int64_t i = 0; i < n; i++) average[i] = fmaf(take, p[i] - average[i], average[i]);
}
