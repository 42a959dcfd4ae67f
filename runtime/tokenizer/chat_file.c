/* Files of chat templates in Jinja, and of the special tokens that these name. */
#include "runtime/tokenizer/chat_jinja.h"

#include "ir/base/file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_CONFIG_BYTES = 64 << 20 };
static const char *const CONFIGS[] = {"tokenizer_config.json", "special_tokens_map.json"};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), of = strlen(end);
    return n >= of && strcmp(text + n - of, end) == 0;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *chat_jinja_folder(const char *path, Arena *arena) {
    const char *slash = strrchr(path, '/');
    if (is_folder(path)) return arena_strdup(arena, path);
    return slash ? arena_strndup(arena, path, (size_t)(slash - path) + (slash == path)) : ".";
}

/* --- where it is --- */

/* A template's text, or several with names. */
static const json_t *template_of(const json_t *root) {
    const json_t *found = json_object_get(root, "chat_template");
    return json_is_null(found) ? NULL : found;
}

/* One that cannot be read may have one: whoever reads it then says what is wrong, and no other
 * template is guessed in its place. */
static bool config_has_one(const char *path) {
    if (access(path, F_OK) != 0) return false;
    Diag *quiet = diag_create();
    json_t *root = json_parse_file_texts(path, MOST_CONFIG_BYTES, quiet);
    bool found = !root || template_of(root);
    json_decref(root);
    diag_destroy(quiet);
    return found;
}

bool chat_jinja_in_folder(const char *folder) {
    Arena *arena = arena_create();
    bool found = access(arena_printf(arena, "%s/chat_template.jinja", folder), F_OK) == 0 ||
                 config_has_one(arena_printf(arena, "%s/tokenizer_config.json", folder)) ||
                 config_has_one(arena_printf(arena, "%s/chat_template.json", folder));
    arena_destroy(arena);
    return found;
}

bool chat_jinja_is(const char *path) {
    if (is_folder(path) || ends_with(path, ".jinja")) return true;
    if (!ends_with(path, ".json")) return false;
    return ends_with(path, "tokenizer_config.json") || config_has_one(path);
}

/* --- reading --- */

typedef struct TemplateFile {
    Arena *arena;
    ChatJinja *out;
    Diag *diag;
} TemplateFile;

static const JinjaTemplate *parse_file(const TemplateFile *file, const char *path) {
    size_t length;
    const char *text = file_read(file->arena, path, JINJA_MOST_SOURCE_BYTES, &length, file->diag);
    return text ? jinja_parse(file->arena, path, text, length, file->diag) : NULL;
}

static const JinjaTemplate *parse_json(const TemplateFile *file, const char *path,
                                       const json_t *text) {
    return jinja_parse(file->arena, path, json_string_value(text), json_string_length(text),
                       file->diag);
}

/* [{"name": "default", "template": "..."}, {"name": "tool_use", ...}] */
static bool read_named(const TemplateFile *file, const char *path, const json_t *list) {
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        const json_t *text = json_object_get(item, "template");
        bool plain = name && strcmp(name, "default") == 0;
        if (!name || !json_is_string(text)) {
            diag_error(file->diag, (SourceLoc){path, 0},
                       "'chat_template': item %zu has no 'name' and 'template'", i);
            return false;
        }
        if (!plain && strcmp(name, "tool_use") != 0) continue;
        const JinjaTemplate *parsed = parse_json(file, path, text);
        if (!parsed) return false;
        *(plain ? &file->out->plain : &file->out->tools) = parsed;
    }
    if (file->out->plain) return true;
    diag_error(file->diag, (SourceLoc){path, 0},
               "'chat_template' is several templates, and none has the name 'default'");
    return false;
}

static bool read_config(const TemplateFile *file, const char *path) {
    json_t *root = json_parse_file_texts(path, MOST_CONFIG_BYTES, file->diag);
    const json_t *template = template_of(root);
    bool good = false;
    if (json_is_string(template)) {
        file->out->plain = parse_json(file, path, template);
        good = file->out->plain != NULL;
    } else if (json_is_array(template)) {
        good = read_named(file, path, template);
    } else if (root) {
        diag_error(file->diag, (SourceLoc){path, 0},
                   template ? "'chat_template' is neither a text nor a list of templates"
                            : "has no 'chat_template', and no chat_template.jinja is beside it");
    }
    json_decref(root);
    return good;
}

/* chat_template.jinja comes first, as for transformers, and others by their names beside it. */
static bool read_folder(const TemplateFile *file) {
    const char *folder = file->out->folder;
    const char *own = arena_printf(file->arena, "%s/chat_template.jinja", folder);
    const char *tools =
        arena_printf(file->arena, "%s/additional_chat_templates/tool_use.jinja", folder);
    const char *old = arena_printf(file->arena, "%s/chat_template.json", folder);
    if (access(own, F_OK) == 0) {
        file->out->path = own;
        file->out->plain = parse_file(file, own);
        if (!file->out->plain || access(tools, F_OK) != 0) return file->out->plain != NULL;
        return (file->out->tools = parse_file(file, tools)) != NULL;
    }
    file->out->path =
        config_has_one(old) ? old : arena_printf(file->arena, "%s/tokenizer_config.json", folder);
    return read_config(file, file->out->path);
}

