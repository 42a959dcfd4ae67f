/* Elementary functions of f32 that a compiler vectorises inside plain loops: no branches, no
 * tables, no calls. Errors are below 2 ulp (with fused multiply-add) unless stated; infinities and
 * NaN come out as in C's own functions. Without -ffast-math, selects are written so that NaN falls
 * through.
 *
 * Sources: range reductions and the logarithm after Sun's fdlibm; exp and tanh after Cephes
 * (Moshier); erf's minimax polynomials after N. Juffa.
 */
#ifndef RUNTIME_CPU_VMATH_H
#define RUNTIME_CPU_VMATH_H

#include "runtime/cpu/vec.h"

#include <math.h>

#define VMATH_ROUND                                                                                \
    12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */

#define VMATH_LOG2E 1.44269504088896341f

/* e^x / 2^n, where n is x log2(e) rounded. */
VEC_INLINE float vmath_exp_rest(float x, float n) {
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}

/* e^x. Results below FLT_MIN are rounded to denormals; above FLT_MAX to infinity. */
VEC_INLINE float vmath_exp(float x) {
    float t = x > 89.0f ? 89.0f : x;
    t = t < -104.0f ? -104.0f : t;
    float shifted = t * VMATH_LOG2E + VMATH_ROUND;
    float p = vmath_exp_rest(t, shifted - VMATH_ROUND);
    /* 2^n in two factors, so that n = 128 and denormal results need no branch. */
    int32_t k = (int32_t)(vec_bits(shifted) - vec_bits(VMATH_ROUND));
    int32_t half = k >> 1;
    float s0 = vec_from_bits((uint32_t)(half + 127) << 23);
    float s1 = vec_from_bits((uint32_t)(k - half + 127) << 23);
    return p * s0 * s1;
}

/* ln x: -inf at 0, NaN below. Classes are told apart by the bits and selected by masks: GCC makes
 * branches of this many ternaries, and branches do not vectorise. */
VEC_INLINE float vmath_log(float x) {
    uint32_t bits = vec_bits(x);
    uint32_t scaled = vec_bits(x * 8388608.0f);
    int tiny = bits < 0x00800000u;
    uint32_t ix = vec_select(tiny, scaled, bits) + (0x3f800000u - 0x3f3504f3u);
    float k = (float)((int32_t)(ix >> 23) - (127 + 23 * tiny));
    float f = vec_from_bits((ix & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s, w = z * z;
    float r = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
    float h = 0.5f * f * f;
    uint32_t y = vec_bits(s * (h + r) + k * 9.0580006145e-06f - h + f + k * 6.9313812256e-01f);
    y = vec_select(bits > 0x7f7fffffu, 0x7fc00000u, y); /* negative and NaN: NaN */
    y = vec_select(bits == 0x7f800000u, bits, y);
    y = vec_select(bits << 1 == 0, 0xff800000u, y); /* +-0: -inf */
    return vec_from_bits(y);
}

VEC_INLINE float vmath_sigmoid(float x) {
    return 1.0f / (1.0f + vmath_exp(-x));
}

/* log(1 + exp(x)). What the sum in the logarithm loses of exp(x) is a factor (Kahan). */
VEC_INLINE float vmath_softplus(float x) {
    float e = vmath_exp(-fabsf(x)), sum = 1.0f + e, kept = sum - 1.0f;
    float log = vmath_log(sum) * (e / kept);
    return (x > 0.0f ? x : 0.0f) + (kept > 0.0f ? log : e);
}

VEC_INLINE float vmath_tanh(float x) {
    float a = __builtin_fabsf(x);
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    float big = 1.0f - 2.0f / (vmath_exp(a + a) + 1.0f);
    big = __builtin_copysignf(big, x);
    return a < 0.625f ? small : big;
}

VEC_INLINE float vmath_erf(float x) {
    float t = __builtin_fabsf(x), s = x * x;
    float r = -1.72853470e-5f * t + 3.83197126e-4f;
    float u = -3.88396438e-3f * t + 2.42546219e-2f;
    r = r * s + u;
    r = r * t - 1.06777877e-1f;
    r = r * t - 6.34846687e-1f;
    r = r * t - 1.28717512e-1f;
    r = r * t - t;
    /* Above 4 erf is 1 in f32, and the polynomial would turn infinity into NaN. */
    float big = t > 4.0f ? 1.0f : 1.0f - vmath_exp(r);
    big = __builtin_copysignf(big, x);
    float p = -5.96761703e-4f;
    p = p * s + 4.99119423e-3f;
    p = p * s - 2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s - 3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    float small = p * x + x;
    return t > 0.927734375f ? big : small;
}

/* sine and cosine of 2 pi `turns`, turns in [0, 1]: absolute error below 1e-7. */
VEC_INLINE void vmath_sincos_turns(float turns, float *out_sin, float *out_cos) {
    float shifted = turns * 4.0f + VMATH_ROUND;
    uint32_t quadrant = vec_bits(shifted);
    float r = (turns - (shifted - VMATH_ROUND) * 0.25f) * 6.28318530717958648f; /* |r| <= pi/4 */
    float z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z);
    c = c - 0.5f * z + 1.0f;
    float sin_abs = quadrant & 1 ? c : s, cos_abs = quadrant & 1 ? s : c;
    *out_sin = vec_from_bits(vec_bits(sin_abs) ^ (quadrant & 2) << 30);
    *out_cos = vec_from_bits(vec_bits(cos_abs) ^ ((quadrant + 1) & 2) << 30);
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks & Gimpel 2016), as x sigmoid(2u):
 * no cancellation for negative x and one exponential. */
#define VMATH_GELU_2A 1.59576912160573f /* 2 sqrt(2/pi) */
#define VMATH_GELU_B  0.044715f

VEC_INLINE float vmath_gelu(float x) {
    float u2 = VMATH_GELU_2A * x * (1.0f + VMATH_GELU_B * x * x);
    return x / (1.0f + vmath_exp(-u2));
}

VEC_INLINE float vmath_gelu_grad(float x) {
    /* Far out the slope is 0 or 1; clamping keeps 0 * inf out of the product below. */
    float y = x > 20.0f ? 20.0f : x;
    y = y < -20.0f ? -20.0f : y;
    float s = vmath_sigmoid(VMATH_GELU_2A * y * (1.0f + VMATH_GELU_B * y * y));
    return s + y * s * (1.0f - s) * VMATH_GELU_2A * (1.0f + 3.0f * VMATH_GELU_B * y * y);
}

VEC_INLINE float vmath_gelu_erf(float x) {
    return 0.5f * x * (1.0f + vmath_erf(x * 0.70710678118654752f));
}

VEC_INLINE float vmath_gelu_erf_grad(float x) {
    float y = x > 20.0f ? 20.0f : x;
    y = y < -20.0f ? -20.0f : y;
    float density = 0.39894228040143268f * vmath_exp(-0.5f * y * y);
    return 0.5f * (1.0f + vmath_erf(y * 0.70710678118654752f)) + y * density;
}

VEC_INLINE float vmath_silu(float x) {
    return x / (1.0f + vmath_exp(-x));
}

VEC_INLINE float vmath_silu_grad(float x) {
    float y = x > 80.0f ? 80.0f : x;
    y = y < -80.0f ? -80.0f : y;
    float s = vmath_sigmoid(y);
    return s + y * s * (1.0f - s);
}

#endif
