#include "frontend/hf/hf_classes.h"

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_embed.h"
#include "frontend/hf/hf_rows.h"
#include "ir/base/diag.h"
#include "ir/class_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char SUFFIX[] = "ForSequenceClassification", SINGLE[] = "single_label_classification",
                  SETS[] = "multi_label_classification", NUMBERS[] = "regression";
enum { MOST_LIST_BYTES = 8000 }; /* of all names: a plan keeps its model's settings */

/* --- reading --- */

static const char *architecture_of(const json_t *json) {
    const json_t *list = json_object_get(json, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    return name ? name : "";
}

static bool tells_classes(const json_t *json) {
    const char *name = architecture_of(json);
    const size_t length = strlen(name), end = strlen(SUFFIX);
    return length >= end && strcmp(name + length - end, SUFFIX) == 0;
}

typedef struct Label {
    char text[24];
} Label;

static Label label_of(const char *format, int i) {
    Label label;
    snprintf(label.text, sizeof(label.text), format, i);
    return label;
}

static const json_t *find_label(const json_t *labels, int i) {
    return json_object_get(labels, label_of("%d", i).text);
}

/* transformers' own name of a class, or its number? */
static bool is_plain(const json_t *label, int i) {
    const char *text = json_string_value(label);
    return text && (strcmp(text, label_of("LABEL_%d", i).text) == 0 ||
                    strcmp(text, label_of("%d", i).text) == 0);
}

/* How many labels: NULL, or what is wrong. Nothing said, there are two. */
static const char *count_labels(Arena *arena, const json_t *json, int *out_count) {
    const json_t *labels = json_object_get(json, "id2label");
    const json_t *said = json_object_get(json, "num_labels");
    const bool has_labels = labels && !json_is_null(labels);
    const int64_t count = json_is_integer(said) ? (int64_t)json_integer_value(said) : -1;
    if (said && !json_is_null(said) && (count < 1 || count > CLASS_MOST)) {
        return arena_printf(arena, "'num_labels' is %s; it must be a whole number from 1 to %d",
                            hf_config_shown(arena, said), CLASS_MOST);
    }
    if (has_labels && !json_is_object(labels)) {
        return arena_printf(arena, "'id2label' is %s; it must be an object",
                            hf_config_shown(arena, labels));
    }
    const size_t n = has_labels ? json_object_size(labels) : count < 0 ? 2 : (size_t)count;
    if (n < 1 || n > CLASS_MOST) {
        return arena_printf(arena, "'id2label' has %zu labels; there can be from 1 to %d", n,
                            CLASS_MOST);
    }
    if (count >= 0 && n != (size_t)count) {
        return arena_printf(arena, "'num_labels' is %" PRId64 ", and 'id2label' has %zu", count, n);
    }
    for (int i = 0; has_labels && i < (int)n; i++) {
        if (find_label(labels, i)) continue;
        return arena_printf(arena, "'id2label' has %zu labels, and none of number %d", n, i);
    }
    *out_count = (int)n;
    return NULL;
}

/* The label that cannot be a name, the first of them; NULL: all can, and *out_list is of all. */
static const json_t *join_names(Arena *arena, const json_t *labels, int n, const char **out_list) {
    StrBuf list = strbuf_create();
    const json_t *wrong = NULL;
    for (int i = 0; i < n && !wrong; i++) {
        const json_t *label = find_label(labels, i);
        const char *name = json_string_value(label);
        /* Two, as a list of classes has: this one, and another that it is not. */
        const char *pair =
            name ? arena_printf(arena, "%s,%c", name, name[0] == 'x' ? 'y' : 'x') : "";
        bool fine = name && class_names_count(pair) == 2 &&
                    strcmp(class_names_at(pair, 0).text, name) == 0 &&
                    class_names_find(list.text ? list.text : "", name, strlen(name)) < 0 &&
                    list.length + strlen(name) < MOST_LIST_BYTES;
        if (!fine) wrong = label;
        if (fine) strbuf_printf(&list, "%s%s", i ? "," : "", name);
    }
    *out_list = wrong ? NULL : arena_strndup(arena, list.text, list.length);
    strbuf_destroy(&list);
    return wrong;
}

static void read_names(Arena *arena, const json_t *labels, int n, HfClasses *out) {
    bool plain = true;
    for (int i = 0; labels && i < n; i++) plain = plain && is_plain(find_label(labels, i), i);
    out->setting = (ModelSetting){"classes", arena_printf(arena, "%d", n)};
    if (plain) return;
    const char *list;
    const json_t *wrong = join_names(arena, labels, n, &list);
    if (wrong) {
        out->unnamed = hf_config_shown(arena, wrong);
    } else {
        out->setting.value = list;
    }
}

bool hf_classes_of_encoder(const HfFamily *family) {
    return family == &HF_BERT || family == &HF_MODERNBERT;
}

const char *hf_classes_read(Arena *arena, const json_t *json, const HfFamily *family,
                            const HfType *type, HfClasses *out) {
    const json_t *problem = json_object_get(json, "problem_type");
    const json_t *labels = json_object_get(json, "id2label");
    const char *kind = json_string_value(problem);
    int n = 0;
    *out = (HfClasses){.unnamed = NULL};
    if (!tells_classes(json)) return NULL;
    if (!type->classifier) {
        return arena_printf(
            arena,
            "'architectures' has %s, which is not supported: a %s says "
            "tokens, and no classes of texts",
            hf_config_shown(arena, json_array_get(json_object_get(json, "architectures"), 0)),
            type->name);
    }
    const bool none = !problem || json_is_null(problem);
    if (!none && (!kind || (strcmp(kind, SINGLE) != 0 && strcmp(kind, SETS) != 0 &&
                            strcmp(kind, NUMBERS) != 0))) {
        return arena_printf(arena, "'problem_type' is %s; it can be \"%s\", \"%s\" or \"%s\"",
                            hf_config_shown(arena, problem), SINGLE, SETS, NUMBERS);
    }
    const char *why = count_labels(arena, json, &n);
    if (why) return why;
    const bool numbers =
        kind ? strcmp(kind, NUMBERS) == 0 : n == 1 && hf_classes_of_encoder(family);
    const bool sets = kind && strcmp(kind, SETS) == 0;
    if (n == 1 && !numbers && kind) {
        return arena_printf(arena, "'problem_type' is \"%s\", and there is one label", kind);
    }
    if (n == 1 && !numbers) { /* of decoders: how good an answer is */
        out->setting = (ModelSetting){"preference", "reward"};
        return NULL;
    }
    read_names(arena, json_is_object(labels) ? labels : NULL, n, out);
    if (numbers || sets) out->kind = (ModelSetting){"class_kind", numbers ? "mse" : "sets"};
    return NULL;
}

/* --- what a model is --- */

static const char *text_of(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    bool is_text = setting && setting->has_value && setting->type == SETTING_STRING;
    return is_text ? setting->text : "none";
}

static ClassLabels labels_of(const Model *model) {
    const char *kind = text_of(model, "class_kind");
    if (strcmp(kind, "mse") == 0 || strcmp(kind, "mae") == 0 || strcmp(kind, "huber") == 0) {
        return CLASS_NUMBERS;
    }
    return strcmp(kind, "sets") == 0 ? CLASS_SETS : CLASS_ONE;
}

int hf_classes_count(const Model *model) {
    const char *names = text_of(model, "classes");
    const int n = strcmp(names, "none") == 0 ? 0 : class_names_count_of(names, labels_of(model));
    return n == 0 && strcmp(text_of(model, "preference"), "reward") == 0 ? 1 : n;
}

const char *hf_classes_architecture(const HfType *type, const Model *model) {
    if (hf_embed_pooling(model)) return hf_embed_architecture(model->graph->arena, type);
    return hf_classes_count(model) && type->classifier ? type->classifier : type->architecture;
}

bool hf_classes_lacks(const Model *model, const char *setting) {
    static const char *const OF_OUTPUTS[] = {"tied", "head_bias", "transform", "logit_divisor"};
    bool of_output = false;
    for (size_t i = 0; i < sizeof(OF_OUTPUTS) / sizeof(OF_OUTPUTS[0]); i++)
        of_output |= strcmp(OF_OUTPUTS[i], setting) == 0;
    return of_output && (hf_classes_count(model) > 0 || hf_embed_pooling(model));
}

/* --- writing --- */

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static json_t *labels_json(const Model *model, int n) {
    const char *names = text_of(model, "classes");
    const bool named = strcmp(names, "none") != 0 && names[strspn(names, "0123456789")];
    json_t *labels = json_object();
    for (int i = 0; i < n; i++) {
        put(labels, label_of("%d", i).text,
            json_string(named ? class_names_at(names, i).text : label_of("LABEL_%d", i).text));
    }
    return labels;
}

static json_t *numbers_json(const json_t *labels) {
    json_t *numbers = json_object();
    for (int i = 0; i < (int)json_object_size(labels); i++) {
        const char *name = json_string_value(find_label(labels, i));
        if (name) put(numbers, name, json_integer(i));
    }
    return numbers;
}

/* Has `like` names for classes that the model only counts? */
static bool keeps_labels(const Model *model, const json_t *like, int n) {
    const char *names = text_of(model, "classes");
    return tells_classes(like) && !names[strspn(names, "0123456789")] &&
           json_object_size(json_object_get(like, "id2label")) == (size_t)n;
}

int64_t hf_classes_padding(const json_t *json) {
    const json_t *token = json_object_get(json, "pad_token_id");
    return json_is_integer(token) ? (int64_t)json_integer_value(token) : -1;
}

/* The token between documents, or what `like` says, or that which ends its texts. An encoder's has
 * a row (hf_families_bert.c). */
static void write_padding(const Model *model, json_t *json) {
    const Setting *documents = settings_find(&model->settings, "documents");
    if (!documents || documents->type != SETTING_INTEGER) return;
    const json_t *end = json_object_get(json, "eos_token_id");
    if (json_is_array(end)) end = json_array_get(end, 0);
    if (documents->integer >= 0) {
        put(json, "pad_token_id", json_integer(documents->integer));
    } else if (hf_classes_padding(json) < 0 && json_is_integer(end)) {
        put(json, "pad_token_id", json_integer(json_integer_value(end)));
    }
}

void hf_classes_write(const Model *model, const json_t *like, json_t *json) {
    const int n = hf_classes_count(model);
    const char *problem = json_string_value(json_object_get(json, "problem_type"));
    if (n == 0 && !tells_classes(like)) return;
    const ClassLabels labels = labels_of(model);
    const bool single = n >= 2 && labels == CLASS_ONE && problem && strcmp(problem, SINGLE) == 0;
    if (!single) json_object_del(json, "problem_type");
    if (n > 0 && labels != CLASS_ONE) {
        put(json, "problem_type", json_string(labels == CLASS_SETS ? SETS : NUMBERS));
    }
    json_object_del(json, "num_labels");
    if (n == 0) {
        json_object_del(json, "id2label");
        json_object_del(json, "label2id");
        return;
    }
    if (!keeps_labels(model, like, n)) put(json, "id2label", labels_json(model, n));
    put(json, "label2id", numbers_json(json_object_get(json, "id2label")));
    write_padding(model, json);
}
