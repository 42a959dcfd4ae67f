#include "runtime/cpu/vec_low.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

void vec_f16_load(const uint16_t *from, float *to, int64_t n) {
    int64_t done = 0;
#if defined(__AVX512F__)
    for (; done + 16 <= n; done += 16) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(from + done));
        _mm512_storeu_ps(to + done, _mm512_cvtph_ps(x));
    }
#endif
#if defined(__F16C__)
    for (; done + 8 <= n; done += 8) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(from + done));
        _mm256_storeu_ps(to + done, _mm256_cvtph_ps(x));
    }
#endif
#pragma omp simd
    for (int64_t i = done; i < n; i++) to[i] = vec_f16_widen(from[i]);
}

void vec_f16_store(const float *from, uint16_t *to, int64_t n) {
    int64_t done = 0;
#if defined(__AVX512F__)
    for (; done + 16 <= n; done += 16) {
        const __m256i x = _mm512_cvtps_ph(_mm512_loadu_ps(from + done), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(void *)(to + done), x);
    }
#endif
#if defined(__F16C__)
    for (; done + 8 <= n; done += 8) {
        const __m128i x = _mm256_cvtps_ph(_mm256_loadu_ps(from + done), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + done), x);
    }
#endif
#pragma omp simd
    for (int64_t i = done; i < n; i++) to[i] = vec_f16_round(from[i]);
}
