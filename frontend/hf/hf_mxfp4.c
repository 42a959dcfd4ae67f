/* Weights in MXFP4, as gpt-oss is published: blocks of 32 numbers of 4 bits (e2m1) with a power of
 * two each (OCP Microscaling Formats 1.0, section 5.3).
 *
 * In place of a tensor NAME [experts, columns, rows] a file has the bytes NAME_blocks [experts,
 * rows, columns / 32, 16], two numbers each, the first in the low bits, and NAME_scales [experts,
 * rows, columns / 32], exponents plus 127. An expert is a slice.
 */
#include "frontend/hf/hf_quantized.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK = 32,
    BLOCK_BYTES = 16,
    EXPONENT_BIAS = 127,
    NO_SCALE = 255,
    BYTES = 1 << SAFETENSORS_U8
};

static const char *read_nothing(Arena *arena, const json_t *how, HfQuantized *out) {
    (void)arena, (void)how, (void)out;
    return NULL;
}

static void widen(const HfPacked *packed, int64_t expert, float *out) {
    const int64_t rows = packed->columns, across = packed->rows / BLOCK; /* they lie turned */
    const uint8_t *bytes = packed->parts[0]->data, *scales = packed->parts[1]->data;
    bytes += expert * rows * across * BLOCK_BYTES;
    scales += expert * rows * across;
    for (int64_t i = 0; i < rows * across; i++, bytes += BLOCK_BYTES) {
        const float scale = ldexpf(1, scales[i] - EXPONENT_BIAS);
        float *to = out + i % across * BLOCK * rows + i / across;
        for (int k = 0; k < BLOCK; k++) {
            to[k * rows] = scale * hf_e2m1((unsigned)bytes[k / 2] >> (k % 2 * 4));
        }
    }
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    (void)quantized;
    const char *name = at->first->info->name;
    if (at->n_dims != 3) return true;
    if (at->shape[1] % BLOCK != 0) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0},
                   "'%s': %" PRId64 " numbers are no whole blocks of %d", name, at->shape[1],
                   BLOCK);
        return false;
    }
    const int64_t shape[4] = {at->shape[0], at->shape[2], at->shape[1] / BLOCK, BLOCK_BYTES};
    if (!hf_packed_check(at, at->first, BYTES, 4, shape)) return false;
    const HfFound *scales = hf_packed_part(at, "_scales", BYTES, 3, shape);
    if (!scales) return false;
    if (memchr(scales->info->data, NO_SCALE, scales->info->n_bytes)) {
        diag_error(at->diag, (SourceLoc){scales->path, 0}, "'%s' has a scale that is no number",
                   scales->info->name);
        return false;
    }
    *out = (HfPacked){.first = at->first,
                      .widen = widen,
                      .slices = at->shape[0],
                      .rows = at->shape[1],
                      .columns = at->shape[2],
                      .parts = {at->first->info, scales->info}};
    return true;
}

static const char *const ENDINGS[] = {"+_blocks", NULL};
static const char *const LEFT_OUT[] = {NULL};

const HfMethod HF_MXFP4 = {"mxfp4", read_nothing, ENDINGS, find, LEFT_OUT};