const ChatJinja *chat_jinja_read(const char *path, Arena *arena, Diag *diag) {
    TemplateFile file = {arena, ARENA_NEW(arena, ChatJinja), diag};
    *file.out =
        (ChatJinja){.path = arena_strdup(arena, path), .folder = chat_jinja_folder(path, arena)};
    bool good;
    if (ends_with(path, ".jinja") && !is_folder(path)) {
        good = (file.out->plain = parse_file(&file, path)) != NULL;
    } else if (is_folder(path) ||
               (ends_with(path, "tokenizer_config.json") && !config_has_one(path) &&
                chat_jinja_in_folder(file.out->folder))) {
        good = read_folder(&file);
    } else {
        good = read_config(&file, path);
    }
    return good ? file.out : NULL;
}

/* --- special tokens --- */

static void add_variable(ChatReady *ready, Arena *arena, ChatVariable variable) {
    for (int i = 0; i < ready->n_variables; i++) {
        if (strcmp(ready->variables[i].name, variable.name) == 0) return; /* the first holds */
    }
    ARENA_PUSH(arena, ready->variables, ready->n_variables, ready->variables_capacity, variable);
}

/* "bos_token" and such, texts or {"content": text}. False: the file is there, and wrong. */
static bool read_special(ChatReady *ready, const char *path, bool *out_there, Arena *arena,
                         Diag *diag) {
    static const char *const NAMES[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    if (access(path, F_OK) != 0) return true;
    json_t *root = json_parse_file_texts(path, MOST_CONFIG_BYTES, diag);
    for (size_t i = 0; root && i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        const json_t *value = json_object_get(root, NAMES[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        if (!json_is_string(value)) continue;
        const char *text = arena_strdup(arena, json_string_value(value));
        add_variable(ready, arena, (ChatVariable){.name = NAMES[i], .text = text});
    }
    *out_there = *out_there || root;
    json_decref(root);
    return root != NULL;
}

/* --- what is set by hand --- */

/* What is no JSON is a text; Python's words are meant as such. */
static bool add_setting(ChatReady *ready, const char *setting, Arena *arena, Diag *diag) {
    static const char *const WORDS[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *equals = strchr(setting, '=');
    json_error_t error;
    if (!equals || equals == setting) {
        diag_error(diag, NO_LOC, "--chat-set: '%.60s' is no NAME=JSON", setting);
        return false;
    }
    ChatVariable variable = {.name = arena_strndup(arena, setting, (size_t)(equals - setting))};
    const char *value = equals + 1;
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, WORDS[i][0]) == 0) value = WORDS[i][1];
    }
    json_t *json = json_loads(value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!json && *value && strchr("{[\"", *value)) {
        diag_error(diag, NO_LOC, "--chat-set: '%s' is no JSON: %s", variable.name, error.text);
        return false;
    }
    *(json ? &variable.json : &variable.text) = arena_strdup(arena, value);
    json_decref(json);
    add_variable(ready, arena, variable);
    return true;
}

static bool is_set(const ChatReady *ready, const char *name) {
    for (int i = 0; i < ready->n_variables; i++) {
        if (strcmp(ready->variables[i].name, name) == 0) return true;
    }
    return false;
}

/* A text with nothing in the place of a token would be a silent mistake. */
static bool check_tokens(const ChatReady *ready, Diag *diag) {
    static const char *const NAMES[] = {"bos_token", "eos_token"};
    for (int i = 0; i < 2; i++) {
        if (!jinja_names(ready->jinja->plain, NAMES[i]) || is_set(ready, NAMES[i])) continue;
        diag_error(diag, NO_LOC,
                   "the chat template %s needs %s, and no tokenizer_config.json is beside it or "
                   "the tokenizer: --chat-set %s='\"TOKEN\"'",
                   ready->jinja->path, NAMES[i], NAMES[i]);
        return false;
    }
    return true;
}

bool chat_jinja_prepare(const ChatJinja *jinja, const Tokenizer *tokenizer,
                        const ChatSettings *settings, ChatReady *out, Diag *diag) {
    Arena *arena = settings->arena;
    const char *const folders[] = {
        tokenizer->path ? chat_jinja_folder(tokenizer->path, arena) : jinja->folder, jinja->folder};
    bool there = false;
    *out = (ChatReady){.jinja = jinja, .now = settings->now};
    for (int i = 0; i < settings->n_set; i++) {
        if (!add_setting(out, settings->set[i], arena, diag)) return false;
    }
    for (int i = 0; i < 4 && !(i == 2 && there); i++) {
        const char *path = arena_printf(arena, "%s/%s", folders[i / 2], CONFIGS[i % 2]);
        if (!read_special(out, path, &there, arena, diag)) return false;
    }
    spelled_tokens_build(&out->spelled, tokenizer, arena);
    return there || check_tokens(out, diag);
}
