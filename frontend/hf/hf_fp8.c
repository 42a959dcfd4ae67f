/* Weights in fp8, as DeepSeek V3 is published, and Qwen 3's -FP8 files (transformers:
 * FineGrainedFP8Config): in place of a matrix NAME [rows, columns] a file has it as F8_E4M3, and
 * NAME_scale_inv in F32 or BF16, [rows / R, columns / C], rounded up, where the configuration's
 * weight_block_size is [R, C], or one number where it is null. And, as fbgemm_fp8 (Llama 3.1 405B's
 * -FP8 files), with NAME_scale [rows, 1]. A number is the product of the two. What is no product's
 * weight is as in other files.
 */
#include "frontend/hf/hf_config.h"

#include <string.h>

enum { FP8 = 1 << SAFETENSORS_F8_E4M3, SCALE = 1 << SAFETENSORS_F32 | 1 << SAFETENSORS_BF16 };

static int64_t side(const json_t *pair, size_t i) {
    json_int_t value = json_integer_value(json_array_get(pair, i));
    return value > 0 && value <= HF_MOST_BLOCK ? (int64_t)value : 0;
}

static const char *read_blocks(Arena *arena, const json_t *how, HfQuantized *out) {
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    const char *format = json_string_value(json_object_get(how, "fmt"));
    if (format && strcmp(format, "e4m3") != 0) {
        return arena_printf(arena, "'quantization_config.fmt' is not supported; only e4m3 is");
    }
    const json_t *block = json_object_get(how, "weight_block_size");
    if (json_is_null(block)) return NULL;
    *scheme = (HfScheme){.block_rows = side(block, 0), .block_columns = side(block, 1)};
    if (json_array_size(block) == 2 && scheme->block_rows && scheme->block_columns) return NULL;
    return arena_printf(arena,
                        "'quantization_config.weight_block_size' is no pair of sizes from 1 to "
                        "%d: weights in fp8 need a scale for each block (null: one for all)",
                        HF_MOST_BLOCK);
}

static const char *read_rows(Arena *arena, const json_t *how, HfQuantized *out) {
    (void)arena, (void)how;
    out->n_schemes = 1;
    return NULL;
}

static void fill(const HfPackedAt *at, const HfFound *scales, int64_t block_rows,
                 int64_t block_columns, HfPacked *out) {
    *out = (HfPacked){.first = at->first,
                      .widen = hf_packed_widen,
                      .slices = 1,
                      .rows = at->shape[0],
                      .columns = at->shape[1],
                      .codes = {.info = at->first->info, .kind = HF_CODE_FP8},
                      .scales = scales->info,
                      .n_groups = hf_packed_count(at->shape[1], block_columns),
                      .block_rows = block_rows,
                      .block_columns = block_columns,
                      .times = 1,
                      .by = 1};
}

static bool is_fp8(const HfPackedAt *at) {
    return at->first->info->dtype == SAFETENSORS_F8_E4M3;
}

static bool find_blocks(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const HfScheme *scheme = &quantized->schemes[0];
    if (!is_fp8(at)) return true;
    if (!hf_packed_is_matrix(at) || !hf_packed_check(at, at->first, FP8, 2, at->shape)) {
        return false;
    }
    const bool one = scheme->block_rows == 0;
    const int64_t rows = one ? at->shape[0] : scheme->block_rows;
    const int64_t columns = one ? at->shape[1] : scheme->block_columns;
    const int64_t shape[2] = {hf_packed_count(at->shape[0], rows),
                              hf_packed_count(at->shape[1], columns)};
    const HfFound *scales = one ? hf_packed_scalar(at, "_scale_inv", SCALE)
                                : hf_packed_part(at, "_scale_inv", SCALE, 2, shape);
    if (scales) fill(at, scales, rows, columns, out);
    return scales != NULL;
}

static bool find_rows(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    (void)quantized;
    if (!is_fp8(at)) return true;
    if (!hf_packed_is_matrix(at) || !hf_packed_check(at, at->first, FP8, 2, at->shape)) {
        return false;
    }
    const int64_t shape[2] = {at->shape[0], 1};
    const HfFound *scales = hf_packed_part(at, "_scale", SCALE, 2, shape);
    if (scales) fill(at, scales, 1, at->shape[1], out);
    return scales != NULL;
}

static const char *const ENDINGS[] = {"+", NULL};
static const char *const LEFT_OUT[] = {".activation_scale", ".input_scale", ".input_scale_ub",
                                       NULL};

const HfMethod HF_FP8 = {"fp8", read_blocks, ENDINGS, find_blocks, LEFT_OUT};
const HfMethod HF_FBGEMM_FP8 = {"fbgemm_fp8", read_rows, ENDINGS, find_rows, LEFT_OUT};
