#include "frontend/hf/hf_mxfp4.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = 16, EXPONENT_BIAS = 127, NO_SCALE = 255 };

static const float NUMBERS[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                  -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

static bool has_shape(const HfFound *found, const int64_t *shape, int n_dims) {
    bool same = found->info->dtype == SAFETENSORS_U8 && found->info->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = found->info->shape[i] == shape[i];
    return same;
}

static bool check_bytes(const HfFound *found, const int64_t *shape, int n_dims, Diag *diag) {
    if (has_shape(found, shape, n_dims)) return true;
    char last[24] = "";
    if (n_dims == 4) snprintf(last, sizeof(last), ", %" PRId64, shape[3]);
    diag_error(diag, (SourceLoc){found->path, 0},
               "tensor '%s' must be U8 [%" PRId64 ", %" PRId64 ", %" PRId64 "%s]",
               found->info->name, shape[0], shape[1], shape[2], last);
    return false;
}

bool hf_mxfp4_find(Arena *arena, const HfFiles *files, const HfItem *item, HfMxfp4 *out,
                   Diag *diag) {
    const char *scales_name = arena_printf(arena, "%s_scales", item->theirs);
    HfFound *blocks = hf_files_find(files, arena_printf(arena, "%s_blocks", item->theirs));
    HfFound *scales = hf_files_find(files, scales_name);
    *out = (HfMxfp4){.blocks = NULL};
    if (!blocks || item->n_dims != 3) return true;
    const SourceLoc loc = {blocks->path, 0};
    if (!scales) {
        diag_error(diag, loc, "has '%s', but no '%s'", blocks->info->name, scales_name);
        return false;
    }
    if (item->shape[1] % BLOCK != 0) {
        diag_error(diag, loc, "'%s': %" PRId64 " numbers are no whole blocks of %d",
                   blocks->info->name, item->shape[1], BLOCK);
        return false;
    }
    const int64_t shape[4] = {item->shape[0], item->shape[2], item->shape[1] / BLOCK, BLOCK_BYTES};
    if (!check_bytes(blocks, shape, 4, diag) || !check_bytes(scales, shape, 3, diag)) return false;
    if (memchr(scales->info->data, NO_SCALE, scales->info->n_bytes)) {
        diag_error(diag, (SourceLoc){scales->path, 0}, "'%s' has a scale that is no number",
                   scales_name);
        return false;
    }
    blocks->used = scales->used = true;
    *out = (HfMxfp4){.blocks = blocks->info->data,
                     .scales = scales->info->data,
                     .experts = item->shape[0],
                     .rows = item->shape[2],
                     .columns = item->shape[1]};
    return true;
}

void hf_mxfp4_widen(const HfMxfp4 *packed, int64_t expert, float *out) {
    const int64_t n_blocks = packed->rows * (packed->columns / BLOCK);
    const uint8_t *bytes = packed->blocks + expert * n_blocks * BLOCK_BYTES;
    const uint8_t *scales = packed->scales + expert * n_blocks;
    for (int64_t i = 0; i < n_blocks; i++, bytes += BLOCK_BYTES, out += BLOCK) {
        const float scale = ldexpf(1, scales[i] - EXPONENT_BIAS);
        for (int k = 0; k < BLOCK_BYTES; k++) {
            out[2 * k] = scale * NUMBERS[bytes[k] & 15];
            out[2 * k + 1] = scale * NUMBERS[bytes[k] >> 4];
        }
    }
}

void hf_mxfp4_turn(const HfMxfp4 *packed, int64_t first, TensorCopy *copy, const float *wide) {
    copy->from_dtype = DTYPE_F32;
    copy->from = wide + first % packed->rows * packed->columns + first / packed->rows;
    for (int i = 0; i < copy->rank; i++) {
        int64_t *stride = &copy->from_stride[i];
        *stride = *stride < packed->rows ? *stride * packed->columns : *stride / packed->rows;
    }
}
