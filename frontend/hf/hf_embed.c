#include "frontend/hf/hf_embed.h"

#include "frontend/hf/hf_export.h"
#include "frontend/hf/hf_rows.h"
#include "ir/base/file.h"
#include "ir/base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMIT_BYTES = 1 << 20 };

/* --- what a model is --- */

static const char *text_of(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    return setting && setting->has_value && setting->type == SETTING_STRING ? setting->text : NULL;
}

static int64_t integer_of(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    return setting && setting->has_value && setting->type == SETTING_INTEGER ? setting->integer : 0;
}

const char *hf_embed_pooling(const Model *model) {
    const char *pooling = text_of(model, "embedding");
    return pooling && strcmp(pooling, "none") != 0 ? pooling : NULL;
}

const char *hf_embed_architecture(Arena *arena, const HfType *type) {
    const char *end = strstr(type->architecture, "For");
    const size_t length = end ? (size_t)(end - type->architecture) : strlen(type->architecture);
    return arena_printf(arena, "%.*sModel", (int)length, type->architecture);
}

const char *hf_embed_tensor_name(const Model *model, const HfFamily *family, const char *theirs) {
    return hf_embed_pooling(model) ? theirs + hf_family_prefix(family, theirs) : theirs;
}

bool hf_embed_leaves_out(const Model *model, const char *parameter) {
    static const char *const OUTPUTS[] = {"head", "head.w",    "head.b",
                                          "bias", "ln_h.gain", "ln_h.bias"};
    bool of_output = false;
    for (size_t i = 0; i < sizeof(OUTPUTS) / sizeof(OUTPUTS[0]); i++) {
        of_output |= strcmp(OUTPUTS[i], parameter) == 0;
    }
    return of_output && hf_embed_pooling(model);
}

int hf_embed_exported(Arena *arena, const Model *model, ModelSetting *out) {
    const int64_t positions = integer_of(model, "positions");
    if (!hf_embed_pooling(model) || positions == 0) return 0;
    const ModelSetting all[] = {{"seq", arena_printf(arena, "%" PRId64, positions)},
                                {"positions", "0"},
                                {"embed_group", "1"},
                                {"embed_negatives", "0"}};
    memcpy(out, all, sizeof(all));
    return (int)(sizeof(all) / sizeof(all[0]));
}

/* The most tokens of a text. */
static int64_t length_of(const Model *model) {
    const int64_t length = integer_of(model, "embed_length");
    return length > 0 && length < model->seq ? length : model->seq;
}

/* --- reading --- */

static json_t *read_json(Arena *arena, const char *path, Diag *diag) {
    size_t length;
    const char *text = file_read(arena, path, LIMIT_BYTES, &length, diag);
    return text ? json_parse_bytes(path, text, length, diag) : NULL;
}

