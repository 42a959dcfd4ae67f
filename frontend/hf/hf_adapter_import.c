#include "frontend/hf/hf_adapter_import.h"

#include "frontend/hf/hf_adapter.h"
#include "frontend/hf/hf_files.h"
#include "ir/base/json.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_LIMIT_BYTES = 1 << 20, MAX_RANK_OF_ADAPTERS = 1 << 16 };
/* As nn.lua has it. */
static const double MAX_ALPHA = 1e6;

/* Their modules and what nn.lua calls the products, by the ends of the weights' names; those of
 * experts come before those that their names end with, too. */
typedef struct Target {
    const char *ours, *target;
} Target;
static const Target TARGETS[] = {{".moe.wgate", "experts.gate"},
                                 {".moe.wup", "experts.up"},
                                 {".moe.wdown", "experts.down"},
                                 {".shared.wgate", "shared.gate"},
                                 {".shared.wup", "shared.up"},
                                 {".shared.wdown", "shared.down"},
                                 {".attn.wgate", "attn.gate"},
                                 {".wq", "q"},
                                 {".wk", "k"},
                                 {".wv", "v"},
                                 {".wo", "o"},
                                 {".wq_a", "q"},
                                 {".wq_nope", "q"},
                                 {".wq_rope", "q"},
                                 {".wq_b_nope", "q"},
                                 {".wq_b_rope", "q"},
                                 {".wk_rope", "k"},
                                 {".wkv_a", "k"},
                                 {".wgate", "gate"},
                                 {".wup", "up"},
                                 {".wdown", "down"},
                                 {".w1", "up"},
                                 {".w2", "down"}};
enum { N_TARGETS = sizeof(TARGETS) / sizeof(TARGETS[0]) };

typedef struct Importer {
    Arena *arena;
    const char *dir, *config_path, *weights_path;
    json_t *config;
    Safetensors *file;
    const Model *base;
    const HfFamily *family;
    const HfType *type;
    HfLayout layout; /* of the base */
    int64_t rank;    /* of all adapters here: the greatest of theirs */
    double scale;    /* of products of theirs */
    Diag *diag;
} Importer;

bool hf_adapter_is_folder(Arena *arena, const char *dir) {
    return access(arena_printf(arena, "%s/adapter_config.json", dir), F_OK) == 0;
}

static bool fail(const Importer *m, const char *format, const char *what) {
    diag_error(m->diag, (SourceLoc){m->config_path, 0}, format, what);
    return false;
}

/* Missing, null, false, empty or "none" is what nothing says otherwise. */
static bool says_nothing(const json_t *value) {
    if (!value || json_is_null(value) || json_is_false(value)) return true;
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    return json_is_string(value) && strcmp(json_string_value(value), "none") == 0;
}

/* As PEFT does: the module's name, or what it ends with. */
static bool is_named(const char *module, const char *name) {
    size_t length = strlen(module), end = strlen(name);
    if (end > length || strcmp(module + length - end, name) != 0) return false;
    return end == length || module[length - end - 1] == '.';
}

static bool names_module(const json_t *list, const char *module) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (is_named(module, json_string_value(json_array_get(list, i)))) return true;
    }
    return false;
}

/* A list of names, or a text, a pattern in Python's language, which is taken on trust. */
static bool check_names(const Importer *m, const char *key) {
    const json_t *names = json_object_get(m->config, key);
    bool fine = !names || json_is_null(names) || json_is_string(names) || json_is_array(names);
    for (size_t i = 0; i < json_array_size(names); i++) {
        fine &= json_is_string(json_array_get(names, i));
    }
    return fine || fail(m, "%s must be a list of names, or a text", key);
}

/* What PEFT multiplies products of adapters by. */
static double scale_of(const Importer *m, double alpha, int64_t rank) {
    const bool rslora = json_is_true(json_object_get(m->config, "use_rslora"));
    return alpha / (rslora ? sqrt((double)rank) : (double)rank);
}

