#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/tile_pack.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, TILE = TILE_STEP / 2, HALF = TILE_BLOCK / 2 };

int tile_parts(DType dtype) {
    return dtype == DTYPE_F32 ? 3 : dtype == DTYPE_F16 ? 2 : 1;
}

int tile_terms(DType dtype, int steps, const uint16_t *a, const uint16_t *b,
               TileTerm out[TILE_MAX_TERMS]) {
    static const struct {
        int n_terms;
        uint8_t parts[TILE_MAX_TERMS][2]; /* of a and b */
    } products[] = {{1, {{0, 0}}},
                    {4, {{1, 1}, {0, 1}, {1, 0}, {0, 0}}},
                    {6, {{0, 2}, {2, 0}, {1, 1}, {0, 1}, {1, 0}, {0, 0}}}};
    const int which = tile_parts(dtype) - 1;
    const int64_t part = (int64_t)steps * TILE_STEP;
    for (int i = 0; i < products[which].n_terms; i++)
        out[i] = (TileTerm){a + products[which].parts[i][0] * part,
                            b + products[which].parts[i][1] * part};
    return products[which].n_terms;
}

static int count_parts(const TileSource *s) {
    return s->rounded ? 1 : tile_parts(s->dtype);
}

/* --- plainly --- */

/* x, of which `parts` numbers of bf16 are to be the sum. */
static void split(float x, int parts, uint16_t *out, int64_t stride) {
    if (parts == 1) out[0] = vec_bf16_round(x);
    for (int p = 0; p < parts && parts > 1; p++) {
        uint32_t bits = vec_bits(x);
        const uint32_t size = bits & 0x7fffffff;
        if (size < 0x7f7f8000) bits += 0x8000; /* larger ones would be infinite */
        if (size > 0x7f800000) bits |= 0x400000;
        bits &= 0xffff0000;
        out[p * stride] = (uint16_t)(bits >> 16);
        x = size >= 0x7f800000 ? 0 : x - vec_from_bits(bits);
    }
}

static void pack_plainly(const TileSource *s, bool as_pairs, int64_t steps, uint16_t *out) {
    const int parts = count_parts(s);
    for (int64_t k = 0; k < steps * TILE_BLOCK; k++)
        for (int i = 0; i < TILE_BLOCK; i++) {
            const bool is_there = i < s->extent && k < s->k;
            const int64_t at = s->along_k ? i * s->stride + k : k * s->stride + i;
            const int within = (int)(k % TILE_BLOCK);
            uint16_t *to = out + k / TILE_BLOCK * TILE_STEP + i / ROWS * TILE;
            to += as_pairs ? within / 2 * 2 * ROWS + i % ROWS * 2 + within % 2
                           : i % ROWS * TILE_BLOCK + within;
            float x = is_there ? vec_get(s->x, s->dtype, at) : 0;
            if (s->rounded && fabsf(x) < 0x1p-126f) x = copysignf(0, x);
            split(x, parts, to, steps * TILE_STEP);
        }
}

/* --- by vectors of 512 bits --- */

#if defined(__x86_64__)
#include <immintrin.h>

#define USES_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define FUSED    USES_512 __attribute__((always_inline)) static inline

static bool has_512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

/* 32 numbers in a row as f32; those that are not there are zero. */
FUSED void load_wide(const TileSource *s, int64_t at, __mmask32 there, __m512 out[2]) {
    const __mmask16 low = (__mmask16)there, high = (__mmask16)(there >> HALF);
    if (s->dtype == DTYPE_F32) {
        const float *x = (const float *)s->x + at;
        out[0] = _mm512_maskz_loadu_ps(low, x);
        out[1] = high ? _mm512_maskz_loadu_ps(high, x + HALF) : _mm512_setzero_ps();
    } else {
        const uint16_t *x = (const uint16_t *)s->x + at;
        const __m512i both = _mm512_maskz_loadu_epi16(there, x);
        out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(both));
        out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
    }
}

/* As split: parts in the upper halves of each number of 32 bits; what the lower halves hold does
 * not count. */
