#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/optimizer.h"

#include <math.h>

#define CHUNK 8192 /* elements a thread updates at a time */

void optimizer_loss_scale(int64_t interval, float most, const float *factor, float *scale,
                          float *finite_steps, float *updates) {
    const bool finite = isfinite(*factor);
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
                     const float *clip, const float *g, float *p, float *m, float *v,
                     uint16_t *copy) {
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
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t end = n - first < CHUNK ? n : first + CHUNK;
#pragma omp simd
        for (int64_t i = first; i < end; i++) {
            const float gi = g[i] * factor;
            const float mi = m[i] + take1 * (gi - m[i]);
            const float vi = beta2 * v[i] + take2 * gi * gi;
            m[i] = mi;
            v[i] = vi;
            p[i] = p[i] * keep - size * (mi / (sqrtf(vi) * unscale + eps));
        }
        if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, end - first);
    }
}

void optimizer_sgd(const SgdConfig *config, int64_t n, const float *lr, const float *clip,
                   const float *g, float *p, float *buf, uint16_t *copy) {
    const float factor = clip ? *clip : 1.0f;
    if (!isfinite(factor)) return;
    const float rate = (float)((double)*lr * config->lr_scale);
    const float momentum = (float)config->momentum;
    const float decay = (float)config->weight_decay;
    const bool nesterov = config->nesterov;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t end = n - first < CHUNK ? n : first + CHUNK;
        if (momentum == 0) {
#pragma omp simd
            for (int64_t i = first; i < end; i++) p[i] -= rate * (g[i] * factor + decay * p[i]);
            if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, end - first);
            continue;
        }
#pragma omp simd
        for (int64_t i = first; i < end; i++) {
            const float gi = g[i] * factor + decay * p[i];
            const float bi = momentum * buf[i] + gi;
            buf[i] = bi;
            p[i] -= rate * (nesterov ? gi + momentum * bi : bi);
        }
        if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, end - first);
    }
}

static float sign_of(float x) {
    return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

void optimizer_lion(const LionConfig *config, int64_t n, const float *lr, const float *clip,
                    const float *g, float *p, float *m, uint16_t *copy) {
    const float factor = clip ? *clip : 1.0f;
    if (!isfinite(factor)) return;
    const double rate = (double)*lr * config->lr_scale;
    const float keep = (float)(1.0 - rate * config->weight_decay), size = (float)rate;
    const float take1 = (float)(1.0 - config->beta1), take2 = (float)(1.0 - config->beta2);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t end = n - first < CHUNK ? n : first + CHUNK;
#pragma omp simd
        for (int64_t i = first; i < end; i++) {
            const float gi = g[i] * factor, mi = m[i];
            p[i] = p[i] * keep - size * sign_of(mi + take1 * (gi - mi));
            m[i] = mi + take2 * (gi - mi);
        }
        if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, end - first);
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

void optimizer_lamb_moments(const LambConfig *config, int64_t n, const float *step,
                            const float *clip, const float *g, const float *p, float *m, float *v,
                            float *p_squared, float *r_squared) {
    enum { MOST_PARTS = 256 }; /* as many as there are chunks: the sums do not know the threads */
    const float factor = *clip;
    double parts[MOST_PARTS][2] = {{0}}, sums[2] = {0};
    *p_squared = *r_squared = 0;
    if (!isfinite(factor)) return;
    const LambFactors f = lamb_factors(config, (double)*step);
    const float beta2 = (float)config->beta2;
    const float take1 = (float)(1.0 - config->beta1), take2 = (float)(1.0 - config->beta2);
    const int64_t n_chunks = (n + CHUNK - 1) / CHUNK;
    const int64_t n_parts = n_chunks < MOST_PARTS ? n_chunks : MOST_PARTS;
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t part = 0; part < n_parts; part++) {
        const int64_t first = n_chunks * part / n_parts * CHUNK;
        const int64_t last = n_chunks * (part + 1) / n_parts * CHUNK, end = last < n ? last : n;
        double p2 = 0, r2 = 0;
#pragma omp simd reduction(+ : p2, r2)
        for (int64_t i = first; i < end; i++) {
            const float gi = g[i] * factor;
            const float mi = m[i] + take1 * (gi - m[i]);
            const float vi = beta2 * v[i] + take2 * gi * gi;
            const float ri = lamb_direction(&f, p[i], mi, vi);
            m[i] = mi;
            v[i] = vi;
            p2 += (double)p[i] * (double)p[i];
            r2 += (double)ri * (double)ri;
        }
        parts[part][0] = p2;
        parts[part][1] = r2;
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
                    const float *m, const float *v, float *p, uint16_t *copy) {
    const double trust = lamb_trust(config, (double)*p_squared, (double)*r_squared);
    if (!isfinite(*clip)) return;
    const LambFactors f = lamb_factors(config, (double)*step);
    const float size = (float)((double)*lr * config->lr_scale * trust);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t end = n - first < CHUNK ? n : first + CHUNK;
#pragma omp simd
        for (int64_t i = first; i < end; i++) p[i] -= size * lamb_direction(&f, p[i], m[i], v[i]);
        if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, end - first);
    }
}

void optimizer_muon_momentum(double momentum, int64_t n, const float *clip, const float *g,
                             float *m, float *direction) {
    const float factor = *clip, keep = (float)momentum;
    if (!isfinite(factor)) {
        for (int64_t i = 0; i < n; i++) direction[i] = 0;
        return;
    }
#pragma omp parallel for simd schedule(static) if (n > CHUNK)
    for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * factor;
        const float mi = keep * m[i] + gi;
        m[i] = mi;
        direction[i] = gi + keep * mi;
    }
}

void optimizer_muon(const MuonConfig *config, int64_t n, const float *lr, const float *clip,
                    const void *direction, float *p, uint16_t *copy) {
    enum { PART = 256 };
    if (!isfinite(*clip)) return;
    const double rate = (double)*lr * config->lr_scale;
    const float keep = (float)(1.0 - rate * config->weight_decay);
    const float size = (float)(rate * config->scale);
    const bool low = dtype_is_low(config->direction_dtype);
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t count = n - first < PART ? n - first : PART;
        float wide[PART];
        const float *x = (const float *)direction + first;
        if (low) {
            vec_low_load(config->direction_dtype, (const uint16_t *)direction + first, wide, count);
            x = wide;
        }
#pragma omp simd
        for (int64_t i = 0; i < count; i++) p[first + i] = p[first + i] * keep - size * x[i];
        if (copy) vec_low_store(config->copy_dtype, p + first, copy + first, count);
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