static const char *last_part(const char *type) {
    const char *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

/* NULL: none that is known here. */
static const char *pooling_of(const json_t *json) {
    static const char *const NAMES[][2] = {{"pooling_mode_mean_tokens", "mean"},
                                           {"pooling_mode_cls_token", "cls"},
                                           {"pooling_mode_lasttoken", "last"}};
    static const char *const OTHERS[] = {"pooling_mode_max_tokens",
                                         "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    const char *mode = json_string_value(json_object_get(json, "pooling_mode"));
    const char *found = NULL;
    int n = 0;
    if (mode) {
        return strcmp(mode, "mean") == 0        ? "mean"
               : strcmp(mode, "cls") == 0       ? "cls"
               : strcmp(mode, "lasttoken") == 0 ? "last"
                                                : NULL;
    }
    for (int i = 0; i < 3; i++) {
        if (!json_is_true(json_object_get(json, NAMES[i][0]))) continue;
        found = NAMES[i][1];
        n++;
    }
    for (int i = 0; i < 3; i++) n += json_is_true(json_object_get(json, OTHERS[i]));
    return n == 1 ? found : NULL;
}

/* The module that makes one vector of all; false: another than are known. */
static bool read_modules(Arena *arena, const char *dir, const char *path, const json_t *modules,
                         const char **out_pooling, Diag *diag) {
    const json_t *module;
    size_t i;
    *out_pooling = NULL;
    json_array_foreach(modules, i, module) {
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *at = json_string_value(json_object_get(module, "path"));
        const char *name = type ? last_part(type) : "?";
        if (strcmp(name, "Transformer") == 0 || strcmp(name, "Normalize") == 0) continue;
        if (strcmp(name, "Pooling") != 0) {
            diag_error(diag, (SourceLoc){path, 0},
                       "has a module '%.60s', which is not supported; Transformer, Pooling and "
                       "Normalize are",
                       name);
            return false;
        }
        const char *config = arena_printf(arena, "%s/%.200s/config.json", dir, at ? at : "");
        json_t *json = read_json(arena, config, diag);
        if (!json) return false;
        *out_pooling = pooling_of(json);
        const bool leaves_out = json_is_false(json_object_get(json, "include_prompt"));
        json_decref(json);
        if (*out_pooling && leaves_out) {
            diag_error(diag, (SourceLoc){config, 0},
                       "leaves prompts out of vectors (include_prompt is false), which is not "
                       "supported");
            return false;
        }
        if (*out_pooling) continue;
        diag_error(diag, (SourceLoc){config, 0},
                   "says no pooling that is supported; mean, cls and lasttoken are, by themselves");
        return false;
    }
    if (*out_pooling) return true;
    diag_error(diag, (SourceLoc){path, 0}, "has no module Pooling, which makes vectors");
    return false;
}

static bool read_length(Arena *arena, const char *dir, ModelSetting *out, int *count, Diag *diag) {
    const char *path = arena_printf(arena, "%s/sentence_bert_config.json", dir);
    if (access(path, F_OK) != 0) return true;
    json_t *json = read_json(arena, path, diag);
    if (!json) return false;
    const json_t *length = json_object_get(json, "max_seq_length");
    const double value = json_number_value(length); /* "as many as there are" is 1e30 */
    if (value >= 1 && value <= INT32_MAX) {
        out[(*count)++] = (ModelSetting){"embed_length", arena_printf(arena, "%.0f", floor(value))};
    }
    json_decref(json);
    return true;
}

bool hf_embed_read(Arena *arena, const char *dir, const HfFamily *family, ModelSetting *out,
                   int *out_count, Diag *diag) {
    const char *path = arena_printf(arena, "%s/modules.json", dir), *pooling;
    static const char *const SCRIPTS[] = {"bert", "modernbert", "llama"};
    bool makes = false;
    *out_count = 0;
    for (int i = 0; i < 3; i++) makes |= strcmp(family->script, SCRIPTS[i]) == 0;
    if (!makes || access(path, F_OK) != 0) return true;
    json_t *modules = read_json(arena, path, diag);
    if (!modules) return false;
    bool good = read_modules(arena, dir, path, modules, &pooling, diag);
    json_decref(modules);
    if (!good) return false;
    out[(*out_count)++] = (ModelSetting){"embedding", pooling};
    return read_length(arena, dir, out, out_count, diag);
}

/* --- writing --- */

static bool write_module(Arena *arena, const char *dir, const char *name, json_t *config,
                         Diag *diag) {
    const char *folder = arena_printf(arena, "%s/%s", dir, name);
    if (!config) BUG("out of memory");
    bool good = mkdir(folder, 0777) == 0;
    if (!good) diag_error(diag, (SourceLoc){folder, 0}, "cannot be made: %s", strerror(errno));
    good = good && hf_write_json(arena, folder, "config.json", config, diag);
    json_decref(config);
    return good;
}

static bool write_file(Arena *arena, const char *dir, const char *name, json_t *json, Diag *diag) {
    if (!json) BUG("out of memory");
    bool good = hf_write_json(arena, dir, name, json, diag);
    json_decref(json);
    return good;
}

/* What sentence-transformers puts before texts is no part of a model: it stays as `like` has it. */
static bool write_prompts(Arena *arena, const char *dir, const char *like, Diag *diag) {
    static const char NAME[] = "config_sentence_transformers.json";
    const char *path = like ? arena_printf(arena, "%s/%s", like, NAME) : NULL;
    json_t *theirs = NULL;
    if (path && access(path, F_OK) == 0 && !(theirs = read_json(arena, path, diag))) return false;
    json_t *config = json_pack("{s:{}, s:n, s:s}", "prompts", "default_prompt_name",
                               "similarity_fn_name", "cosine");
    json_t *prompts = json_object_get(theirs, "prompts");
    json_t *first = json_object_get(theirs, "default_prompt_name");
    if (config && json_is_object(prompts)) json_object_set(config, "prompts", prompts);
    if (config && json_is_string(first)) json_object_set(config, "default_prompt_name", first);
    json_decref(theirs);
    return write_file(arena, dir, NAME, config, diag);
}

/* By names that sentence-transformers has had from its beginning. */
bool hf_embed_write(Arena *arena, const Model *model, const char *dir, const char *like,
                    Diag *diag) {
    const char *pooling = hf_embed_pooling(model);
    const Setting *width = settings_find(&model->settings, "model");
    static const char MODULES[] =
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": "
        "\"sentence_transformers.models.Transformer\"}, {\"idx\": 1, \"name\": \"1\", \"path\": "
        "\"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}, {\"idx\": 2, "
        "\"name\": \"2\", \"path\": \"2_Normalize\", \"type\": "
        "\"sentence_transformers.models.Normalize\"}]";
    json_t *config = json_pack(
        "{s:I, s:b, s:b, s:b, s:b, s:b, s:b}", "word_embedding_dimension",
        (json_int_t)(width ? width->integer : 0), "pooling_mode_cls_token",
        strcmp(pooling, "cls") == 0, "pooling_mode_mean_tokens", strcmp(pooling, "mean") == 0,
        "pooling_mode_lasttoken", strcmp(pooling, "last") == 0, "pooling_mode_max_tokens", 0,
        "pooling_mode_mean_sqrt_len_tokens", 0, "pooling_mode_weightedmean_tokens", 0);
    return write_module(arena, dir, "1_Pooling", config, diag) &&
           write_module(arena, dir, "2_Normalize", json_object(), diag) &&
           write_file(arena, dir, "modules.json", json_loads(MODULES, 0, NULL), diag) &&
           write_file(arena, dir, "sentence_bert_config.json",
                      json_pack("{s:I, s:b}", "max_seq_length", (json_int_t)length_of(model),
                                "do_lower_case", 0),
                      diag) &&
           write_prompts(arena, dir, like, diag);
}
