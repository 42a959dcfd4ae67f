/* What instructions compute, for a warp's lanes at a time; those that do not take part compute
 * something, too, which nobody looks at. Approximate ones (ex2.approx, rcp.approx) are exact here:
 * on a device they are good to 2^-22 or so. */
#include "tests/ptx/machine.h"

#include <math.h>
#include <string.h>

static inline float f32_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, 4);
    return x;
}
static inline uint64_t of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline double f64_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline uint64_t of_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

/* Exponents are 112 larger in f32; those of subnormal numbers, too, once they are normal. */
float ptx_widen_f16(uint16_t bits) {
    float x = f32_of((uint32_t)(bits & 0x7fff) << 13) * 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00) x = bits & 1023 ? NAN : INFINITY;
    return bits & 0x8000 ? -x : x;
}

static uint16_t narrow_bf16(float x) {
    uint32_t bits = (uint32_t)of_f32(x);
    if (isnan(x)) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest, ties to even. */
static uint16_t narrow_f16(float x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    if (isnan(x)) return 0x7fff;
    if (size == 0) return sign;
    if (size >= 65520.0f) return sign | 0x7c00;
    int exponent;
    frexpf(size, &exponent); /* size in [2^(exponent - 1), 2^exponent) */
    int step = exponent - 11 < -24 ? -24 : exponent - 11;
    long units = lrintf(ldexpf(size, -step));
    if (step == -24) return (uint16_t)(sign | units); /* also where it becomes the first normal */
    return (uint16_t)(sign | (((step + 25) << 10) + (units - 1024)));
}

static uint16_t narrow(float x, bool bf16) {
    return bf16 ? narrow_bf16(x) : narrow_f16(x);
}

/* Loops over lanes: x, y, z are a, b, c as numbers of type T. */
#define LANES for (int l = 0; l < WARP; l++)
#define INTEGERS(T, U, EXPRESSION)                                                                 \
    LANES {                                                                                        \
        const T x = (T)a[l], y = (T)b[l], z = (T)c[l];                                             \
        (void)x, (void)y, (void)z;                                                                 \
        out[l] = (U)(EXPRESSION);                                                                  \
    }                                                                                              \
    return true;
#define FLOATS(EXPRESSION)                                                                         \
    if (i->type.kind == 'f' && i->type.bits == 32) {                                               \
        LANES {                                                                                    \
            typedef float T;                                                                       \
            const T x = f32_of(a[l]), y = f32_of(b[l]), z = f32_of(c[l]);                          \
            (void)x, (void)y, (void)z, (void)sizeof(T);                                            \
            out[l] = of_f32(EXPRESSION);                                                           \
        }                                                                                          \
        return true;                                                                               \
    }                                                                                              \
    if (i->type.kind == 'f' && i->type.bits == 64) {                                               \
        LANES {                                                                                    \
            typedef double T;                                                                      \
            const T x = f64_of(a[l]), y = f64_of(b[l]), z = f64_of(c[l]);                          \
            (void)x, (void)y, (void)z, (void)sizeof(T);                                            \
            out[l] = of_f64(EXPRESSION);                                                           \
        }                                                                                          \
        return true;                                                                               \
    }
#define ANY_INTEGER(EXPRESSION)                                                                    \
    if (i->type.kind != 'f') {                                                                     \
        bool is_signed = i->type.kind == 's';                                                      \
        switch (i->type.bits) {                                                                    \
        case 16:                                                                                   \
            if (is_signed) {                                                                       \
                INTEGERS(int16_t, uint16_t, EXPRESSION)                                            \
            }                                                                                      \
            INTEGERS(uint16_t, uint16_t, EXPRESSION)                                               \
        case 32:                                                                                   \
            if (is_signed) {                                                                       \
                INTEGERS(int32_t, uint32_t, EXPRESSION)                                            \
            }                                                                                      \
            INTEGERS(uint32_t, uint32_t, EXPRESSION)                                               \
        case 64:                                                                                   \
            if (is_signed) {                                                                       \
                INTEGERS(int64_t, uint64_t, EXPRESSION)                                            \
            }                                                                                      \
            INTEGERS(uint64_t, uint64_t, EXPRESSION)                                               \
        default: return false;                                                                     \
        }                                                                                          \
    }
/* Sums and products that wrap are done unsigned. */
#define ANY_BITS(EXPRESSION)                                                                       \
    if (i->type.kind != 'f') {                                                                     \
        switch (i->type.bits) {                                                                    \
        case 1: INTEGERS(uint8_t, uint8_t, (EXPRESSION)&1)                                         \
        case 16: INTEGERS(uint32_t, uint16_t, EXPRESSION)                                          \
        case 32: INTEGERS(uint32_t, uint32_t, EXPRESSION)                                          \
        case 64: INTEGERS(uint64_t, uint64_t, EXPRESSION)                                          \
        default: return false;                                                                     \
        }                                                                                          \
    }

static bool compute_multiply(const Instruction *i, const uint64_t *a, const uint64_t *b,
                             const uint64_t *c, uint64_t *out) {
    bool adds = i->op == PTX_mad, is_signed = i->type.kind == 's';
    FLOATS(adds ? (T)fma((double)x, (double)y, (double)z) : x * y)
    if (i->mode == MODE_WIDE && i->type.bits == 32) {
        LANES {
            uint64_t product = is_signed ? (uint64_t)((int64_t)(int32_t)a[l] * (int32_t)b[l])
                                         : (uint64_t)(uint32_t)a[l] * (uint32_t)b[l];
            out[l] = product + (adds ? c[l] : 0);
        }
        return true;
    }
    if (i->mode == MODE_WIDE && i->type.bits == 16) {
        LANES {
            uint32_t product = is_signed ? (uint32_t)((int32_t)(int16_t)a[l] * (int16_t)b[l])
                                         : (uint32_t)(uint16_t)a[l] * (uint16_t)b[l];
            out[l] = (uint32_t)(product + (adds ? (uint32_t)c[l] : 0));
        }
        return true;
    }
    if (i->mode == MODE_HI && i->type.bits == 32) {
        LANES {
            uint32_t high = is_signed ? (uint32_t)((int64_t)(int32_t)a[l] * (int32_t)b[l] >> 32)
                                      : (uint32_t)((uint64_t)(uint32_t)a[l] * (uint32_t)b[l] >> 32);
            out[l] = (uint32_t)(high + (adds ? (uint32_t)c[l] : 0));
        }
        return true;
    }
    if (i->mode == MODE_HI && i->type.bits == 64) {
        LANES {
            uint64_t high = is_signed ? (uint64_t)((__int128)(int64_t)a[l] * (int64_t)b[l] >> 64)
                                      : (uint64_t)((unsigned __int128)a[l] * b[l] >> 64);
            out[l] = high + (adds ? c[l] : 0);
        }
        return true;
    }
    if (i->mode != MODE_LO) return false;
    ANY_BITS(adds ? x * y + z : x * y)
    return false;
}

#define COMPARE_AS(T, GET, UNORDERED)                                                              \
    LANES {                                                                                        \
        const T x = GET(a[l]), y = GET(b[l]);                                                      \
        const bool unordered = UNORDERED;                                                          \
        bool is;                                                                                   \
        switch (i->compare) {                                                                      \
        case COMPARE_EQ: is = !unordered && x == y; break;                                         \
        case COMPARE_NE: is = !unordered && x != y; break;                                         \
        case COMPARE_LT: is = !unordered && x < y; break;                                          \
        case COMPARE_LE: is = !unordered && x <= y; break;                                         \
        case COMPARE_GT: is = !unordered && x > y; break;                                          \
        case COMPARE_GE: is = !unordered && x >= y; break;                                         \
        case COMPARE_EQU: is = unordered || x == y; break;                                         \
        case COMPARE_NEU: is = unordered || x != y; break;                                         \
        case COMPARE_LTU: is = unordered || x < y; break;                                          \
        case COMPARE_LEU: is = unordered || x <= y; break;                                         \
        case COMPARE_GTU: is = unordered || x > y; break;                                          \
        case COMPARE_GEU: is = unordered || x >= y; break;                                         \
        case COMPARE_NUM: is = !unordered; break;                                                  \
        default: is = unordered; break;                                                            \
        }                                                                                          \
        out[l] = is;                                                                               \
    }                                                                                              \
    return true;

static bool compute_compare(const Instruction *i, const uint64_t *a, const uint64_t *b,
                            uint64_t *out) {
    bool is_signed = i->type.kind == 's';
    if (i->type.kind == 'f' && i->type.bits == 32) {
        COMPARE_AS(float, f32_of, isnan(x) || isnan(y))
    }
    if (i->type.kind == 'f' && i->type.bits == 64) {
        COMPARE_AS(double, f64_of, isnan(x) || isnan(y))
    }
    switch (i->type.bits) {
    case 16:
        if (is_signed) {
            COMPARE_AS(int16_t, (int16_t), false)
        }
        COMPARE_AS(uint16_t, (uint16_t), false)
    case 32:
        if (is_signed) {
            COMPARE_AS(int32_t, (int32_t), false)
        }
        COMPARE_AS(uint32_t, (uint32_t), false)
    case 64:
        if (is_signed) {
            COMPARE_AS(int64_t, (int64_t), false)
        }
        COMPARE_AS(uint64_t, (uint64_t), false)
    default: return false;
    }
}

static double round_to_integer(double x, char how) {
    switch (how) {
    case 'z': return trunc(x);
    case 'm': return floor(x);
    case 'p': return ceil(x);
    default: return nearbyint(x);
    }
}

/* A number as f64 holds all of i32, f32 and f16 has; 64-bit integers go another way. */
static double number_of(uint64_t bits, PtxType type) {
    if (type.kind == 'n' || (type.kind == 'f' && type.bits == 16))
        return ptx_widen((uint16_t)bits, type.kind == 'n');
    if (type.kind == 'f') return type.bits == 32 ? f32_of(bits) : f64_of(bits);
    switch (type.bits) {
    case 8: return type.kind == 's' ? (double)(int8_t)bits : (double)(uint8_t)bits;
    case 16: return type.kind == 's' ? (double)(int16_t)bits : (double)(uint16_t)bits;
    default: return type.kind == 's' ? (double)(int32_t)bits : (double)(uint32_t)bits;
    }
}

static uint64_t to_integer(double x, PtxType type) {
    bool is_signed = type.kind == 's';
    double low = is_signed ? -ldexp(1, type.bits - 1) : 0;
    double high = ldexp(1, type.bits - is_signed);
    if (isnan(x)) return type.bits == 64 ? 1ull << 63 : 0;
    if (x < low) x = low;
    if (x >= high) return is_signed ? (1ull << (type.bits - 1)) - 1 : ~0ull >> (64 - type.bits);
    uint64_t value = is_signed ? (uint64_t)(int64_t)x : (uint64_t)x;
    return type.bits == 64 ? value : value & ((1ull << type.bits) - 1);
}

static uint64_t convert_integer(uint64_t bits, PtxType from, PtxType to) {
    uint64_t wide = bits;
    if (from.bits < 64) {
        wide &= (1ull << from.bits) - 1;
        if (from.kind == 's' && wide >> (from.bits - 1)) wide |= ~0ull << from.bits;
    }
    return to.bits == 64 ? wide : wide & ((1ull << to.bits) - 1);
}

static bool is_float(PtxType type) {
    return type.kind == 'f' || type.kind == 'n';
}

static uint64_t convert(const Instruction *i, uint64_t x, uint64_t y) {
    PtxType to = i->type, from = i->from;
    if (to.pair) { /* the first operand is the high half */
        bool bf16 = to.kind == 'n';
        return (uint64_t)narrow(f32_of(x), bf16) << 16 | narrow(f32_of(y), bf16);
    }
    if (!is_float(to) && !is_float(from)) return convert_integer(x, from, to);
    if (!is_float(from) && from.bits == 64) {
        bool is_signed = from.kind == 's';
        if (to.bits == 32) return of_f32(is_signed ? (float)(int64_t)x : (float)x);
        return of_f64(is_signed ? (double)(int64_t)x : (double)x);
    }
    double number = number_of(x, from);
    if (!is_float(to)) return to_integer(round_to_integer(number, i->round), to);
    if (i->to_integer) number = round_to_integer(number, i->round);
    if (to.bits == 16) return narrow((float)number, to.kind == 'n');
    return to.bits == 32 ? of_f32((float)number) : of_f64(number);
}

static uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t choice = selector >> 4 * i & 15,
                 byte = (uint32_t)(bytes >> 8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

static float flush(float x, bool ftz) {
    return ftz && fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static bool is_negative(const Instruction *i, uint64_t bits) {
    return i->type.kind == 's' && bits >> (i->type.bits - 1) & 1;
}

static uint64_t divide(const Instruction *i, uint64_t a, uint64_t b) {
    const PtxType wide = {'u', 64, false};
    bool remainder = i->op == PTX_rem;
    uint64_t x = convert_integer(a, i->type, wide), y = convert_integer(b, i->type, wide), result;
    if (y == 0) return 0;
    if (i->type.kind == 's' && (int64_t)y == -1) { /* the least number's quotient wraps */
        result = remainder ? 0 : 0 - x;
    } else if (i->type.kind == 's') {
        result = (uint64_t)(remainder ? (int64_t)x % (int64_t)y : (int64_t)x / (int64_t)y);
    } else {
        result = remainder ? x % y : x / y;
    }
    return convert_integer(result, wide, i->type);
}

static bool compute_shift(const Instruction *i, const uint64_t *a, const uint64_t *b,
                          uint64_t *out) {
    const unsigned bits = i->type.bits;
    const bool is_signed = i->type.kind == 's', left = i->op == PTX_shl;
    LANES {
        uint64_t x = convert_integer(a[l], i->type, (PtxType){'u', 64, false});
        unsigned n = (uint32_t)b[l] > bits ? bits : (uint32_t)b[l];
        uint64_t shifted;
        if (left)
            shifted = n >= 64 ? 0 : x << n;
        else if (is_signed)
            shifted = (uint64_t)((int64_t)x >> (n >= 64 ? 63 : n));
        else
            shifted = n >= 64 ? 0 : x >> n;
        out[l] = bits == 64 ? shifted : shifted & ((1ull << bits) - 1);
    }
    return true;
}

/* To [0, 1]; what is no number becomes 0. */
static void saturate(uint64_t *out) {
    LANES {
        float x = f32_of(out[l]);
        out[l] = of_f32(x > 0 ? x < 1 ? x : 1 : 0);
    }
}

/* Of zeros +0 is the larger one, which fmax leaves open; nvcc makes x > 0 ? x : 0 of it. */
static double larger(double x, double y) {
    if (x == y) return signbit(x) ? y : x;
    return fmax(x, y);
}

static double smaller(double x, double y) {
    if (x == y) return signbit(x) ? x : y;
    return fmin(x, y);
}

static bool compute(const Instruction *i, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                    uint64_t *out) {
    switch (i->op) {
    case PTX_mov:
    case PTX_cvta: LANES out[l] = a[l]; return true;
    case PTX_add: FLOATS(x + y) ANY_BITS(x + y) return false;
    case PTX_sub: FLOATS(x - y) ANY_BITS(x - y) return false;
    case PTX_mul:
    case PTX_mad: return compute_multiply(i, a, b, c, out);
    case PTX_fma:
        if (i->type.bits == 32) {
            LANES out[l] = of_f32(fmaf(f32_of(a[l]), f32_of(b[l]), f32_of(c[l])));
        } else {
            LANES out[l] = of_f64(fma(f64_of(a[l]), f64_of(b[l]), f64_of(c[l])));
        }
        return true;
    case PTX_div: FLOATS(x / y) LANES out[l] = divide(i, a[l], b[l]); return true;
    case PTX_rem: LANES out[l] = divide(i, a[l], b[l]); return true;
    case PTX_min: FLOATS((T)smaller((double)x, (double)y)) ANY_INTEGER(x < y ? x : y) return false;
    case PTX_max: FLOATS((T)larger((double)x, (double)y)) ANY_INTEGER(x > y ? x : y) return false;
    case PTX_abs: FLOATS((T)fabs((double)x)) ANY_BITS(is_negative(i, x) ? 0 - x : x) return false;
    case PTX_copysign: FLOATS((T)copysign((double)y, (double)x)) return false; /* a's, on b */
    case PTX_neg: FLOATS(-x) ANY_BITS(0 - x) return false;
    case PTX_not: ANY_BITS(~x) return false;
    case PTX_and: ANY_BITS(x & y) return false;
    case PTX_or: ANY_BITS(x | y) return false;
    case PTX_xor: ANY_BITS(x ^ y) return false;
    case PTX_shl:
    case PTX_shr: return compute_shift(i, a, b, out);
    case PTX_setp: return compute_compare(i, a, b, out);
    case PTX_selp: LANES out[l] = c[l] & 1 ? a[l] : b[l]; return true;
    case PTX_cvt: LANES out[l] = convert(i, a[l], b[l]); return true;
    case PTX_ex2:
        LANES out[l] = of_f32(flush(exp2f(flush(f32_of(a[l]), i->ftz)), i->ftz));
        return true;
    case PTX_lg2: LANES out[l] = of_f32(log2f(flush(f32_of(a[l]), i->ftz))); return true;
    case PTX_rcp: FLOATS(1 / x) return false;
    case PTX_sqrt:
        FLOATS((T)(sizeof(T) == 4 ? (double)sqrtf((float)x) : sqrt((double)x))) return false;
    case PTX_rsqrt: FLOATS((T)(1 / sqrt((double)x))) return false;
    case PTX_popc:
        LANES out[l] = (uint64_t)__builtin_popcountll(i->type.bits == 32 ? (uint32_t)a[l] : a[l]);
        return true;
    case PTX_prmt:
        LANES out[l] = permute_bytes((uint32_t)a[l], (uint32_t)b[l], (uint32_t)c[l]);
        return true;
    default: return false;
    }
}

bool ptx_compute(const Instruction *i, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                 uint64_t *out) {
    bool saturates = i->saturated && i->type.kind == 'f';
    if (!compute(i, a, b, c, out) || (i->saturated && (!saturates || i->type.bits != 32)))
        return false;
    if (saturates) saturate(out);
    return true;
}
