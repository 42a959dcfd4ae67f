#include "frontend/hf/hf_text_part.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <string.h>

/* clang-format off */
#define PIXTRAL_NAMES                                                                              \
    {"model.language_model.", NULL}, {"language_model.", NULL},                                    \
    {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",                             \
     "model.multi_modal_projector.", NULL}
#define QWEN_3_5                                                                                   \
    "{}", {"model.language_model.", NULL}, {NULL}, {"model.visual.", "visual.", NULL}
/* clang-format on */

/* The defaults of gemma3 are Gemma3TextConfig's, which the published files of 4B say little beyond.
 * Names are those of transformers to 4.51, as published, and since. */
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
    {"mistral3", "mistral", "{}", PIXTRAL_NAMES},
    {"mistral3", "ministral3", "{}", PIXTRAL_NAMES},
    {"qwen3_5", "qwen3_5_text", QWEN_3_5},
    {"qwen3_5_moe", "qwen3_5_moe_text", QWEN_3_5},
    {NULL, NULL, NULL, {NULL}, {NULL}, {NULL}}};

static const HfTextPart *find_part(const json_t *json) {
    const char *name = json_string_value(json_object_get(json, "model_type"));
    for (const HfTextPart *part = HF_TEXT_PARTS; name && part->type; part++) {
        if (strcmp(part->type, name) == 0) return part;
    }
    return NULL;
}

/* Of a type's rows that of the text part's type; NULL: there is none. */
static const HfTextPart *find_text_type(const HfTextPart *first, const char *name) {
    for (const HfTextPart *part = first; name && part->type; part++) {
        if (strcmp(part->type, first->type) != 0) break;
        if (strcmp(part->text_type, name) == 0) return part;
    }
    return NULL;
}

static const char *text_types(Arena *arena, const HfTextPart *first) {
    const char *names = "";
    for (const HfTextPart *part = first; part->type; part++) {
        if (strcmp(part->type, first->type) != 0) break;
        names =
            arena_printf(arena, "%s%s\"%s\"", names, part == first ? "" : " or ", part->text_type);
    }
    return names;
}

const char *hf_text_part_take(Arena *arena, json_t **json, const HfTextPart **out) {
    /* What the whole says for its parts. */
    static const char *const OF_ALL[] = {
        "quantization_config", "auto_map",      "bos_token_id", "eos_token_id", "pad_token_id",
        "tie_word_embeddings", "architectures", "problem_type", "id2label",     "num_labels"};
    const HfTextPart *first = find_part(*json), *part = *out = first;
    if (!part) return NULL;
    json_t *given = json_object_get(*json, "text_config");
    if (!json_is_object(given)) {
        return arena_printf(arena, "'text_config' is %s; a %s has an object there",
                            given ? hf_config_shown(arena, given) : "missing", part->type);
    }
    const json_t *type = json_object_get(given, "model_type");
    if (type) part = *out = find_text_type(first, json_string_value(type));
    if (!part) {
        return arena_printf(arena, "'text_config.model_type' is %s; a %s has %s there",
                            hf_config_shown(arena, type), first->type, text_types(arena, first));
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

const char *hf_text_part_name(Arena *arena, const HfTextPart *part, const char *name, int i) {
    static const char PREFIX[] = "model.";
    const size_t length = strlen(PREFIX);
    const bool prefixed = strncmp(name, PREFIX, length) == 0;
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
