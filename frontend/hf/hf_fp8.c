#include "frontend/hf/hf_fp8.h"

#include "runtime/cpu/quantize.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_SIDE = 1 << 16 };

static int64_t side(const json_t *pair, size_t i) {
    json_int_t value = json_integer_value(json_array_get(pair, i));
    return value > 0 && value <= MOST_SIDE ? (int64_t)value : 0;
}

const char *hf_fp8_take(Arena *arena, json_t *config, HfFp8Block *out) {
    const json_t *how = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    *out = (HfFp8Block){0, 0};
    if (!method || strcmp(method, "fp8") != 0) return NULL;
    const char *format = json_string_value(json_object_get(how, "fmt"));
    if (format && strcmp(format, "e4m3") != 0) {
        return arena_printf(arena, "'quantization_config.fmt' is not supported; only e4m3 is");
    }
    const json_t *block = json_object_get(how, "weight_block_size");
    *out = (HfFp8Block){side(block, 0), side(block, 1)};
    if (json_array_size(block) != 2 || !out->rows || !out->columns) {
        return arena_printf(arena,
                            "'quantization_config.weight_block_size' is no pair of sizes from 1 to "
                            "%d: weights in fp8 need a scale for each block",
                            MOST_SIDE);
    }
    json_object_del(config, "quantization_config");
    return NULL;
}

static int64_t count(int64_t all, int64_t each) {
    return (all + each - 1) / each;
}

const HfFound *hf_fp8_find_scales(Arena *arena, const HfFiles *files, const HfFound *matrix,
                                  HfFp8Block block, Diag *diag) {
    const SafetensorsInfo *info = matrix->info;
    const char *name = arena_printf(arena, "%s_scale_inv", info->name);
    HfFound *scales = hf_files_find(files, name);
    if (info->n_dims != 2) {
        diag_error(diag, (SourceLoc){matrix->path, 0},
                   "tensor '%s' is F8_E4M3, and no matrix, which alone may be", info->name);
        return NULL;
    }
    if (!scales) {
        diag_error(diag, (SourceLoc){matrix->path, 0}, "has '%s' in F8_E4M3, but no '%s'",
                   info->name, name);
        return NULL;
    }
    const SafetensorsInfo *has = scales->info;
    int64_t rows = count(info->shape[0], block.rows),
            columns = count(info->shape[1], block.columns);
    bool number = has->dtype == SAFETENSORS_F32 || has->dtype == SAFETENSORS_BF16;
    if (!number || has->n_dims != 2 || has->shape[0] != rows || has->shape[1] != columns) {
        diag_error(diag, (SourceLoc){scales->path, 0},
                   "tensor '%s' must be F32 or BF16 [%" PRId64 ", %" PRId64 "]: a scale for each "
                   "%" PRId64 " x %" PRId64 " of '%s'",
                   name, rows, columns, block.rows, block.columns, info->name);
        return NULL;
    }
    scales->used = true;
    return scales;
}

/* The data of a file need not be aligned. */
static float scale_at(const SafetensorsInfo *scales, int64_t i) {
    float scale;
    if (scales->dtype == SAFETENSORS_F32) {
        memcpy(&scale, (const char *)scales->data + i * (int64_t)sizeof(scale), sizeof(scale));
        return scale;
    }
    uint16_t upper;
    memcpy(&upper, (const char *)scales->data + i * (int64_t)sizeof(upper), sizeof(upper));
    uint32_t bits = (uint32_t)upper << 16;
    memcpy(&scale, &bits, sizeof(scale));
    return scale;
}

void hf_fp8_widen(const HfFound *matrix, const HfFound *scales, HfFp8Block block, float *out) {
    const int64_t rows = matrix->info->shape[0], columns = matrix->info->shape[1];
    const int64_t n_across = count(columns, block.columns);
    const uint8_t *codes = matrix->info->data;
    float numbers[256];
    for (int code = 0; code < 256; code++) numbers[code] = fp8_widen((uint8_t)code);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t b = 0; b < n_across; b++) {
            const float scale = scale_at(scales->info, row / block.rows * n_across + b);
            int64_t begin = b * block.columns, end = begin + block.columns;
            if (end > columns) end = columns;
            for (int64_t i = begin; i < end; i++) {
                out[row * columns + i] = numbers[codes[row * columns + i]] * scale;
            }
        }
    }
}
