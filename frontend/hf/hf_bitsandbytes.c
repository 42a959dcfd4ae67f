/* bitsandbytes' files (Dettmers et al. 2022, 2023: arXiv 2208.07339, 2305.14314).
 *
 * 4 bits, nf4 or fp4: NAME.weight [rows, columns] is U8 [rows x columns / 2, 1], two codes each,
 * the first in the upper half, and beside it are NAME.weight.quant_map F32 [16], what the codes
 * stand for, NAME.weight.absmax F32 [blocks], a scale for each `blocksize` numbers, row after row,
 *     NAME.weight.quant_state.bitsandbytes__nf4 U8, a text in JSON: blocksize, shape.
 * Where scales are quantized again ("double quantization"), absmax is U8, and a scale is
 *     nested_quant_map[absmax] x nested_absmax[block / nested_blocksize] + nested_offset.
 * 8 bits: NAME.weight is I8 [rows, columns] with NAME.SCB F32 [rows]: code x SCB / 127.
 */
#include "frontend/hf/hf_config.h"

#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    N_CODES = 16,
    N_SCALES = 256,
    FLOATS = 1 << SAFETENSORS_F32,
    BYTES = 1 << SAFETENSORS_U8,
    SIGNED = 1 << SAFETENSORS_I8,
    MOST_TEXT = 1 << 16
};
enum { CODES, ABSMAX, MAP, NESTED_ABSMAX }; /* parts, and sizes of blocks: */
enum { BLOCK, NESTED_BLOCK };

static const char *read_config(Arena *arena, const json_t *how, HfQuantized *out) {
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    const json_t *kept = json_object_get(how, "bnb_4bit_quant_storage");
    const char *storage = json_string_value(kept);
    const bool four = json_is_true(json_object_get(how, "load_in_4bit")) ||
                      json_is_true(json_object_get(how, "_load_in_4bit"));
    const bool eight = json_is_true(json_object_get(how, "load_in_8bit")) ||
                       json_is_true(json_object_get(how, "_load_in_8bit"));
    scheme->bits = four ? 4 : 8;
    if (four == eight) {
        return arena_printf(arena, "'quantization_config' must say that one of 'load_in_4bit' and "
                                   "'load_in_8bit' is true");
    }
    if (four && kept && !json_is_null(kept) && (!storage || strcmp(storage, "uint8") != 0)) {
        return hf_quantized_unknown(arena, how, "bnb_4bit_quant_storage", "uint8");
    }
    return NULL;
}

/* --- 4 bits --- */

static float scale_of(const HfPacked *packed, const SafetensorsInfo *scale_map, int64_t block) {
    const SafetensorsInfo *absmax = packed->parts[ABSMAX];
    if (!scale_map) return hf_packed_number(absmax, block);
    /* Rounded by itself, as bitsandbytes stores it: no multiply-add. */
    const volatile float scale =
        hf_packed_number(scale_map, ((const uint8_t *)absmax->data)[block]) *
        hf_packed_number(packed->parts[NESTED_ABSMAX], block / packed->sizes[NESTED_BLOCK]);
    return scale + packed->offset;
}

static void widen_blocks(const HfPacked *packed, int64_t slice, float *out) {
    (void)slice;
    const uint8_t *bytes = packed->parts[CODES]->data;
    const int64_t n = packed->rows * packed->columns, size = packed->sizes[BLOCK];
    const SafetensorsInfo *nested = packed->parts[NESTED_ABSMAX] ? packed->scales : NULL;
    float numbers[N_CODES], scale = 0;
    for (int i = 0; i < N_CODES; i++) numbers[i] = hf_packed_number(packed->parts[MAP], i);
    for (int64_t i = 0; i < n; i++) {
        if (i % size == 0) scale = scale_of(packed, nested, i / size);
        out[i] = numbers[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4] * scale;
    }
}

/* The text beside the codes; NULL: reported. */
static json_t *read_state(const HfPackedAt *at, const HfFound **out_found) {
    const HfFound *nf4 = hf_packed_look(at, "weight.quant_state.bitsandbytes__nf4");
    const HfFound *fp4 = hf_packed_look(at, "weight.quant_state.bitsandbytes__fp4");
    const HfFound *found = *out_found = nf4 ? nf4 : fp4;
    if (!found || (nf4 && fp4)) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0}, "has '%s' in U8, but %s%s'",
                   at->first->info->name, nf4 ? "both of '" : "no '",
                   arena_printf(at->arena, "%sweight.quant_state.bitsandbytes__nf4' or '...fp4",
                                at->stem));
        return NULL;
    }
    if (found->info->dtype != SAFETENSORS_U8 || found->info->n_dims != 1 ||
        found->info->n_bytes > MOST_TEXT) {
        diag_error(at->diag, (SourceLoc){found->path, 0},
                   "tensor '%s' must be U8 [n], a text of at most %d bytes", found->info->name,
                   MOST_TEXT);
        return NULL;
    }
    const char *path = arena_printf(at->arena, "%s: %s", found->path, found->info->name);
    return json_parse_bytes(path, found->info->data, found->info->n_bytes, at->diag);
}

static bool state_fails(const HfPackedAt *at, const HfFound *state, const json_t *json,
                        const char *key, const char *wanted) {
    const json_t *value = json_object_get(json, key);
    diag_error(at->diag, (SourceLoc){state->path, 0}, "tensor '%s': '%s' is %s; it must be %s",
               state->info->name, key, value ? hf_config_shown(at->arena, value) : "missing",
               wanted);
    return false;
}