FUSED void split_wide(__m512 x, const int parts, __m512i out[TILE_MAX_PARTS]) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i bits = _mm512_castps_si512(x);
    const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 large = _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32(0x7f7f8000));
    out[0] = _mm512_and_si512(_mm512_add_epi32(bits, half), upper);
    if (__builtin_expect(large != 0, 0)) {
        const __m512i endless = _mm512_set1_epi32(0x7f800000);
        const __mmask16 nan = _mm512_cmpgt_epu32_mask(size, endless);
        out[0] = _mm512_mask_and_epi32(out[0], large, bits, upper);
        out[0] = _mm512_mask_or_epi32(out[0], nan, out[0], _mm512_set1_epi32(0x400000));
        const __mmask16 gone = _mm512_cmpge_epu32_mask(size, endless);
        x = _mm512_maskz_sub_ps((__mmask16)~gone, x, _mm512_castsi512_ps(out[0]));
    } else {
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(out[0]));
    }
    out[1] = bits = _mm512_castps_si512(x);
    if (parts < 3) return;
    out[1] = _mm512_and_si512(_mm512_add_epi32(bits, half), upper);
    out[2] = _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(out[1])));
}

/* Those of one part as they are, or rounded. */
FUSED __m512i load_one_part(const TileSource *s, int64_t at, __mmask32 there) {
    if (!s->rounded) return _mm512_maskz_loadu_epi16(there, (const uint16_t *)s->x + at);
    __m512 wide[2];
    load_wide(s, at, there, wide);
    return (__m512i)_mm512_cvtne2ps_pbh(wide[1], wide[0]);
}

/* 32 numbers of a stored row as bf16, by parts. */
FUSED void load_row(const TileSource *s, const int parts, int64_t at, __mmask32 there,
                    __m512i out[TILE_MAX_PARTS]) {
    if (parts == 1) {
        out[0] = load_one_part(s, at, there);
        return;
    }
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512 wide[2];
    __m512i low[TILE_MAX_PARTS], high[TILE_MAX_PARTS];
    load_wide(s, at, there, wide);
    split_wide(wide[0], parts, low);
    split_wide(wide[1], parts, high);
    for (int p = 0; p < parts; p++) out[p] = _mm512_permutex2var_epi16(low[p], odd, high[p]);
}

/* Two stored rows, of an even k and the next, as pairs: of the first 16 numbers, then the others.
 */
FUSED void load_pairs(const TileSource *s, const int parts, int64_t even, int64_t odd,
                      __mmask32 has_even, __mmask32 has_odd, __m512i out[TILE_MAX_PARTS][2]) {
    if (parts == 1) {
        const __m512i first =
            _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                             38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(HALF));
        const __m512i e = load_one_part(s, even, has_even);
        const __m512i o = load_one_part(s, odd, has_odd);
        out[0][0] = _mm512_permutex2var_epi16(e, first, o);
        out[0][1] = _mm512_permutex2var_epi16(e, second, o);
        return;
    }
    __m512 wide_even[2], wide_odd[2];
    load_wide(s, even, has_even, wide_even);
    load_wide(s, odd, has_odd, wide_odd);
    for (int h = 0; h < 2; h++) {
        __m512i e[TILE_MAX_PARTS], o[TILE_MAX_PARTS];
        split_wide(wide_even[h], parts, e);
        split_wide(wide_odd[h], parts, o);
        for (int p = 0; p < parts; p++)
            out[p][h] = _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(e[p], 16), o[p]);
    }
}

