#include "frontend/hf/hf_packed.h"

#include "runtime/cpu/quantize.h"
#include "runtime/cpu/vec_low.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WORD_BITS = 32, EXPONENT_BIAS = 127 };

int64_t hf_packed_count(int64_t all, int64_t each) {
    return all / each + (all % each != 0);
}

int64_t hf_packed_words(int64_t n, int bits) {
    return hf_packed_count(n * bits, WORD_BITS);
}

/* --- finding --- */

HfFound *hf_packed_look(const HfPackedAt *at, const char *end) {
    HfFound *found = hf_files_find(at->files, arena_printf(at->arena, "%s%s", at->stem, end));
    if (found) found->used = true;
    return found;
}

const char *hf_packed_shown(Arena *arena, unsigned dtypes, int n_dims, const int64_t *shape) {
    const char *text = "", *dims = "";
    for (int i = 0; i < SAFETENSORS_N_DTYPES; i++) {
        if (!(dtypes & 1U << i)) continue;
        const bool last = dtypes >> i == 1;
        text = arena_printf(arena, "%s%s%s", text,
                            !text[0] ? ""
                            : last   ? " or "
                                     : ", ",
                            safetensors_dtype_name((SafetensorsDtype)i));
    }
    for (int i = 0; i < n_dims; i++) {
        dims = arena_printf(arena, "%s%s%" PRId64, dims, i ? ", " : "", shape[i]);
    }
    return arena_printf(arena, "%s [%s]", text, dims);
}

bool hf_packed_has_shape(const HfFound *found, unsigned dtypes, int n_dims, const int64_t *shape) {
    bool same = (dtypes & 1U << found->info->dtype) != 0 && found->info->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = found->info->shape[i] == shape[i];
    return same;
}

bool hf_packed_check(const HfPackedAt *at, const HfFound *found, unsigned dtypes, int n_dims,
                     const int64_t *shape) {
    const SafetensorsInfo *has = found->info;
    if (hf_packed_has_shape(found, dtypes, n_dims, shape)) return true;
    diag_error(at->diag, (SourceLoc){found->path, 0},
               "tensor '%s' must be %s by the configuration; it is %s", has->name,
               hf_packed_shown(at->arena, dtypes, n_dims, shape),
               hf_packed_shown(at->arena, 1U << has->dtype, has->n_dims, has->shape));
    return false;
}

static HfFound *need(const HfPackedAt *at, const char *end) {
    HfFound *found = hf_packed_look(at, end);
    if (!found) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0}, "has '%s' in %s, but no '%s%s'",
                   at->first->info->name, safetensors_dtype_name(at->first->info->dtype), at->stem,
                   end);
    }
    return found;
}

HfFound *hf_packed_part(const HfPackedAt *at, const char *end, unsigned dtypes, int n_dims,
                        const int64_t *shape) {
    HfFound *found = need(at, end);
    return found && hf_packed_check(at, found, dtypes, n_dims, shape) ? found : NULL;
}

HfFound *hf_packed_scalar(const HfPackedAt *at, const char *end, unsigned dtypes) {
    const int64_t one = 1;
    HfFound *found = need(at, end);
    if (found && hf_packed_has_shape(found, dtypes, 0, NULL)) return found;
    return found && hf_packed_check(at, found, dtypes, 1, &one) ? found : NULL;
}

static int32_t integer_at(const SafetensorsInfo *info, int64_t i) {
    int32_t value;
    memcpy(&value, (const char *)info->data + i * (int64_t)sizeof(value), sizeof(value));
    return value;
}

bool hf_packed_groups(const HfPackedAt *at, const HfFound *found, int64_t columns,
                      int64_t n_groups) {
    if (!hf_packed_check(at, found, 1U << SAFETENSORS_I32, 1, &columns)) return false;
    for (int64_t i = 0; i < columns; i++) {
        const int32_t group = integer_at(found->info, i);
        if (group >= 0 && group < n_groups) continue;
        diag_error(at->diag, (SourceLoc){found->path, 0},
                   "tensor '%s' has group %" PRId32 " at %" PRId64 "; there are %" PRId64,
                   found->info->name, group, i, n_groups);
        return false;
    }
    return true;
}

bool hf_packed_is_matrix(const HfPackedAt *at) {
    if (at->n_dims == 2) return true;
    const SafetensorsInfo *info = at->first->info;
    diag_error(at->diag, (SourceLoc){at->first->path, 0},
               "tensor '%s' is %s, and by the configuration no matrix, which alone may be",
               info->name, safetensors_dtype_name(info->dtype));
    return false;
}