/* What would make another model of the same tensors. */
static bool check_config(Importer *m) {
    static const char *const OTHERWISE[] = {"alora_invocation_tokens",
                                            "arrow_config",
                                            "bias",
                                            "kasa_config",
                                            "layer_replication",
                                            "lora_bias",
                                            "monteclora_config",
                                            "trainable_token_indices",
                                            "use_dora",
                                            "use_qalora"};
    const char *kind = json_string_value(json_object_get(m->config, "peft_type"));
    if (!kind || strcmp(kind, "LORA") != 0) return fail(m, "peft_type must be \"%s\"", "LORA");
    for (size_t i = 0; i < sizeof(OTHERWISE) / sizeof(OTHERWISE[0]); i++) {
        if (says_nothing(json_object_get(m->config, OTHERWISE[i]))) continue;
        return fail(m, "%s is not supported", OTHERWISE[i]);
    }
    /* Others by name, such as pissa, change the base that the adapter is for. */
    const char *init = json_string_value(json_object_get(m->config, "init_lora_weights"));
    if (init && strcmp(init, "gaussian") != 0 && strcmp(init, "orthogonal") != 0) {
        return fail(m, "init_lora_weights of %s is not supported", hf_quoted(m->arena, init));
    }
    if (!check_names(m, "target_modules") || !check_names(m, "target_parameters")) return false;
    if (json_is_string(json_object_get(m->config, "target_parameters"))) {
        return fail(m, "%s must be a list of names", "target_parameters");
    }
    const json_t *rank = json_object_get(m->config, "r");
    m->rank = json_is_integer(rank) ? (int64_t)json_integer_value(rank) : 0;
    if (m->rank < 1 || m->rank > MAX_RANK_OF_ADAPTERS) return fail(m, "%s is no rank", "r");
    const json_t *alpha = json_object_get(m->config, "lora_alpha");
    double value = json_number_value(alpha);
    if (!json_is_number(alpha) || !(value > 0 && value <= MAX_ALPHA)) {
        return fail(m, "%s must be a number more than 0 and at most 1e6", "lora_alpha");
    }
    m->scale = scale_of(m, value, m->rank);
    return true;
}

/* The file's tensor of a whole module (modules_to_save); NULL: it has none. */
static const char *their_saved(const Importer *m, const HfItem *item) {
    const char *name = hf_adapter_saved_name(m->arena, item->theirs);
    SafetensorsInfo info;
    if (!safetensors_find(m->file, name, &info)) return NULL;
    return hf_adapter_whole(&m->layout, item->parts[0].ours) == item ? name : NULL;
}

/* A name of modules_to_save. */
static bool check_saved_name(const Importer *m, const char *name) {
    const bool head = strcmp(name, "score") == 0 || strcmp(name, "classifier") == 0;
    if (head && hf_classes_count(m->base) > 0) return true; /* the second is PEFT's own */
    if (head) {
        return fail(m,
                    "modules_to_save has \"%s\", the head of a base that tells classes of texts or "
                    "rewards (--set classes=), which this one does not",
                    name);
    }
    for (int i = 0; i < m->layout.n_items; i++) {
        const HfItem *item = &m->layout.items[i];
        if (is_named(hf_adapter_module(m->arena, item->theirs), name) && their_saved(m, item)) {
            return true;
        }
    }
    return fail(m, "modules_to_save has %s, of which there is no weight that the base model has",
                hf_quoted(m->arena, name));
}

/* A head that shares its table with the embeddings is there once more, or is said to share it. */
static bool check_tied(const Importer *m, const HfItem *item, const char **out_used) {
    const char *head = hf_adapter_tied(m->arena, m->base, m->family, m->type, &m->layout, item);
    SafetensorsInfo table, again;
    if (!head) return true;
    const char *name = hf_adapter_saved_name(m->arena, head);
    const bool there = safetensors_find(m->file, name, &again);
    safetensors_find(m->file, their_saved(m, item), &table);
    if (there) *out_used = name;
    if (there ? table.dtype == again.dtype && table.n_bytes == again.n_bytes &&
                    memcmp(table.data, again.data, table.n_bytes) == 0
              : json_is_true(json_object_get(m->config, "ensure_weight_tying"))) {
        return true;
    }
    return fail(m,
                "modules_to_save has embeddings whose table the base model's head shares, and the "
                "adapter's %s does not: that is not supported",
                hf_adapter_module(m->arena, head));
}

/* Whole modules that the base has as well. */
static bool check_saved(const Importer *m) {
    const json_t *saved = json_object_get(m->config, "modules_to_save");
    if (says_nothing(saved)) saved = NULL;
    if (saved && !json_is_array(saved)) return fail(m, "%s must be a list", "modules_to_save");
    for (size_t i = 0; i < json_array_size(saved); i++) {
        const char *name = json_string_value(json_array_get(saved, i));
        if (!name) return fail(m, "%s must be a list of names", "modules_to_save");
        if (!check_saved_name(m, name)) return false;
    }
    for (int i = 0; i < m->layout.n_items; i++) {
        const HfItem *item = &m->layout.items[i];
        const char *module = hf_adapter_module(m->arena, item->theirs), *again = NULL;
        if (!their_saved(m, item)) continue;
        if (!names_module(saved, module)) {
            return fail(m, "modules_to_save lacks '%s', which is there whole", module);
        }
        if (!check_tied(m, item, &again)) return false;
    }
    return true;
}

