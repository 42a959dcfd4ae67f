/* GPTQ's files (Frantar et al. 2022, arXiv 2210.17323; AutoGPTQ, GPTQModel): in place of
 * NAME.weight [rows, columns], outputs and inputs, a file has, for b bits and groups of inputs,
 *     NAME.qweight I32 [columns x b / 32, rows], codes of a row from above to below,
 *     NAME.qzeros  I32 [groups, rows x b / 32], zero points of a group along the rows,
 *     NAME.scales  [groups, rows],
 *     NAME.g_idx   I32 [columns], the group of each input (without: in order),
 * and a number is (code - zero) x scale. Zero points are kept less one, within the b bits, unless
 * checkpoint_format is gptq_v2. A NAME.bias of zeros that the model has not, as older versions
 * wrote it, is left out.
 */
#include "frontend/hf/hf_config.h"

#include <string.h>

enum { MOST_BITS = 8, WORDS = 1 << SAFETENSORS_I32 };

static bool is_word(const json_t *how, const char *key, const char *word) {
    const json_t *value = json_object_get(how, key);
    const char *text = json_string_value(value);
    return !value || json_is_null(value) || (text && strcmp(text, word) == 0);
}

/* Rules for single modules: only those that leave some as they were, "-:name". */
static bool leaves_only(const json_t *rules) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)rules, name, value) {
        if (strncmp(name, "-:", 2) != 0) return false;
    }
    return !rules || json_is_null(rules) || json_is_object(rules);
}

static const char *read_config(Arena *arena, const json_t *how, HfQuantized *out) {
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    const char *why;
    int64_t bits;
    if (!hf_quantized_integer(arena, how, "bits", 0, 2, MOST_BITS, &bits, &why) ||
        !hf_quantized_integer(arena, how, "group_size", -1, -1, HF_MOST_GROUP, &scheme->group,
                              &why)) {
        return why;
    }
    scheme->bits = (int)bits;
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
        return hf_quantized_unknown(arena, how, "bits", "2, 3, 4, 8");
    }
    if (scheme->group == 0)
        return hf_quantized_unknown(arena, how, "group_size", "-1 or more than 0");
    scheme->less_one = is_word(how, "checkpoint_format", "gptq");
    if (!scheme->less_one && !is_word(how, "checkpoint_format", "gptq_v2")) {
        return hf_quantized_unknown(arena, how, "checkpoint_format", "gptq, gptq_v2");
    }
    if (json_is_true(json_object_get(how, "is_marlin_format"))) {
        return hf_quantized_unknown(arena, how, "is_marlin_format", "false");
    }
    if (!is_word(how, "pack_dtype", "int32")) {
        return hf_quantized_unknown(arena, how, "pack_dtype", "int32");
    }
    if (leaves_only(json_object_get(how, "dynamic"))) return NULL;
    return hf_quantized_unknown(arena, how, "dynamic", "rules \"-:...\", of what is not quantized");
}

/* Zeros that stand for no bias at all; a model that has one reads it. */
static void leave_zeros(const HfPackedAt *at) {
    HfFound *bias = hf_files_find(at->files, arena_printf(at->arena, "%sbias", at->stem));
    const uint8_t *bytes = bias ? bias->info->data : NULL;
    for (size_t i = 0; bias && i < bias->info->n_bytes; i++) {
        if (bytes[i]) return;
    }
    if (bias) bias->used = true;
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const HfScheme *scheme = &quantized->schemes[0];
    if (!hf_packed_is_matrix(at)) return false;
    const int64_t rows = at->shape[0], columns = at->shape[1];
    const int64_t group = scheme->group < 0 ? columns : scheme->group;
    const int64_t n_groups = hf_packed_count(columns, group);
    const int64_t codes_shape[2] = {hf_packed_words(columns, scheme->bits), rows};
    const int64_t zeros_shape[2] = {n_groups, hf_packed_words(rows, scheme->bits)};
    const int64_t scales_shape[2] = {n_groups, rows};
    const HfFound *zeros, *scales, *groups = hf_packed_look(at, "g_idx");
    if (!hf_packed_check(at, at->first, WORDS, 2, codes_shape) ||
        !(zeros = hf_packed_part(at, "qzeros", WORDS, 2, zeros_shape)) ||
        !(scales = hf_packed_part(at, "scales", HF_ANY_SCALE, 2, scales_shape)) ||
        (groups && !hf_packed_groups(at, groups, columns, n_groups))) {
        return false;
    }
    leave_zeros(at);
    *out =
        (HfPacked){.first = at->first,
                   .widen = hf_packed_widen,
                   .slices = 1,
                   .rows = rows,
                   .columns = columns,
                   .codes = {.info = at->first->info, .kind = HF_WORDS_DOWN, .bits = scheme->bits},
                   .zeros = {zeros->info, HF_WORDS_ALONG, scheme->bits, .turned = true},
                   .zero_more = scheme->less_one,
                   .scales = scales->info,
                   .scales_turned = true,
                   .n_groups = n_groups,
                   .block_rows = 1,
                   .block_columns = group,
                   .group_of = groups ? groups->info : NULL,
                   .times = 1,
                   .by = 1};
    return true;
}

static const char *const ENDINGS[] = {"qweight", NULL};
static const char *const LEFT_OUT[] = {NULL};

const HfMethod HF_GPTQ = {"gptq", read_config, ENDINGS, find, LEFT_OUT};
