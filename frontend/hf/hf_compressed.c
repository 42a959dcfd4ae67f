/* compressed-tensors' files (llm-compressor): in place of NAME.weight [rows, columns] a file has,
 * by `format`, pack-quantized   NAME.weight_packed I32 [rows, columns x bits / 32] and
 * NAME.weight_shape, int-quantized    NAME.weight I8,     float-quantized  NAME.weight F8_E4M3,
 *     nvfp4-pack-quantized, mxfp4-pack-quantized  NAME.weight_packed U8 [rows, columns / 2],
 * and NAME.weight_scale: one, [rows, 1], [rows, groups], or one for each block; of nvfp4 F8_E4M3,
 * [rows, columns / 16], to be divided by NAME.weight_global_scale, of mxfp4 U8, a power of two for
 * each 32. Zero points, where they are no 0, are NAME.weight_zero_point: I8, or packed down the
 * rows. NAME.weight_g_idx, where it is no -1, has the group of each column. A number is (code -
 * zero) x scale, here in f32, whatever type the scale has.
 *
 * Where a configuration has several groups, a tensor is of the first that its parts fit: what they
 * then stand for is the same for any that they fit.
 */
#include "frontend/hf/hf_config.h"

#include <inttypes.h>
#include <string.h>

enum {
    SIGNED = 1 << SAFETENSORS_I8,
    WORDS = 1 << SAFETENSORS_I32,
    BYTES = 1 << SAFETENSORS_U8,
    FP8 = 1 << SAFETENSORS_F8_E4M3,
    FLOATS = 1 << SAFETENSORS_F32,
    SHAPES = 1 << SAFETENSORS_I64 | 1 << SAFETENSORS_I32
};

typedef struct Format {
    const char *name;
    bool is_float;
    int least_bits, most_bits;
    const char *ending;
    HfCode code;
    unsigned dtypes, scale_dtypes;
    int64_t group; /* the only one that it may have; 0: any */
    bool global;   /* scales are divided by one more */
} Format;

static const Format FORMATS[] = {
    {"pack-quantized", false, 1, 8, "weight_packed", HF_WORDS_ALONG, WORDS, HF_ANY_SCALE, 0, false},
    {"int-quantized", false, 1, 8, "weight", HF_CODE_INT8, SIGNED, HF_ANY_SCALE, 0, false},
    {"float-quantized", true, 8, 8, "weight", HF_CODE_FP8, FP8, HF_ANY_SCALE, 0, false},
    {"naive-quantized", false, 1, 8, "weight", HF_CODE_INT8, SIGNED, HF_ANY_SCALE, 0, false},
    {"naive-quantized", true, 8, 8, "weight", HF_CODE_FP8, FP8, HF_ANY_SCALE, 0, false},
    {"nvfp4-pack-quantized", true, 4, 4, "weight_packed", HF_CODE_E2M1, BYTES, FP8, 16, true},
    {"mxfp4-pack-quantized", true, 4, 4, "weight_packed", HF_CODE_E2M1, BYTES, BYTES, 32, false},
    {NULL, false, 0, 0, NULL, HF_CODE_NONE, 0, 0, 0, false}};

/* --- what the configuration says --- */

static const char *formats_shown(Arena *arena) {
    const char *names = "";
    for (const Format *f = FORMATS; f->name; f++) {
        if (f > FORMATS && strcmp(f[-1].name, f->name) == 0) continue;
        names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", f->name);
    }
    return names;
}

/* NULL: there is none. */
static const Format *find_format(const char *name, bool is_float) {
    const Format *f = FORMATS;
    while (f->name && (strcmp(f->name, name) != 0 || f->is_float != is_float)) f++;
    return f->name ? f : NULL;
}

static const Format *format_of(const HfScheme *scheme) {
    return find_format(scheme->format, scheme->is_float);
}

/* Where none is named, the size of groups says it. False: it is not known. */
static bool read_strategy(const json_t *weights, int64_t group, HfStrategy *out) {
    static const struct {
        const char *name;
        HfStrategy strategy;
    } NAMES[] = {{"tensor", HF_PER_TENSOR},
                 {"channel", HF_PER_ROW},
                 {"group", HF_PER_GROUP},
                 {"tensor_group", HF_PER_GROUP},
                 {"block", HF_PER_BLOCK}};
    const json_t *value = json_object_get(weights, "strategy");
    const char *name = json_string_value(value);
    *out = group > 0 ? HF_PER_GROUP : group < 0 ? HF_PER_ROW : HF_PER_TENSOR;
    if (!value || json_is_null(value)) return true;
    for (size_t i = 0; name && i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(NAMES[i].name, name) != 0) continue;
        *out = NAMES[i].strategy;
        return true;
    }
    return false;
}