/* Have both tensors of all experts of the item's layer adapters? */
static bool has_both(const Importer *m, const HfItem *item) {
    const char *end = strrchr(item->theirs, '.');
    const char *module = arena_strndup(m->arena, item->theirs, (size_t)(end - item->theirs));
    const json_t *list = json_object_get(m->config, "target_parameters");
    return names_module(list, arena_printf(m->arena, "%s.gate_up_proj", module)) &&
           names_module(list, arena_printf(m->arena, "%s.down_proj", module));
}

static const char *their_name(const Importer *m, const HfItem *item, char half) {
    const json_t *parameters = json_object_get(m->config, "target_parameters");
    const bool is = hf_adapter_parameter(item->theirs) != NULL;
    if (is && !names_module(parameters, item->theirs)) return NULL;
    const char *name = hf_adapter_name(m->arena, item->theirs, is && has_both(m, item), half);
    SafetensorsInfo info;
    return safetensors_find(m->file, name, &info) ? name : NULL;
}

/* Layers whose products are called as their weights are, without the w. */
static const Target OF_LETTERS[] = {
    {".ssm.w", "state"}, {".delta.w", "state"}, {".kda.w", "state"}, {".short.w", "short"}};

static const char *target_by_letter(Arena *arena, const char *ours) {
    for (size_t i = 0; i < sizeof(OF_LETTERS) / sizeof(OF_LETTERS[0]); i++) {
        const char *at = strstr(ours, OF_LETTERS[i].ours);
        if (!at) continue;
        at += strlen(OF_LETTERS[i].ours);
        return arena_printf(arena, "%s.%.*s", OF_LETTERS[i].target, (int)strcspn(at, "_"), at);
    }
    return NULL;
}

