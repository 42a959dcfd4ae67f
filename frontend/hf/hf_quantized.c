#include "frontend/hf/hf_quantized.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { BESIDE_LIMIT_BYTES = 4 << 20 };

static const HfMethod *const METHODS[] = {&HF_AWQ,        &HF_BITSANDBYTES, &HF_COMPRESSED,
                                          &HF_FBGEMM_FP8, &HF_FP8,          &HF_GPTQ,
                                          &HF_MODELOPT,   &HF_MXFP4,        NULL};

bool hf_quantized_integer(Arena *arena, const json_t *how, const char *key, int64_t absent,
                          int64_t least, int64_t most, int64_t *out, const char **out_why) {
    const json_t *value = json_object_get(how, key);
    *out = value && !json_is_null(value) ? json_integer_value(value) : absent;
    const bool whole = !value || json_is_null(value) || json_is_integer(value);
    if (whole && *out >= least && *out <= most) return true;
    *out_why = arena_printf(arena,
                            "'quantization_config.%s' is %s; it must be a whole number from "
                            "%" PRId64 " to %" PRId64,
                            key, value ? hf_config_shown(arena, value) : "missing", least, most);
    return false;
}

const char *hf_quantized_unknown(Arena *arena, const json_t *how, const char *key,
                                 const char *supported) {
    const json_t *value = json_object_get(how, key);
    return arena_printf(arena,
                        "'quantization_config.%s' is %s, which is not supported; supported: %s",
                        key, value ? hf_config_shown(arena, value) : "missing", supported);
}

const char *hf_quantized_take(Arena *arena, json_t *config, HfQuantized *out) {
    const json_t *how = json_object_get(config, "quantization_config");
    const char *name = json_string_value(json_object_get(how, "quant_method")), *names = "";
    *out = (HfQuantized){.method = NULL};
    if (!name) return NULL;
    for (const HfMethod *const *method = METHODS; *method; method++) {
        names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", (*method)->name);
        if (strcmp((*method)->name, name) != 0) continue;
        out->method = *method;
        const char *why = (*method)->read(arena, how, out);
        if (!why) json_object_del(config, "quantization_config");
        return why;
    }
    return hf_quantized_unknown(arena, how, "quant_method", names);
}

bool hf_quantized_beside(Arena *arena, const char *dir, json_t *config, Diag *diag) {
    const char *path = arena_printf(arena, "%s/hf_quant_config.json", dir);
    const json_t *has = json_object_get(config, "quantization_config");
    if ((has && !json_is_null(has)) || access(path, F_OK) != 0) return true;
    json_t *json = json_parse_file(path, BESIDE_LIMIT_BYTES, diag);
    if (!json) return false;
    json_t *how = json_object_get(json, "quantization");
    const bool fine = json_is_object(how);
    if (fine) {
        json_object_set_new(how, "quant_method", json_string(HF_MODELOPT.name));
        json_object_set(config, "quantization_config", how);
    } else {
        diag_error(diag, (SourceLoc){path, 0}, "has no object 'quantization'");
    }
    json_decref(json);
    return fine;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

const char *hf_quantized_name(Arena *arena, const char *theirs, const char *ending) {
    static const char WEIGHT[] = ".weight";
    if (ending[0] == '+') return arena_printf(arena, "%s%s", theirs, ending + 1);
    if (!ends_with(theirs, WEIGHT)) return NULL;
    return arena_printf(arena, "%.*s.%s", (int)(strlen(theirs) - strlen(WEIGHT)), theirs, ending);
}

bool hf_quantized_leaves(const HfQuantized *quantized, const char *name) {
    if (!quantized->method) return false;
    for (const char *const *end = quantized->method->left_out; *end; end++) {
        if (ends_with(name, *end)) return true;
    }
    return false;
}
