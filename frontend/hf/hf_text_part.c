#include "frontend/hf/hf_text_part.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <string.h>

/* The defaults are Gemma3TextConfig's, which the published files of 4B say little beyond. Names
 * are those of transformers to 4.51, as published, and since. */
const HfTextPart HF_TEXT_PARTS[] = {
    {"gemma3",
     "gemma3_text",
     "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
     "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
     "\"max_position_embeddings\": 131072}",
     {"model.language_model.", NULL},
     {"language_model.", NULL},
     {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
      "model.multi_modal_projector.", NULL}},
    {"llama4",
     "llama4_text",
     "{}",
     {NULL},
     {"language_model.", NULL},
     {"vision_model.", "multi_modal_projector.", NULL}},
    {NULL, NULL, NULL, {NULL}, {NULL}, {NULL}}};

static const HfTextPart *find_part(const json_t *json) {
    const char *name = json_string_value(json_object_get(json, "model_type"));
    for (const HfTextPart *part = HF_TEXT_PARTS; name && part->type; part++) {
        if (strcmp(part->type, name) == 0) return part;
    }
    return NULL;
}

const char *hf_text_part_take(Arena *arena, json_t **json, const HfTextPart **out) {
    /* What the whole says for its parts. */
    static const char *const OF_ALL[] = {
        "quantization_config", "auto_map",      "bos_token_id", "eos_token_id", "pad_token_id",
        "tie_word_embeddings", "architectures", "problem_type", "id2label",     "num_labels"};
    const HfTextPart *part = *out = find_part(*json);
    if (!part) return NULL;
    json_t *given = json_object_get(*json, "text_config");
    if (!json_is_object(given)) {
        return arena_printf(arena, "'text_config' is %s; a %s has an object there",
                            given ? hf_config_shown(arena, given) : "missing", part->type);
    }
    const json_t *type = json_object_get(given, "model_type");
    const char *name = type ? json_string_value(type) : part->text_type;
    if (!name || strcmp(name, part->text_type) != 0) {
        return arena_printf(arena, "'text_config.model_type' is %s; a %s has \"%s\" there",
                            hf_config_shown(arena, type), part->type, part->text_type);
    }
    json_t *text = json_deep_copy(given), *defaults = json_loads(part->defaults, 0, NULL);
    if (!text || !defaults || json_object_update_missing(text, defaults) != 0 ||
        json_object_set_new(text, "model_type", json_string(part->text_type)) != 0) {
        BUG("out of memory");
    }
    for (size_t i = 0; i < sizeof(OF_ALL) / sizeof(OF_ALL[0]); i++) {
        json_t *value = json_object_get(*json, OF_ALL[i]);
        if (value && !json_object_get(text, OF_ALL[i])) json_object_set(text, OF_ALL[i], value);
    }
    json_decref(defaults);
    json_decref(*json);
    *json = text;
    return NULL;
}

const char *hf_text_part_name(Arena *arena, const HfTextPart *part, const char *prefix,
                              const char *name, int i) {
    const size_t length = strlen(prefix);
    const bool prefixed = strncmp(name, prefix, length) == 0;
    for (const char *const *with = part->replaced; prefixed && *with; with++) {
        if (i-- == 0) return arena_printf(arena, "%s%s", *with, name + length);
    }
    for (const char *const *with = part->in_front; *with; with++) {
        if (i-- == 0) return arena_printf(arena, "%s%s", *with, name);
    }
    return NULL;
}

bool hf_text_part_leaves(const HfTextPart *part, const char *name) {
    for (const char *const *with = part->left_out; *with; with++) {
        if (strncmp(name, *with, strlen(*with)) == 0) return true;
    }
    return false;
}
