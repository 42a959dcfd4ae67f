/* NVIDIA ModelOpt's files: in place of NAME.weight [rows, columns] a file has, by quant_algo,
 *     FP8    NAME.weight F8_E4M3 and NAME.weight_scale F32, one,
 *     NVFP4  NAME.weight U8 [rows, columns / 2], numbers of e2m1, the first in the lower half,
 *            NAME.weight_scale F8_E4M3 [rows, columns / 16] and NAME.weight_scale_2 F32, one, which
 *            they are times.
 */
#include "frontend/hf/hf_quantized.h"

#include <string.h>

enum {
    GROUP = 16,
    BYTES = 1 << SAFETENSORS_U8,
    FP8 = 1 << SAFETENSORS_F8_E4M3,
    FLOATS = 1 << SAFETENSORS_F32
};

static const char *read_config(Arena *arena, const json_t *how, HfQuantized *out) {
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    const char *algorithm = json_string_value(json_object_get(how, "quant_algo")), *why;
    if (algorithm && strcmp(algorithm, "FP8") == 0) {
        scheme->bits = 8;
        return NULL;
    }
    if (!algorithm || strcmp(algorithm, "NVFP4") != 0) {
        return hf_quantized_unknown(arena, how, "quant_algo", "FP8, NVFP4");
    }
    scheme->bits = 4;
    const bool fine =
        hf_quantized_integer(arena, how, "group_size", GROUP, GROUP, GROUP, &scheme->group, &why);
    return fine ? NULL : why;
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const bool four = quantized->schemes[0].bits == 4;
    const int64_t rows = at->shape[0], columns = at->shape[1];
    const int64_t codes_shape[2] = {rows, four ? hf_packed_count(columns, 2) : columns};
    const int64_t scales_shape[2] = {rows, hf_packed_count(columns, GROUP)};
    const HfFound *scales, *all = NULL;
    if (at->first->info->dtype != (four ? SAFETENSORS_U8 : SAFETENSORS_F8_E4M3)) return true;
    if (!hf_packed_is_matrix(at) ||
        !hf_packed_check(at, at->first, four ? BYTES : FP8, 2, codes_shape)) {
        return false;
    }
    scales = four ? hf_packed_part(at, "weight_scale", FP8, 2, scales_shape)
                  : hf_packed_scalar(at, "weight_scale", FLOATS);
    if (!scales || (four && !(all = hf_packed_scalar(at, "weight_scale_2", FLOATS)))) return false;
    *out = (HfPacked){.first = at->first,
                      .widen = hf_packed_widen,
                      .slices = 1,
                      .rows = rows,
                      .columns = columns,
                      .codes = {.info = at->first->info, .kind = four ? HF_CODE_E2M1 : HF_CODE_FP8},
                      .scales = scales->info,
                      .n_groups = four ? scales_shape[1] : 1,
                      .block_rows = four ? 1 : rows,
                      .block_columns = four ? GROUP : columns,
                      .times = all ? hf_packed_number(all->info, 0) : 1,
                      .by = 1};
    return true;
}

static const char *const ENDINGS[] = {"weight", NULL};
static const char *const LEFT_OUT[] = {".input_scale", ".k_scale", ".v_scale", NULL};

const HfMethod HF_MODELOPT = {"modelopt", read_config, ENDINGS, find, LEFT_OUT};