/* --- numbers --- */

float hf_e2m1(unsigned code) {
    static const float NUMBERS[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                      -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    return NUMBERS[code & 15];
}

float hf_packed_number(const SafetensorsInfo *info, int64_t i) {
    float number;
    uint16_t half;
    switch (info->dtype) {
    case SAFETENSORS_F8_E4M3: return fp8_widen(((const uint8_t *)info->data)[i]);
    case SAFETENSORS_U8: return ldexpf(1, ((const uint8_t *)info->data)[i] - EXPONENT_BIAS);
    case SAFETENSORS_BF16:
    case SAFETENSORS_F16:
        memcpy(&half, (const char *)info->data + i * (int64_t)sizeof(half), sizeof(half));
        return info->dtype == SAFETENSORS_F16 ? vec_f16_widen(half) : vec_bf16_widen(half);
    default: /* F32 */
        memcpy(&number, (const char *)info->data + i * (int64_t)sizeof(number), sizeof(number));
        return number;
    }
}

static unsigned bits_at(const SafetensorsInfo *info, int64_t first, int64_t step, int64_t i,
                        int bits) {
    const int64_t bit = i * bits, word = bit / WORD_BITS;
    const int shift = (int)(bit % WORD_BITS);
    unsigned code = (unsigned)integer_at(info, first + word * step) >> shift;
    if (shift + bits > WORD_BITS) {
        code |= (unsigned)integer_at(info, first + (word + 1) * step) << (WORD_BITS - shift);
    }
    return code & ((1U << bits) - 1);
}

/* The whole number, or 4 bits of e2m1, or 8 of fp8. */
static int code_at(const HfCodes *codes, int64_t row, int64_t column) {
    static const int64_t MIXED[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* where number i of a word is */
    const SafetensorsInfo *info = codes->info;
    const int64_t line = codes->turned ? column : row, at = codes->turned ? row : column;
    const int64_t across = info->n_dims ? info->shape[info->n_dims - 1] : 1;
    const uint8_t *bytes = info->data;
    switch (codes->kind) {
    case HF_WORDS_ALONG: return (int)bits_at(info, line * across, 1, at, codes->bits);
    case HF_WORDS_DOWN: return (int)bits_at(info, line, across, at, codes->bits);
    case HF_WORDS_MIXED:
        return (int)bits_at(info, line * across, 1, at / 8 * 8 + MIXED[at % 8], codes->bits);
    case HF_CODE_INT8: return (int8_t)bytes[line * across + at];
    case HF_CODE_FP8: return bytes[line * across + at];
    case HF_CODE_E2M1: return bytes[line * across + at / 2] >> (at % 2 * 4) & 15;
    case HF_CODE_NONE: break;
    }
    return 0;
}

static void make_table(HfCode kind, float *numbers) {
    for (int code = 0; code < 256; code++) {
        numbers[code] = kind == HF_CODE_E2M1 ? hf_e2m1((unsigned)code) : fp8_widen((uint8_t)code);
    }
}

void hf_packed_widen(const HfPacked *packed, int64_t slice, float *out) {
    (void)slice; /* the only one */
    const HfCodes *codes = &packed->codes, *zeros = &packed->zeros;
    const bool whole = codes->kind != HF_CODE_FP8 && codes->kind != HF_CODE_E2M1;
    const int64_t n_blocks = hf_packed_count(packed->rows, packed->block_rows);
    const unsigned mask = (1U << zeros->bits) - 1;
    float numbers[256], scale = 0;
    if (!whole) make_table(codes->kind, numbers);
    for (int64_t row = 0; row < packed->rows; row++) {
        const int64_t block = row / packed->block_rows;
        int64_t last = -1;
        int zero = packed->zero;
        for (int64_t column = 0; column < packed->columns; column++) {
            const int64_t group = packed->group_of ? integer_at(packed->group_of, column)
                                                   : column / packed->block_columns;
            if (group != last) {
                scale = hf_packed_number(packed->scales, packed->scales_turned
                                                             ? group * n_blocks + block
                                                             : block * packed->n_groups + group);
                scale = scale * packed->times / packed->by;
                if (zeros->kind != HF_CODE_NONE) {
                    zero = code_at(zeros, block, group) + packed->zero_more;
                    if (zeros->kind != HF_CODE_INT8) zero = (int)((unsigned)zero & mask);
                }
                last = group;
            }
            const int code = code_at(codes, row, column);
            *out++ = (whole ? (float)(code - zero) : numbers[code]) * scale;
        }
    }
}