static bool read_block(const json_t *weights, HfScheme *out) {
    const json_t *block = json_object_get(weights, "block_structure");
    out->block_rows = json_integer_value(json_array_get(block, 0));
    out->block_columns = json_integer_value(json_array_get(block, 1));
    return json_array_size(block) == 2 && out->block_rows > 0 && out->block_columns > 0 &&
           out->block_rows <= HF_MOST_BLOCK && out->block_columns <= HF_MOST_BLOCK;
}

static const char *read_sizes(Arena *arena, const char *where, const json_t *weights,
                              const Format *format, HfScheme *out) {
    const json_t *group = json_object_get(weights, "group_size");
    const json_int_t bits = json_integer_value(json_object_get(weights, "num_bits"));
    const bool numbers = !group || json_is_null(group) || json_is_integer(group);
    out->group = json_integer_value(group);
    if (bits < format->least_bits || bits > format->most_bits) {
        return arena_printf(arena, "%s.num_bits' must be from %d to %d for %s", where,
                            format->least_bits, format->most_bits, format->name);
    }
    out->bits = (int)bits;
    if (!read_strategy(weights, out->group, &out->strategy)) {
        return arena_printf(arena,
                            "%s.strategy' is %s, which is not supported; supported: tensor, "
                            "channel, group, tensor_group, block",
                            where, hf_config_shown(arena, json_object_get(weights, "strategy")));
    }
    if (out->strategy == HF_PER_BLOCK && !read_block(weights, out)) {
        return arena_printf(arena, "%s.block_structure' is no pair of sizes from 1 to %d", where,
                            HF_MOST_BLOCK);
    }
    const bool grouped = out->strategy == HF_PER_GROUP;
    if (!numbers || (grouped && (out->group < 1 || out->group > HF_MOST_GROUP)) ||
        (format->group && (!grouped || out->group != format->group))) {
        return arena_printf(arena, "%s.group_size' is %s, which %s does not allow", where,
                            group ? hf_config_shown(arena, group) : "missing", format->name);
    }
    return NULL;
}

static const char *read_group(Arena *arena, const char *name, const json_t *group,
                              const char *format_of_all, HfQuantized *out) {
    const json_t *weights = json_object_get(group, "weights");
    const json_t *own = json_object_get(group, "format");
    const char *format = json_is_string(own) ? json_string_value(own) : format_of_all;
    const char *where =
        arena_printf(arena, "'quantization_config.config_groups.%s", hf_quoted(arena, name));
    if (!weights || json_is_null(weights)) return NULL; /* of activations alone */
    const json_t *type = json_object_get(weights, "type");
    const char *word = json_is_string(type) ? json_string_value(type) : "int";
    const bool is_float = strcmp(word, "float") == 0;
    const Format *found = find_format(format, is_float);
    if (!found || (!is_float && strcmp(word, "int") != 0)) {
        return arena_printf(arena,
                            "%s' has weights of type %s in format %s, which is not "
                            "supported; supported: %s",
                            where, type ? hf_config_shown(arena, type) : "int",
                            hf_quoted(arena, format), formats_shown(arena));
    }
    if (out->n_schemes == HF_MOST_SCHEMES) {
        return arena_printf(arena, "'quantization_config.config_groups' has more than %d groups",
                            HF_MOST_SCHEMES);
    }
    HfScheme *scheme = &out->schemes[out->n_schemes++];
    scheme->format = found->name;
    scheme->is_float = is_float;
    scheme->asymmetric = json_is_false(json_object_get(weights, "symmetric"));
    if (scheme->asymmetric && found->code != HF_WORDS_ALONG && found->code != HF_CODE_INT8) {
        return arena_printf(arena, "%s.weights.symmetric' is false, which %s does not allow", where,
                            found->name);
    }
    return read_sizes(arena, arena_printf(arena, "%s.weights", where), weights, found, scheme);
}

/* Numbers that are left out for being 0, and matrices that turn others: neither is known here. */
static const char *check_rest(Arena *arena, const json_t *how) {
    const json_t *sparse = json_object_get(how, "sparsity_config");
    const json_t *turned = json_object_get(how, "transform_config");
    const json_t *turns = json_object_get(turned, "config_groups");
    const char *format = json_string_value(json_object_get(sparse, "format"));
    const bool empty = json_is_object(sparse) && json_object_size(sparse) == 0;
    if (sparse && !json_is_null(sparse) && !empty && (!format || strcmp(format, "dense") != 0)) {
        return hf_quantized_unknown(arena, how, "sparsity_config", "format dense");
    }
    const json_t *least = turns ? turns : turned;
    if (least && !json_is_null(least) && (!json_is_object(least) || json_object_size(least) > 0)) {
        return hf_quantized_unknown(arena, how, "transform_config", "{}");
    }
    return NULL;
}