/* What nn.lora calls the product; NULL: it has no adapters. */
static const char *target_of(Arena *arena, const char *ours) {
    const size_t length = strlen(ours);
    const char *letter = target_by_letter(arena, ours);
    if (letter) return letter;
    for (int i = 0; i < N_TARGETS; i++) {
        const size_t end = strlen(TARGETS[i].ours);
        if (length > end && strcmp(ours + length - end, TARGETS[i].ours) == 0)
            return TARGETS[i].target;
    }
    return NULL;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reports the file's first tensor that is none of those used, of which there are fewer. */
static void fail_unused(const Importer *m, const char **used, size_t n_used) {
    if (n_used) qsort(used, n_used, sizeof(*used), compare_names);
    for (int i = 0; i < safetensors_count(m->file); i++) {
        const char *name = safetensors_at(m->file, i)->name;
        if (n_used && bsearch(&name, used, n_used, sizeof(*used), compare_names)) continue;
        diag_error(m->diag, (SourceLoc){m->weights_path, 0},
                   "tensor %s is no half of an adapter of the base model's weights",
                   hf_quoted(m->arena, name));
        return;
    }
    diag_error(m->diag, (SourceLoc){m->weights_path, 0}, "has no adapters");
}

/* Is a target among those of "q,k+v"? */
static bool has_target(const Importer *m, const char *targets, const char *target) {
    char *list = arena_printf(m->arena, ",%s,", targets);
    for (char *at = list; *at; at++) *at = *at == '+' ? ',' : *at;
    return strstr(list, arena_printf(m->arena, ",%s,", target)) != NULL;
}

/* The products of an item's weights: of several "q+k", which share the file's A, where that is what
 * they can do. NULL: reported. */
static const char *targets_of(const Importer *m, const HfItem *item, bool apart) {
    const char *targets = "";
    for (int p = 0; p < item->n_parts; p++) {
        const char *target = target_of(m->arena, item->parts[p].ours);
        if (!target) {
            fail(m, "adapters of '%s' have no place in the model", item->theirs);
            return NULL;
        }
        if (has_target(m, targets, target)) continue;
        targets =
            arena_printf(m->arena, "%s%s%s", targets, targets[0] ? apart ? "," : "+" : "", target);
    }
    return targets;
}

/* Latent attention's products share none: the target k, say, is of several. */
static bool can_share(const Importer *m, const HfItem *item) {
    const Setting *latent = settings_find(&m->base->settings, "kv_rank");
    return !latent || !strstr(item->parts[0].ours, ".attn.");
}

/* "q,v+k": the products so far, and those of an item. NULL: reported. */
static const char *with_targets(const Importer *m, const char *targets, const HfItem *item) {
    const char *more = targets_of(m, item, !can_share(m, item));
    for (const char *at = more; at && *at;) {
        const size_t length = strcspn(at, ",");
        const char *one = arena_strndup(m->arena, at, length);
        if (!strstr(arena_printf(m->arena, ",%s,", targets), arena_printf(m->arena, ",%s,", one))) {
            targets = arena_printf(m->arena, "%s%s%s", targets, targets[0] ? "," : "", one);
        }
        at += length + (at[length] == ',');
    }
    return more ? targets : NULL;
}

/* The products that have an adapter in the file. NULL: reported. */
static const char *find_targets(const Importer *m) {
    const char *targets = "",
               **used = ARENA_ARRAY(m->arena, const char *, 4 * m->layout.n_items + 1);
    size_t n_used = 0;
    for (int i = 0; i < m->layout.n_items; i++) {
        const HfItem *item = &m->layout.items[i];
        const char *saved = their_saved(m, item), *again = NULL;
        const char *a = their_name(m, item, 'A'), *b = their_name(m, item, 'B');
        if (saved) used[n_used++] = saved;
        if (saved && check_tied(m, item, &again) && again) used[n_used++] = again;
        if (!a || !b) continue;
        used[n_used++] = a;
        used[n_used++] = b;
        targets = with_targets(m, targets, item);
        if (!targets) return NULL;
    }
    if (n_used == (size_t)safetensors_count(m->file) && targets[0]) return targets;
    fail_unused(m, used, n_used);
    return NULL;
}

/* Of a pattern's key, the name that modules end with: PEFT itself writes ".*\\.name". NULL: it is a
 * pattern of another kind. */
static const char *pattern_name(const char *key) {
    static const char ANY[] = ".*\\.";
    if (strncmp(key, ANY, strlen(ANY)) == 0) key += strlen(ANY);
    for (const char *at = key; *at; at++) {
        const bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        if (!letter && !(*at >= '0' && *at <= '9') && *at != '_' && *at != '.') return NULL;
    }
    return *key ? key : NULL;
}

/* What rank_pattern or alpha_pattern says of an item, or NULL. */
static const json_t *find_in_pattern(const Importer *m, const char *pattern, const HfItem *item) {
    const char *module = hf_adapter_module(m->arena, item->theirs), *key;
    json_t *value;
    json_object_foreach(json_object_get(m->config, pattern), key, value) {
        if (is_named(module, pattern_name(key))) return value;
    }
    return NULL;
}

static bool check_pattern(const Importer *m, const char *pattern) {
    json_t *object = json_object_get(m->config, pattern), *value;
    const char *key;
    if (says_nothing(object)) return true;
    if (!json_is_object(object)) return fail(m, "%s must be a table of numbers", pattern);
    json_object_foreach(object, key, value) {
        if (!pattern_name(key)) {
            diag_error(m->diag, (SourceLoc){m->config_path, 0},
                       "%s has %s; only names of modules are supported there", pattern,
                       hf_quoted(m->arena, key));
            return false;
        }
        const double number = json_number_value(value);
        const double most = strcmp(pattern, "rank_pattern") == 0 ? MAX_RANK_OF_ADAPTERS : MAX_ALPHA;
        bool fine = json_is_number(value) && number > 0 && number <= most;
        if (most < MAX_ALPHA) fine = fine && json_is_integer(value);
        if (!fine) return fail(m, "%s has a value that is none", pattern);
    }
    return true;
}

static int64_t rank_of(const Importer *m, const HfItem *item) {
    const json_t *own = find_in_pattern(m, "rank_pattern", item);
    return (int64_t)json_integer_value(own ? own : json_object_get(m->config, "r"));
}

/* Of all adapters here, which zeros fill up. */
static bool find_rank(Importer *m) {
    if (!check_pattern(m, "rank_pattern") || !check_pattern(m, "alpha_pattern")) return false;
    m->rank = 1;
    for (int i = 0; i < m->layout.n_items; i++) {
        const int64_t rank = rank_of(m, &m->layout.items[i]);
        if (rank > m->rank && their_name(m, &m->layout.items[i], 'A')) m->rank = rank;
    }
    return true;
}

/* How much more an item's adapter counts than others: its second half is times it here. */
static double factor_of(const Importer *m, const HfItem *item) {
    const json_t *own = find_in_pattern(m, "alpha_pattern", item);
    const json_t *alpha = own ? own : json_object_get(m->config, "lora_alpha");
    const double factor = scale_of(m, json_number_value(alpha), rank_of(m, item)) / m->scale;
    return fabs(factor - 1) < 1e-12 ? 1 : factor;
}

/* An adapter in each layer, or the one that is named? */
static bool check_layers(const Importer *m, const Model *base) {
    const json_t *layers = json_object_get(m->config, "layers_to_transform");
    const Setting *setting = settings_find(&base->settings, "layers");
    int64_t n_layers = setting && setting->type == SETTING_INTEGER ? setting->integer : 0;
    if (says_nothing(layers)) return true;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        bool named = json_is_integer(layers) && json_integer_value(layers) == layer;
        for (size_t i = 0; i < json_array_size(layers) && !named; i++) {
            const json_t *item = json_array_get(layers, i);
            named = json_is_integer(item) && json_integer_value(item) == layer;
        }
        if (!named)
            return fail(m, "%s is not supported but with all layers", "layers_to_transform");
    }
    return true;
}