static bool read_size(const HfPackedAt *at, const HfFound *state, const json_t *json,
                      const char *key, int64_t *out) {
    const json_t *value = json_object_get(json, key);
    *out = json_integer_value(value);
    return (json_is_integer(value) && *out > 0 && *out <= HF_MOST_GROUP) ||
           state_fails(at, state, json, key,
                       arena_printf(at->arena, "a whole number from 1 to %d", HF_MOST_GROUP));
}

static bool check_state(const HfPackedAt *at, const HfFound *state, const json_t *json, bool nested,
                        HfPacked *out) {
    const json_t *shape = json_object_get(json, "shape");
    const json_t *offset = json_object_get(json, "nested_offset");
    bool same = json_array_size(shape) == 2;
    for (size_t i = 0; same && i < 2; i++) {
        const json_t *side = json_array_get(shape, i);
        same = json_is_integer(side) && json_integer_value(side) == at->shape[i];
    }
    if (!same) {
        return state_fails(at, state, json, "shape",
                           arena_printf(at->arena,
                                        "[%" PRId64 ", %" PRId64 "] by the configuration",
                                        at->shape[0], at->shape[1]));
    }
    if (!read_size(at, state, json, "blocksize", &out->sizes[BLOCK])) return false;
    if (!nested) return true;
    out->offset = (float)json_number_value(offset);
    if (!json_is_number(offset) || !isfinite(out->offset)) {
        return state_fails(at, state, json, "nested_offset", "a number");
    }
    return read_size(at, state, json, "nested_blocksize", &out->sizes[NESTED_BLOCK]);
}

static bool find_scales(const HfPackedAt *at, bool nested, HfPacked *out) {
    const int64_t n = at->shape[0] * at->shape[1], codes = N_CODES, scales = N_SCALES;
    const int64_t blocks = hf_packed_count(n, out->sizes[BLOCK]);
    const HfFound *map = hf_packed_part(at, "weight.quant_map", FLOATS, 1, &codes);
    const HfFound *absmax =
        map ? hf_packed_part(at, "weight.absmax", nested ? BYTES : FLOATS, 1, &blocks) : NULL;
    if (!absmax) return false;
    out->parts[MAP] = map->info;
    out->parts[ABSMAX] = absmax->info;
    if (!nested) return true;
    const int64_t outer = hf_packed_count(blocks, out->sizes[NESTED_BLOCK]);
    const HfFound *more = hf_packed_part(at, "weight.nested_absmax", FLOATS, 1, &outer);
    map = more ? hf_packed_part(at, "weight.nested_quant_map", FLOATS, 1, &scales) : NULL;
    if (!map) return false;
    out->parts[NESTED_ABSMAX] = more->info;
    out->scales = map->info;
    return true;
}

static bool find_blocks(const HfPackedAt *at, HfPacked *out) {
    const int64_t shape[2] = {hf_packed_count(at->shape[0] * at->shape[1], 2), 1};
    if (!hf_packed_is_matrix(at) || !hf_packed_check(at, at->first, BYTES, 2, shape)) return false;
    const bool nested = hf_packed_look(at, "weight.nested_absmax") != NULL;
    const HfFound *state;
    json_t *json = read_state(at, &state);
    if (!json) return false;
    *out = (HfPacked){.widen = widen_blocks,
                      .slices = 1,
                      .rows = at->shape[0],
                      .columns = at->shape[1],
                      .parts = {at->first->info}};
    const bool fine = check_state(at, state, json, nested, out) && find_scales(at, nested, out);
    json_decref(json);
    if (fine) out->first = at->first;
    return fine;
}

/* --- 8 bits --- */

static void widen_rows(const HfPacked *packed, int64_t slice, float *out) {
    (void)slice;
    const int8_t *codes = packed->parts[CODES]->data;
    for (int64_t row = 0; row < packed->rows; row++) {
        const float scale = hf_packed_number(packed->parts[ABSMAX], row);
        for (int64_t i = 0; i < packed->columns; i++) {
            const float number = (float)*codes++ * scale;
            *out++ = number * 7.874015718698502e-3F; /* 1 / 127, to bitsandbytes' digits */
        }
    }
}

/* "row" is 0; other ways were for a GPU's instructions. */
static bool check_order(const HfPackedAt *at) {
    const HfFound *order = hf_packed_look(at, "weight_format");
    if (!order || (order->info->dtype == SAFETENSORS_U8 && order->info->n_bytes == 1 &&
                   *(const uint8_t *)order->info->data == 0)) {
        return true;
    }
    diag_error(at->diag, (SourceLoc){order->path, 0},
               "tensor '%s' is another than 0: only codes that lie row by row are supported",
               order->info->name);
    return false;
}

static bool find_rows(const HfPackedAt *at, HfPacked *out) {
    if (!hf_packed_is_matrix(at) || !hf_packed_check(at, at->first, SIGNED, 2, at->shape)) {
        return false;
    }
    const HfFound *scales = hf_packed_part(at, "SCB", FLOATS, 1, at->shape);
    if (!scales || !check_order(at)) return false;
    *out = (HfPacked){.first = at->first,
                      .widen = widen_rows,
                      .slices = 1,
                      .rows = at->shape[0],
                      .columns = at->shape[1],
                      .parts = {at->first->info, scales->info}};
    return true;
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const SafetensorsDtype dtype = at->first->info->dtype;
    const bool four = quantized->schemes[0].bits == 4;
    if (dtype != (four ? SAFETENSORS_U8 : SAFETENSORS_I8)) return true;
    return four ? find_blocks(at, out) : find_rows(at, out);
}

static const char *const ENDINGS[] = {"weight", NULL};
static const char *const LEFT_OUT[] = {NULL};

const HfMethod HF_BITSANDBYTES = {"bitsandbytes", read_config, ENDINGS, find, LEFT_OUT};