static const char *read_config(Arena *arena, const json_t *how, HfQuantized *out) {
    const json_t *groups = json_object_get(how, "config_groups");
    const char *format = json_string_value(json_object_get(how, "format"));
    const char *name, *why = check_rest(arena, how);
    json_t *group;
    if (why) return why;
    if (!json_is_object(groups)) {
        return arena_printf(arena, "'quantization_config.config_groups' must be an object");
    }
    json_object_foreach((json_t *)groups, name, group) {
        why = read_group(arena, name, group, format ? format : "missing", out);
        if (why) return why;
    }
    return NULL;
}

/* --- what the files have --- */

/* The shape of scales, and of zero points that are not packed. */
static int scales_shape(const HfPackedAt *at, const HfScheme *scheme, int64_t *shape) {
    shape[0] = scheme->strategy == HF_PER_BLOCK ? hf_packed_count(at->shape[0], scheme->block_rows)
                                                : at->shape[0];
    shape[1] = 1;
    if (scheme->strategy == HF_PER_BLOCK) {
        shape[1] = hf_packed_count(at->shape[1], scheme->block_columns);
    }
    if (scheme->strategy == HF_PER_GROUP) shape[1] = at->shape[1] / scheme->group;
    if (scheme->strategy == HF_PER_TENSOR) shape[0] = 1;
    return scheme->strategy == HF_PER_TENSOR ? 1 : 2;
}

static void codes_shape(const HfPackedAt *at, const HfScheme *scheme, const Format *format,
                        int64_t *shape) {
    shape[0] = at->shape[0];
    shape[1] = format->code == HF_WORDS_ALONG ? hf_packed_words(at->shape[1], scheme->bits)
               : format->code == HF_CODE_E2M1 ? hf_packed_count(at->shape[1], 2)
                                              : at->shape[1];
}

static bool has_ending(const HfPackedAt *at, const char *ending) {
    return strcmp(at->first->info->name + strlen(at->stem), ending) == 0;
}

static bool fits(const HfPackedAt *at, const HfScheme *scheme) {
    const Format *format = format_of(scheme);
    const HfFound *scales =
        hf_files_find(at->files, arena_printf(at->arena, "%sweight_scale", at->stem));
    const HfFound *zeros =
        hf_files_find(at->files, arena_printf(at->arena, "%sweight_zero_point", at->stem));
    int64_t codes[2], shape[2];
    if (!has_ending(at, format->ending) || !scales) return false;
    codes_shape(at, scheme, format, codes);
    const int n_dims = scales_shape(at, scheme, shape);
    return hf_packed_has_shape(at->first, format->dtypes, 2, codes) &&
           (hf_packed_has_shape(scales, format->scale_dtypes, n_dims, shape) ||
            (n_dims == 1 && hf_packed_has_shape(scales, format->scale_dtypes, 0, NULL))) &&
           (zeros != NULL) == scheme->asymmetric;
}

/* NULL: there is none for what the tensor is, which was reported unless it is in no code at all. */
static const HfScheme *choose(const HfPackedAt *at, const HfQuantized *quantized) {
    for (int i = 0; i < quantized->n_schemes; i++) {
        if (fits(at, &quantized->schemes[i])) return &quantized->schemes[i];
    }
    for (int i = 0; i < quantized->n_schemes; i++) { /* whose parts are then named */
        const Format *format = format_of(&quantized->schemes[i]);
        if (has_ending(at, format->ending)) return &quantized->schemes[i];
    }
    diag_error(at->diag, (SourceLoc){at->first->path, 0},
               "tensor '%s' is of no format that 'quantization_config' has", at->first->info->name);
    return NULL;
}

static bool check_shape(const HfPackedAt *at) {
    const int64_t two = 2;
    const HfFound *shape = hf_packed_part(at, "weight_shape", SHAPES, 1, &two);
    if (!shape) return false;
    for (int i = 0; i < 2; i++) {
        int64_t side;
        int32_t low;
        const size_t bytes = safetensors_dtype_bytes(shape->info->dtype);
        const char *from = (const char *)shape->info->data + (size_t)i * bytes;
        memcpy(&side, from, bytes == sizeof(side) ? sizeof(side) : 0);
        memcpy(&low, from, sizeof(low));
        if ((bytes == sizeof(side) ? side : low) == at->shape[i]) continue;
        diag_error(at->diag, (SourceLoc){shape->path, 0},
                   "tensor '%s' is not [%" PRId64 ", %" PRId64 "], as the configuration says",
                   shape->info->name, at->shape[0], at->shape[1]);
        return false;
    }
    return true;
}