/* 16 rows of 16 numbers of 32 bits become columns. */
FUSED void transpose(__m512i r[ROWS]) {
    __m512i t[ROWS];
    for (int i = 0; i < ROWS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < ROWS; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

FUSED __mmask32 first_of(int64_t n) {
    return n >= TILE_BLOCK ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

FUSED void store_rows(const __m512i *rows, uint16_t *to) {
    for (int r = 0; r < ROWS; r++) _mm512_store_si512(to + (int64_t)r * 2 * ROWS, rows[r]);
}

/* Rows lie far apart, so no processor guesses what of them is packed soon: here the line two steps
 * on. */
FUSED void fetch_along(const TileSource *s, int64_t row, int64_t k) {
    const int64_t at = row * s->stride + k + 2 * TILE_BLOCK;
    const char *next = (const char *)vec_at(s->x, s->dtype, at);
    __builtin_prefetch(next, 0, 3);
    if (!dtype_is_low(s->dtype)) __builtin_prefetch(next + 64, 0, 3);
}

/* Here four lines at a time, those behind the next ones: memory gives neighbours faster. */
FUSED void fetch_next(const TileSource *s, int64_t row) {
    const char *here = (const char *)vec_at(s->x, s->dtype, row * s->stride);
    if (dtype_is_low(s->dtype)) {
        if (((uintptr_t)here & 255) >= 64) return;
        for (int i = 0; i < 4; i++) __builtin_prefetch(here + 256 + 64 * i, 0, 2);
    } else {
        __builtin_prefetch(here + 128, 0, 2);
        __builtin_prefetch(here + 192, 0, 2);
    }
}

/* The 32 k from `k` on, where stored rows run along k. */
FUSED void pack_along(const TileSource *s, const int parts, bool as_pairs, int64_t k, int64_t part,
                      uint16_t *to) {
    const __mmask32 there = first_of(s->k - k);
    for (int half = 0; half < 2; half++) {
        __m512i rows[TILE_MAX_PARTS][ROWS];
        for (int r = 0; r < ROWS; r++) {
            const int i = half * ROWS + r;
            if (i < s->extent) fetch_along(s, i, k);
            __m512i row[TILE_MAX_PARTS];
            load_row(s, parts, i < s->extent ? i * s->stride + k : 0, i < s->extent ? there : 0,
                     row);
            for (int p = 0; p < parts; p++) rows[p][r] = row[p];
        }
        for (int p = 0; p < parts; p++) {
            if (as_pairs) transpose(rows[p]);
            store_rows(rows[p], to + p * part + half * TILE);
        }
    }
}

/* The same where they run along the block. */
FUSED void pack_across(const TileSource *s, const int parts, bool as_pairs, int64_t k, int64_t part,
                       uint16_t *to) {
    __m512i rows[2][TILE_MAX_PARTS][ROWS];
    for (int r = 0; r < ROWS; r++) {
        const int64_t even = k + 2 * r, odd = even + 1;
        if (odd < s->k) fetch_next(s, even), fetch_next(s, odd);
        __m512i pairs[TILE_MAX_PARTS][2];
        load_pairs(s, parts, even < s->k ? even * s->stride : 0, odd < s->k ? odd * s->stride : 0,
                   even < s->k ? first_of(s->extent) : 0, odd < s->k ? first_of(s->extent) : 0,
                   pairs);
        for (int p = 0; p < parts; p++)
            for (int half = 0; half < 2; half++) rows[half][p][r] = pairs[p][half];
    }
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < parts; p++) {
            if (!as_pairs) transpose(rows[half][p]);
            store_rows(rows[half][p], to + p * part + half * TILE);
        }
}

FUSED void pack_parts(const TileSource *s, const int parts, bool as_pairs, int64_t steps,
                      uint16_t *out) {
    for (int64_t i = 0; i < steps; i++) {
        uint16_t *to = out + i * TILE_STEP;
        if (s->along_k)
            pack_along(s, parts, as_pairs, i * TILE_BLOCK, steps * TILE_STEP, to);
        else
            pack_across(s, parts, as_pairs, i * TILE_BLOCK, steps * TILE_STEP, to);
    }
}

USES_512 static void pack_512(const TileSource *s, bool as_pairs, int64_t steps, uint16_t *out) {
    switch (count_parts(s)) {
    case 1: pack_parts(s, 1, as_pairs, steps, out); break;
    case 2: pack_parts(s, 2, as_pairs, steps, out); break;
    default: pack_parts(s, 3, as_pairs, steps, out); break;
    }
}

#else
static bool has_512(void) {
    return false;
}

static void pack_512(const TileSource *s, bool as_pairs, int64_t steps, uint16_t *out) {
    (void)s, (void)as_pairs, (void)steps, (void)out;
}
#endif

static bool plainly;

void tile_pack_plainly(bool plain) {
    plainly = plain;
}

void tile_pack(const TileSource *source, bool as_pairs, uint16_t *out) {
    const int64_t steps = (source->k + TILE_BLOCK - 1) / TILE_BLOCK;
    (plainly || !has_512() ? pack_plainly : pack_512)(source, as_pairs, steps, out);
}