/* Names that modules of the base have, and none that has an adapter? */
static bool check_used(const Importer *m, const json_t *targets, const bool *adapted) {
    for (size_t k = 0; k < json_array_size(targets); k++) {
        const char *name = json_string_value(json_array_get(targets, k));
        bool found = false, used = false;
        for (int i = 0; i < m->layout.n_items; i++) {
            if (!is_named(hf_adapter_module(m->arena, m->layout.items[i].theirs), name)) continue;
            found = true;
            used |= adapted[i];
        }
        if (found && !used) {
            return fail(m, "target_modules has %s, of which there is no adapter",
                        hf_quoted(m->arena, name));
        }
    }
    return true;
}

/* PEFT reads adapters of those modules alone that its configuration names. */
static bool check_modules(const Importer *m) {
    if (!check_names(m, "exclude_modules")) return false;
    const json_t *targets = json_object_get(m->config, "target_modules");
    const json_t *excluded = json_object_get(m->config, "exclude_modules");
    bool *adapted = ARENA_ARRAY(m->arena, bool, m->layout.n_items + 1);
    for (int i = 0; i < m->layout.n_items; i++) {
        const char *theirs = m->layout.items[i].theirs;
        const char *module = hf_adapter_module(m->arena, theirs);
        adapted[i] = their_name(m, &m->layout.items[i], 'A') != NULL;
        if (!adapted[i] || hf_adapter_parameter(theirs)) continue;
        if (json_is_array(targets) && !names_module(targets, module)) {
            return fail(m, "target_modules lacks '%s', of which there is an adapter", module);
        }
        if (json_is_array(excluded) && names_module(excluded, module)) {
            return fail(m, "exclude_modules has '%s', of which there is an adapter", module);
        }
    }
    return check_used(m, targets, adapted);
}

static Model *load(const Importer *m, const char *name, const char *script,
                   const ModelSetting *settings, int n) {
    return script ? model_load(m->arena, script, settings, n, 1, m->diag)
                  : model_load_shipped(m->arena, name, settings, n, 1, m->diag);
}

static Model *load_with_adapters(const Importer *m, const char *name, const char *script,
                                 const ModelSetting *settings, int n, const char *targets) {
    const json_t *dropout = json_object_get(m->config, "lora_dropout");
    double p = json_is_number(dropout) ? json_number_value(dropout) : 0;
    const bool same = m->rank == json_integer_value(json_object_get(m->config, "r"));
    const double theirs = json_number_value(json_object_get(m->config, "lora_alpha"));
    const double alpha = same ? theirs : m->scale / scale_of(m, 1, m->rank);
    const json_t *use = json_object_get(m->config, "use_rslora");
    bool rslora = json_is_true(use);
    if ((use && !json_is_boolean(use) && !json_is_null(use)) ||
        (dropout && !json_is_number(dropout) && !json_is_null(dropout))) {
        diag_error(m->diag, (SourceLoc){m->config_path, 0},
                   "'use_rslora' must be true or false, and 'lora_dropout' a number");
        return NULL;
    }
    ModelSetting *all = ARENA_ARRAY(m->arena, ModelSetting, n + 5);
    memcpy(all, settings, sizeof(*all) * (size_t)n);
    all[n++] = (ModelSetting){"lora", arena_printf(m->arena, "%lld", (long long)m->rank)};
    all[n++] = (ModelSetting){"lora_alpha", arena_printf(m->arena, "%.17g", alpha)};
    all[n++] = (ModelSetting){"lora_dropout", arena_printf(m->arena, "%.17g", p)};
    all[n++] = (ModelSetting){"lora_rslora", rslora ? "true" : "false"};
    all[n++] = (ModelSetting){"lora_targets", targets};
    return load(m, name, script, all, n);
}