static bool find_zeros(const HfPackedAt *at, const HfScheme *scheme, HfPacked *out) {
    static const char NAME[] = "weight_zero_point";
    int64_t shape[2];
    const int n_dims = scales_shape(at, scheme, shape);
    const bool packed = out->codes.kind == HF_WORDS_ALONG;
    if (packed) out->zero = 1 << (scheme->bits - 1);
    if (!scheme->asymmetric) return true;
    if (packed && scheme->strategy != HF_PER_GROUP && scheme->strategy != HF_PER_ROW) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0},
                   "tensor '%s' has zero points, which are read of rows and groups alone",
                   at->first->info->name);
        return false;
    }
    if (packed) shape[0] = hf_packed_words(at->shape[0], scheme->bits);
    const HfFound *zeros = n_dims == 1
                               ? hf_packed_scalar(at, NAME, SIGNED)
                               : hf_packed_part(at, NAME, packed ? WORDS : SIGNED, 2, shape);
    if (!zeros) return false;
    out->zeros = packed ? (HfCodes){zeros->info, HF_WORDS_DOWN, scheme->bits, .turned = true}
                        : (HfCodes){zeros->info, HF_CODE_INT8, 0, .turned = false};
    return true;
}

/* -1: no groups of their own were made. */
static bool find_groups(const HfPackedAt *at, HfPacked *out) {
    const HfFound *found = hf_packed_look(at, "weight_g_idx");
    const int64_t columns = at->shape[1];
    bool none = found != NULL && found->info->n_bytes > 0;
    for (size_t i = 0; none && i < found->info->n_bytes; i++) {
        none = ((const uint8_t *)found->info->data)[i] == 255;
    }
    if (!found || (none && hf_packed_has_shape(found, WORDS, 1, &columns))) return true;
    out->group_of = found->info;
    return hf_packed_groups(at, found, columns, out->n_groups);
}

static bool find_parts(const HfPackedAt *at, const HfScheme *scheme, const Format *format,
                       HfPacked *out) {
    int64_t codes[2], shape[2];
    codes_shape(at, scheme, format, codes);
    const int n_dims = scales_shape(at, scheme, shape);
    if (scheme->strategy == HF_PER_GROUP && at->shape[1] % scheme->group != 0) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0},
                   "tensor '%s': %" PRId64 " columns are no whole groups of %" PRId64,
                   at->first->info->name, at->shape[1], scheme->group);
        return false;
    }
    if (!hf_packed_check(at, at->first, format->dtypes, 2, codes)) return false;
    const HfFound *scales =
        n_dims == 1 ? hf_packed_scalar(at, "weight_scale", format->scale_dtypes)
                    : hf_packed_part(at, "weight_scale", format->scale_dtypes, 2, shape);
    const HfFound *global =
        scales && format->global ? hf_packed_scalar(at, "weight_global_scale", FLOATS) : NULL;
    if (!scales || (format->global && !global)) return false;
    const bool rows = scheme->strategy != HF_PER_TENSOR && scheme->strategy != HF_PER_BLOCK;
    *out =
        (HfPacked){.widen = hf_packed_widen,
                   .slices = 1,
                   .rows = at->shape[0],
                   .columns = at->shape[1],
                   .codes = {.info = at->first->info, .kind = format->code, .bits = scheme->bits},
                   .scales = scales->info,
                   .n_groups = n_dims == 1 ? 1 : shape[1],
                   .block_rows = rows                               ? 1
                                 : scheme->strategy == HF_PER_BLOCK ? scheme->block_rows
                                                                    : at->shape[0],
                   .block_columns = scheme->strategy == HF_PER_BLOCK   ? scheme->block_columns
                                    : scheme->strategy == HF_PER_GROUP ? scheme->group
                                                                       : at->shape[1],
                   .times = 1,
                   .by = global ? hf_packed_number(global->info, 0) : 1};
    return find_zeros(at, scheme, out) && find_groups(at, out) &&
           (format->code != HF_WORDS_ALONG || check_shape(at));
}

static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    const SafetensorsDtype dtype = at->first->info->dtype;
    const bool codes = dtype == SAFETENSORS_I8 || dtype == SAFETENSORS_U8 ||
                       dtype == SAFETENSORS_I32 || dtype == SAFETENSORS_F8_E4M3;
    HfPacked packed;
    if (!codes) return true;
    if (!hf_packed_is_matrix(at)) return false;
    const HfScheme *scheme = choose(at, quantized);
    if (!scheme || !find_parts(at, scheme, format_of(scheme), &packed)) return false;
    *out = packed;
    out->first = at->first;
    return true;
}

static const char *const ENDINGS[] = {"weight_packed", "weight", NULL};
static const char *const LEFT_OUT[] = {".input_scale",  ".input_zero_point", ".input_global_scale",
                                       ".input_g_idx",  ".output_scale",     ".output_zero_point",
                                       ".q_scale",      ".k_scale",          ".v_scale",
                                       ".k_zero_point", ".v_zero_point",     NULL};

const HfMethod HF_COMPRESSED = {"compressed-tensors", read_config, ENDINGS, find, LEFT_OUT};
