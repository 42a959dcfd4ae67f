/* A Vec of f32, bf16 or f16 in memory, for loops whose speed is that of reading.
 *
 * By the machine's instructions where it has them: of __builtin_convertvector GCC 12 makes four
 * shuffles instead of one load that widens. A file of its own, since <immintrin.h> takes long.
 */
#ifndef RUNTIME_CPU_VEC_WIDE_H
#define RUNTIME_CPU_VEC_WIDE_H

#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of its includer */

#if defined(__F16C__) || defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

VEC_INLINE Vec vec_load_bf16(const uint16_t *from) {
#if defined(__AVX512F__)
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#elif defined(__AVX2__)
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)from);
    return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
#else
    typedef uint16_t Half __attribute__((vector_size(VEC_LANES * 2)));
    typedef uint32_t Bits __attribute__((vector_size(VEC_LANES * 4)));
    Half half;
    __builtin_memcpy(&half, from, sizeof half);
    return (Vec)(__builtin_convertvector(half, Bits) << 16);
#endif
}

VEC_INLINE Vec vec_load_f16(const uint16_t *from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__F16C__)
    return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
#else
    float wide[VEC_LANES];
    vec_f16_load(from, wide, VEC_LANES);
    return vec_load(wide);
#endif
}

/* Elements [i, i + VEC_LANES), the dtype being a constant. */
VEC_INLINE Vec vec_load_wide(const DType dtype, const void *x, int64_t i) {
    if (dtype == DTYPE_F16) return vec_load_f16((const uint16_t *)x + i);
    if (dtype == DTYPE_BF16) return vec_load_bf16((const uint16_t *)x + i);
    return vec_load((const float *)x + i);
}

#endif