/* A matrix of theirs, the transpose of ours: a tensor, or an expert's part of one. */
typedef struct Theirs {
    SafetensorsInfo info;
    const HfPart *part;        /* of the weight */
    int64_t expert, n_experts; /* of those in the tensor; or 0 and 1 */
    int64_t rank;
    double factor; /* that ours is multiplied by */
} Theirs;

/* One half of an adapter: the parameter, and their tensors, one for each expert. Or what is whole
 * there. */
typedef struct Half {
    const char *name;
    const Type *type;
    const HfItem *whole; /* its tensor is `saved`; or NULL */
    SafetensorsInfo saved;
    int n_theirs, capacity;
    Theirs *theirs;        /* in the order of our numbers */
    int64_t rows, columns; /* of ours as a matrix, each expert's */
    int n_axes;            /* of a second half: of its outputs; else 0 */
    int n_in_axes;         /* of the first half of its adapter */
} Half;

static DType dtype_of(SafetensorsDtype dtype) {
    return dtype == SAFETENSORS_BF16  ? DTYPE_BF16
           : dtype == SAFETENSORS_F16 ? DTYPE_F16
           : dtype == SAFETENSORS_F32 ? DTYPE_F32
                                      : DTYPE_I32;
}

/* rows: of their tensor for each expert, or all it has; columns: of ours, or of the tensor. */
static bool add_theirs(const Importer *m, const char *theirs, Theirs add, int64_t rows,
                       int64_t columns, Half *out) {
    safetensors_find(m->file, theirs, &add.info);
    const bool b = out->n_axes > 0; /* experts' ranks lie along its second axis */
    const int64_t n = add.n_experts;
    bool fits = dtype_is_float(dtype_of(add.info.dtype)) && add.info.n_dims == 2 &&
                add.info.shape[0] == rows * (b ? 1 : n) &&
                add.info.shape[1] == columns * (b ? n : 1);
    if (!fits) {
        diag_error(m->diag, (SourceLoc){m->weights_path, 0},
                   "tensor %s does not have the base model's shape and the rank, or another dtype",
                   hf_quoted(m->arena, theirs));
        return false;
    }
    for (add.expert = 0; add.expert < n; add.expert++) {
        ARENA_PUSH(m->arena, out->theirs, out->n_theirs, out->capacity, add);
    }
    return true;
}

static bool find_saved(const Importer *m, const Node *param, Half *out) {
    const char *theirs = their_saved(m, out->whole);
    if (!theirs) {
        diag_error(m->diag, (SourceLoc){m->weights_path, 0},
                   "has no head '%s', which trains beside adapters", out->name);
        return false;
    }
    safetensors_find(m->file, theirs, &out->saved);
    out->type = &param->types[0];
    bool fits =
        dtype_is_float(dtype_of(out->saved.dtype)) && out->saved.n_dims == out->whole->n_dims;
    for (int i = 0; fits && i < out->saved.n_dims; i++) {
        fits = out->saved.shape[i] == out->whole->shape[i];
    }
    if (fits) return true;
    diag_error(m->diag, (SourceLoc){m->weights_path, 0},
               "tensor %s does not have the base model's shape, or another dtype",
               hf_quoted(m->arena, theirs));
    return false;
}

/* As a matrix, of each expert where it has them. */
static void measure_half(const Model *model, char half, Half *out) {
    const Type *type = out->type;
    const int n_each = hf_adapter_of_experts(model, type), last = type->rank - 1;
    const int64_t experts = n_each ? type->dims[0] : 1,
                  rank = type->dims[half == 'A' ? last : n_each];
    const int64_t others = type_elements(type) / rank / experts;
    out->rows = half == 'A' ? others : rank;
    out->columns = half == 'A' ? rank : others;
    out->n_axes = half == 'A' ? 0 : last - n_each;
}

/* What one of their tensors has of a half. */
static bool add_item(const Importer *m, const HfItem *item, const HfPart *part, char half,
                     Half *out) {
    const char *theirs = their_name(m, item, half);
    if (!theirs) {
        diag_error(m->diag, (SourceLoc){m->weights_path, 0},
                   "has no adapter of '%s', as others of its kind have", item->theirs);
        return false;
    }
    const bool all = hf_adapter_parameter(item->theirs) != NULL; /* experts */
    const bool each = all || part->type.axes[0] != part->whole.axes[0];
    const int64_t rank = rank_of(m, item);
    Theirs add = {.part = part,
                  .n_experts = all ? part->whole.dims[0] : 1,
                  .rank = rank,
                  .factor = half == 'A' ? 1 : factor_of(m, item)};
    int64_t elements = 1, n_in = 1;
    for (int i = 0; i < item->n_dims; i++) elements *= item->shape[i];
    out->n_in_axes =
        half == 'A' ? out->type->rank - 1 - each : part->whole.rank - each - out->n_axes;
    for (int i = each; i < each + out->n_in_axes; i++) n_in *= part->whole.dims[i];
    const int64_t n_out = elements / n_in / add.n_experts;
    return add_theirs(m, theirs, add, half == 'A' ? rank : n_out, half == 'A' ? n_in : rank, out);
}

