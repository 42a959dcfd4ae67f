/* AWQ's files (Lin et al. 2023, arXiv 2306.00978; AutoAWQ), version gemm, 4 bits: in place of
 * NAME.weight [rows, columns], outputs and inputs, a file has
 *     NAME.qweight I32 [columns, rows / 8], NAME.qzeros I32 [groups, rows / 8],
 *     NAME.scales  [groups, rows],
 * eight codes of neighbouring outputs in a word, in the order 0 2 4 6 1 3 5 7. A number is (code -
 * zero) x scale.
 */
#include "frontend/hf/hf_config.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

enum { BITS = 4, IN_A_WORD = 8, WORDS = 1 << SAFETENSORS_I32 };

static const char *read_config(Arena *arena, const json_t *how, HfQuantized *out) {
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    const json_t *version = json_object_get(how, "version");
    const char *why, *name = json_string_value(version);
    int64_t bits;
    /* Older files have AutoAWQ's own names. */
    const char *key = json_object_get(how, "w_bit") ? "w_bit" : "bits";
    const char *size = json_object_get(how, "q_group_size") ? "q_group_size" : "group_size";
    if (!hf_quantized_integer(arena, how, key, BITS, 1, 32, &bits, &why) ||
        !hf_quantized_integer(arena, how, size, 128, -1, HF_MOST_GROUP, &scheme->group, &why)) {
        return why;
    }
    if (bits != BITS) return hf_quantized_unknown(arena, how, key, "4");
    if (scheme->group == 0) return hf_quantized_unknown(arena, how, size, "-1 or more than 0");
    if (version && (!name || strcasecmp(name, "gemm") != 0)) {
        return hf_quantized_unknown(arena, how, "version", "gemm");
    }
    if (json_is_false(json_object_get(how, "zero_point"))) {
        return hf_quantized_unknown(arena, how, "zero_point", "true");
    }
    return NULL;
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const HfScheme *scheme = &quantized->schemes[0];
    if (!hf_packed_is_matrix(at)) return false;
    const int64_t rows = at->shape[0], columns = at->shape[1];
    const int64_t group = scheme->group < 0 ? columns : scheme->group;
    const int64_t n_groups = hf_packed_count(columns, group);
    const int64_t codes_shape[2] = {columns, hf_packed_count(rows, IN_A_WORD)};
    const int64_t zeros_shape[2] = {n_groups, codes_shape[1]}, scales_shape[2] = {n_groups, rows};
    const HfFound *zeros, *scales;
    if (!hf_packed_check(at, at->first, WORDS, 2, codes_shape) ||
        !(zeros = hf_packed_part(at, "qzeros", WORDS, 2, zeros_shape)) ||
        !(scales = hf_packed_part(at, "scales", HF_ANY_SCALE, 2, scales_shape))) {
        return false;
    }
    *out = (HfPacked){.first = at->first,
                      .widen = hf_packed_widen,
                      .slices = 1,
                      .rows = rows,
                      .columns = columns,
                      .codes = {at->first->info, HF_WORDS_MIXED, BITS, .turned = true},
                      .zeros = {zeros->info, HF_WORDS_MIXED, BITS, .turned = true},
                      .scales = scales->info,
                      .scales_turned = true,
                      .n_groups = n_groups,
                      .block_rows = 1,
                      .block_columns = group,
                      .times = 1,
                      .by = 1};
    return true;
}

static const char *const ENDINGS[] = {"qweight", NULL};
static const char *const LEFT_OUT[] = {NULL};

const HfMethod HF_AWQ = {"awq", read_config, ENDINGS, find, LEFT_OUT};