static bool find_half(const Importer *m, const Model *model, const Node *param, Half *out) {
    char half = (char)(strrchr(out->name, '.')[strlen(".lora_")] - 'a' + 'A');
    const char *weight = hf_adapter_first_weight(m->arena, out->name);
    out->type = &param->types[0];
    measure_half(model, half, out);
    for (int i = 0; i < m->layout.n_items; i++) {
        const HfItem *item = &m->layout.items[i];
        for (int p = 0; p < item->n_parts; p++) {
            if (strcmp(item->parts[p].ours, weight) != 0) continue;
            if (!add_item(m, item, &item->parts[p], half, out)) return false;
        }
    }
    if (out->n_theirs * out->rows * out->columns == type_elements(out->type)) return true;
    diag_error(m->diag, (SourceLoc){m->weights_path, 0},
               "has no adapter of '%s', as others of its kind have", weight);
    return false;
}

static bool copy_theirs(const Half *half, int at, float *room) {
    const Theirs *theirs = &half->theirs[at];
    const int64_t bytes = dtype_bytes(dtype_of(theirs->info.dtype));
    const char *from = theirs->info.data;
    TensorCopy copy = {.rank = 2,
                       .size = {half->rows, theirs->rank},
                       .from_stride = {1, half->rows},
                       .to_stride = {half->columns, 1},
                       .from_dtype = dtype_of(theirs->info.dtype),
                       .to_dtype = DTYPE_F32,
                       .from = from + theirs->expert * half->rows * theirs->rank * bytes,
                       .to = room + at * half->rows * half->columns};
    if (half->n_axes > 0) { /* [outputs, rank, experts] */
        const int64_t row = theirs->rank * theirs->n_experts;
        HfAdapterB b;
        hf_adapter_b_strides(theirs->part, row, half->n_in_axes, half->n_axes, &b);
        copy.rank = b.rank;
        memcpy(copy.size, b.size, sizeof(copy.size));
        memcpy(copy.from_stride, b.theirs, sizeof(copy.from_stride));
        memcpy(copy.to_stride, b.ours, sizeof(copy.to_stride));
        copy.size[0] = theirs->rank;
        copy.from_stride[0] = theirs->n_experts;
        copy.from = from + (b.first * row + theirs->expert) * bytes;
    }
    if (!tensor_copy(&copy)) return false;
    float *ours = room + at * half->rows * half->columns;
    for (int64_t i = 0; theirs->factor != 1 && i < half->rows * half->columns; i++) {
        ours[i] = (float)(ours[i] * theirs->factor);
    }
    return true;
}

static bool copy_saved(const Half *half, float *room) {
    const HfPart *part = &half->whole->parts[0];
    const DType dtype = dtype_of(half->saved.dtype);
    TensorCopy copy = {.rank = part->type.rank,
                       .from_dtype = dtype,
                       .to_dtype = DTYPE_F32,
                       .from =
                           (const char *)half->saved.data + part->theirs_first * dtype_bytes(dtype),
                       .to = room};
    for (int i = 0; i < copy.rank; i++) {
        copy.size[i] = part->type.dims[i];
        copy.from_stride[i] = part->theirs_stride[i];
        copy.to_stride[i] = part->ours_stride[i];
    }
    return tensor_copy(&copy);
}

static bool put(const Half *half, SafetensorsWriter *writer, Diag *diag) {
    size_t bytes = (size_t)type_elements(half->type) * sizeof(float);
    float *room = calloc(1, bytes);
    if (!room) BUG("out of memory");
    bool fine = !half->whole || copy_saved(half, room);
    for (int i = 0; fine && i < half->n_theirs; i++) fine = copy_theirs(half, i, room);
    fine = fine && safetensors_writer_put(writer, half->name, room, bytes, diag);
    free(room);
    return fine;
}

static bool write_halves(const Importer *m, const Half *halves, int n, const Model *model,
                         const char *path) {
    SafetensorsWriter *writer = safetensors_writer_create();
    for (int i = 0; i < n; i++) {
        safetensors_writer_add_tensor(writer, halves[i].name, SAFETENSORS_F32, halves[i].type->dims,
                                      halves[i].type->rank);
    }
    safetensors_writer_add_metadata(writer, "format", "pt");
    safetensors_writer_add_metadata(writer, "model", model->name);
    safetensors_writer_add_metadata(writer, ENGINE_SETTINGS_KEY,
                                    settings_text(&model->settings, m->arena));
    safetensors_writer_add_metadata(writer, ENGINE_TRAINED_ALONE_KEY, "yes");
    bool fine = safetensors_writer_open(writer, path, m->diag);
    for (int i = 0; fine && i < n; i++) fine = put(&halves[i], writer, m->diag);
    if (fine) return safetensors_writer_commit(writer, m->diag);
    safetensors_writer_abandon(writer);
    return false;
}

static Half *list_halves(const Importer *m, const Model *model, int *out_count) {
    int n = 0, capacity = 0;
    Half *halves = NULL;
    for (int i = 0; i < model->graph->n_nodes; i++) {
        const Node *node = model->graph->nodes[i];
        if (node->op != OP_PARAM) continue;
        Half half = {.name = node_logical_name(node, 0, m->arena)};
        half.whole = hf_adapter_whole(&m->layout, half.name);
        const bool saved = half.whole && (hf_adapter_is_head(model, half.name) ||
                                          their_saved(m, half.whole) != NULL);
        if (!saved && !hf_adapter_is_name(half.name)) continue;
        if (!(saved ? find_saved(m, node, &half) : find_half(m, model, node, &half))) return NULL;
        ARENA_PUSH(m->arena, halves, n, capacity, half);
    }
    *out_count = n;
    return halves;
}

static void tell_saved(const Importer *m, const Half *halves, HfAdapterImport *out) {
    enum { FEW = 4 };
    for (int i = 0; i < out->n_adapters; i++) {
        if (!halves[i].whole || hf_adapter_is_head(m->base, halves[i].name)) continue;
        out->n_saved++;
        out->saved = arena_printf(m->arena, "%s%s!%s", out->saved ? out->saved : "",
                                  out->saved ? "," : "", halves[i].name);
    }
    if (out->n_saved > FEW) out->saved = NULL;
}

/* The base, to know its tensors; then the model with the file's adapters. NULL: reported. */
static const Model *open_all(Importer *m, const char *name, const char *script,
                             const ModelSetting *settings, int n_settings) {
    m->config = json_parse_file(m->config_path, CONFIG_LIMIT_BYTES, m->diag);
    if (!m->config || !check_config(m)) return NULL;
    m->file = safetensors_open(m->weights_path, m->diag);
    const Model *base = m->file ? load(m, name, script, settings, n_settings) : NULL;
    if (!base) return NULL;
    m->base = base;
    m->family = hf_family_of_model(base, m->diag);
    if (!m->family) return NULL;
    m->type = hf_config_type(base, m->family, NULL, HF_READER, m->diag);
    /* As transformers 5 has experts, where an adapter is of them as parameters. */
    const bool fused =
        m->type && m->type->fused && !says_nothing(json_object_get(m->config, "target_parameters"));
    if (!m->type || !hf_layout_make(m->arena, base, m->family, m->type, fused, &m->layout, m->diag))
        return NULL;
    const char *targets = check_saved(m) ? find_targets(m) : NULL;
    if (!targets || !check_layers(m, base) || !check_modules(m) || !find_rank(m)) return NULL;
    return load_with_adapters(m, name, script, settings, n_settings, targets);
}

bool hf_adapter_import(Arena *arena, const char *dir, const char *name, const char *script,
                       const ModelSetting *settings, int n_settings, const char *path,
                       HfAdapterImport *out, bool *out_wrong, Diag *diag) {
    Importer m = {.arena = arena,
                  .dir = dir,
                  .config_path = arena_printf(arena, "%s/adapter_config.json", dir),
                  .weights_path = arena_printf(arena, "%s/adapter_model.safetensors", dir),
                  .diag = diag};
    const Model *model = open_all(&m, name, script, settings, n_settings);
    *out = (HfAdapterImport){.model = model};
    Half *halves = model ? list_halves(&m, model, &out->n_adapters) : NULL;
    if (halves) tell_saved(&m, halves, out);
    *out_wrong = halves == NULL;
    bool fine = halves && write_halves(&m, halves, out->n_adapters, model, path);
    safetensors_close(m.file);
    json_decref(m.config);
    return fine;
}
