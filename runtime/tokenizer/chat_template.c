#include "runtime/tokenizer/chat_template.h"

#include "ir/base/json.h"
#include "ir/base/strbuf.h"
#include "runtime/tokenizer/chat_jinja.h"
#include "runtime/tokenizer/json_steps.h"

#include <string.h>

enum { MOST_FILE_BYTES = 1 << 20 };

/* As published with the models (chat_template of their tokenizer_config.json); of Llama 3.1 and
 * later without the lines about dates that theirs puts first. */
static const ChatTemplate SHIPPED[] = {
    {.name = "chatml",
     .tokens = {"<|im_start|>", "<|im_end|>"},
     .system_before = "<|im_start|>system\n",
     .system_after = "<|im_end|>\n",
     .user_before = "<|im_start|>user\n",
     .user_after = "<|im_end|>\n",
     .answer_before = "<|im_start|>assistant\n",
     .answer_after = "<|im_end|>",
     .answer_rest = "\n"},
    {.name = "qwen2.5",
     .tokens = {"<|im_start|>", "<|im_end|>"},
     .system_before = "<|im_start|>system\n",
     .system_after = "<|im_end|>\n",
     .user_before = "<|im_start|>user\n",
     .user_after = "<|im_end|>\n",
     .answer_before = "<|im_start|>assistant\n",
     .answer_after = "<|im_end|>",
     .answer_rest = "\n",
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "llama3",
     .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .system_before = "<|start_header_id|>system<|end_header_id|>\n\n",
     .system_after = "<|eot_id|>",
     .user_before = "<|start_header_id|>user<|end_header_id|>\n\n",
     .user_after = "<|eot_id|>",
     .answer_before = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .answer_after = "<|eot_id|>",
     .trim = true},
    {.name = "llama2",
     .tokens = {"<s>", "</s>"},
     .system_before = "<<SYS>>\n",
     .system_after = "\n<</SYS>>\n\n",
     .user_before = "<s>[INST] ",
     .user_after = " [/INST]",
     .answer_lead = " ",
     .answer_after = " </s>",
     .system_in_user = true,
     .trim = true,
     .alternate = true,
     .trims_together = true},
    {.name = "mistral", /* 7B Instruct v0.2, Mixtral 8x7B Instruct v0.1 */
     .tokens = {"<s>", "</s>"},
     .begin = "<s>",
     .user_before = "[INST] ",
     .user_after = " [/INST]",
     .answer_after = "</s>",
     .alternate = true},
    {.name = "gemma", /* 1 to 3; of 1 and 2 nobody is the system */
     .tokens = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .system_before = "",
     .system_after = "\n\n",
     .user_before = "<start_of_turn>user\n",
     .user_after = "<end_of_turn>\n",
     .answer_before = "<start_of_turn>model\n",
     .answer_after = "<end_of_turn>",
     .answer_rest = "\n",
     .system_in_user = true,
     .trim = true,
     .alternate = true},
    {.name = "zephyr",
     .tokens = {"</s>"},
     .system_before = "<|system|>\n",
     .system_after = "</s>\n",
     .user_before = "<|user|>\n",
     .user_after = "</s>\n",
     .answer_before = "<|assistant|>\n",
     .answer_after = "</s>",
     .answer_rest = "\n"},
    {.name = "alpaca", /* no special token but the one that ends a text */
     .system_before = "",
     .system_after = "\n\n",
     .user_before = "### Instruction:\n",
     .user_after = "\n\n",
     .answer_before = "### Response:\n",
     .answer_after = CHAT_END,
     .answer_rest = "\n\n",
     .default_system = "Below is an instruction that describes a task. Write a response that "
                       "appropriately completes the request."},
};
enum { N_SHIPPED = sizeof(SHIPPED) / sizeof(SHIPPED[0]) };

/* --- from a file --- */

typedef struct TemplateReader {
    Arena *arena;
    SourceLoc loc;
    Diag *diag;
} TemplateReader;

/* Anything that nothing would read is a mistake. */
static bool check_keys(const TemplateReader *reader, const json_t *object, const char *where,
                       const char *const *known, int n_known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int i = 0;
        while (i < n_known && strcmp(known[i], key) != 0) i++;
        if (i < n_known) continue;
        diag_error(reader->diag, reader->loc, "%s: unknown '%.40s'", where, key);
        return false;
    }
    return true;
}

static bool read_text(const TemplateReader *reader, const json_t *object, const char *name,
                      const char *where, const char **out) {
    const char *text = NULL;
    if (!json_read_text(object, name, where, &text, reader->loc, reader->diag)) return false;
    *out = text ? arena_strdup(reader->arena, text) : NULL;
    return true;
}

/* The part of a role; NULL in *out where there is none. */
static bool read_role(const TemplateReader *reader, const json_t *root, const char *role,
                      const char *const *keys, int n_keys, const json_t **out) {
    *out = json_object_get(root, role);
    if (*out && !json_is_object(*out)) {
        diag_error(reader->diag, reader->loc, "'%s' is no object with 'before' and 'after'", role);
        return false;
    }
    return !*out || check_keys(reader, *out, role, keys, n_keys);
}

static bool read_roles(const TemplateReader *reader, const json_t *root, ChatTemplate *out) {
    static const char *const ASKS[] = {"before", "after"};
    static const char *const ANSWERS[] = {"before", "after", "lead", "rest"};
    const json_t *system, *user, *answer;
    if (!read_role(reader, root, "system", ASKS, 2, &system) ||
        !read_role(reader, root, "user", ASKS, 2, &user) ||
        !read_role(reader, root, "assistant", ANSWERS, 4, &answer)) {
        return false;
    }
    if (!user || !answer) {
        diag_error(reader->diag, reader->loc, "the template has no '%s'",
                   user ? "assistant" : "user");
        return false;
    }
    bool good = read_text(reader, user, "before", "user", &out->user_before) &&
                read_text(reader, user, "after", "user", &out->user_after) &&
                read_text(reader, answer, "before", "assistant", &out->answer_before) &&
                read_text(reader, answer, "lead", "assistant", &out->answer_lead) &&
                read_text(reader, answer, "after", "assistant", &out->answer_after) &&
                read_text(reader, answer, "rest", "assistant", &out->answer_rest);
    if (!good || !system) return good;
    good = read_text(reader, system, "before", "system", &out->system_before) &&
           read_text(reader, system, "after", "system", &out->system_after);
    if (!out->system_before) out->system_before = "";
    return good;
}

static bool read_tokens(const TemplateReader *reader, const json_t *root, ChatTemplate *out) {
    const json_t *list = json_object_get(root, "tokens"), *item;
    size_t i;
    if (!list) return true;
    bool good = json_is_array(list) && json_array_size(list) <= CHAT_MOST_TOKENS;
    json_array_foreach(list, i, item) {
        good = good && json_is_string(item) && json_string_length(item) > 0;
        if (good) out->tokens[i] = arena_strdup(reader->arena, json_string_value(item));
    }
    if (!good) {
        diag_error(reader->diag, reader->loc, "'tokens' is no list of at most %d special tokens",
                   CHAT_MOST_TOKENS);
    }
    return good;
}

static bool read_template(const TemplateReader *reader, const json_t *root, ChatTemplate *out) {
    static const char *const KEYS[] = {"tokens",         "begin",          "system",
                                       "user",           "assistant",      "trim",
                                       "default_system", "system_in_user", "alternate"};
    if (!json_is_object(root)) {
        diag_error(reader->diag, reader->loc, "is no chat template: no object of JSON");
        return false;
    }
    const char *where = "the template";
    if (!check_keys(reader, root, where, KEYS, sizeof(KEYS) / sizeof(KEYS[0])) ||
        !read_tokens(reader, root, out) || !read_roles(reader, root, out) ||
        !read_text(reader, root, "begin", where, &out->begin) ||
        !read_text(reader, root, "default_system", where, &out->default_system) ||
        !json_read_bool(root, "system_in_user", where, &out->system_in_user, reader->loc,
                        reader->diag) ||
        !json_read_bool(root, "trim", where, &out->trim, reader->loc, reader->diag) ||
        !json_read_bool(root, "alternate", where, &out->alternate, reader->loc, reader->diag)) {
        return false;
    }
    if (out->system_before || (!out->default_system && !out->system_in_user)) return true;
    diag_error(reader->diag, reader->loc, "the template says nothing of how the system is told");
    return false;
}

static const ChatTemplate *read_jinja(const char *path, Arena *arena, Diag *diag) {
    ChatTemplate *out = ARENA_NEW(arena, ChatTemplate);
    out->jinja = chat_jinja_read(path, arena, diag);
    if (out->jinja) out->name = out->jinja->path;
    return out->jinja ? out : NULL;
}

static const ChatTemplate *read_file(const char *path, Arena *arena, Diag *diag) {
    if (chat_jinja_is(path)) return read_jinja(path, arena, diag);
    TemplateReader reader = {arena, {path, 0}, diag};
    ChatTemplate *out = ARENA_NEW(arena, ChatTemplate);
    out->name = arena_strdup(arena, path);
    json_t *root = json_parse_file(path, MOST_FILE_BYTES, diag);
    bool good = root && read_template(&reader, root, out);
    json_decref(root);
    return good ? out : NULL;
}

/* --- names --- */

bool chat_template_is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0) ||
           (n > 6 && strcmp(name + n - 6, ".jinja") == 0);
}

static void put_names(StrBuf *out) {
    for (int i = 0; i < N_SHIPPED; i++) {
        strbuf_printf(out, "%s%s", i ? ", " : "", SHIPPED[i].name);
    }
}

const ChatTemplate *chat_template_find(const char *name, Arena *arena, Diag *diag) {
    if (chat_template_is_path(name)) return read_file(name, arena, diag);
    for (int i = 0; i < N_SHIPPED; i++) {
        if (strcmp(SHIPPED[i].name, name) == 0) return &SHIPPED[i];
    }
    if (chat_jinja_is(name)) return read_jinja(name, arena, diag);
    StrBuf names = strbuf_create();
    put_names(&names);
    diag_error(diag, NO_LOC,
               "--chat-template: '%.60s' is none of %s, and no file NAME.json or "
               "NAME.jinja",
               name, names.text);
    strbuf_destroy(&names);
    return NULL;
}

static bool has_token(const Tokenizer *tokenizer, const char *text) {
    return added_tokens_by_text(&tokenizer->added, text) != NULL;
}

static const ChatTemplate *detect_beside(const Tokenizer *tokenizer, Arena *arena, Diag *diag) {
    const char *folder = chat_jinja_folder(tokenizer->path, arena);
    return read_jinja(folder, arena, diag);
}

static bool has_beside(const Tokenizer *tokenizer, Arena *arena) {
    return tokenizer->path && chat_jinja_in_folder(chat_jinja_folder(tokenizer->path, arena));
}

const ChatTemplate *chat_template_detect(const Tokenizer *tokenizer, Arena *arena, Diag *diag) {
    /* Tokens that no other kind of template has; of one kind the first is taken. */
    static const char *const MARKS[][2] = {{"<|im_start|>", "chatml"},
                                           {"<|start_header_id|>", "llama3"},
                                           {"<start_of_turn>", "gemma"}};
    const char *found = NULL;
    int n_found = 0;
    if (has_beside(tokenizer, arena)) return detect_beside(tokenizer, arena, diag);
    for (size_t i = 0; i < sizeof(MARKS) / sizeof(MARKS[0]); i++) {
        if (!has_token(tokenizer, MARKS[i][0])) continue;
        found = MARKS[i][1];
        n_found++;
    }
    if (n_found == 1) return chat_template_find(found, NULL, diag);
    StrBuf names = strbuf_create();
    put_names(&names);
    diag_error(diag, NO_LOC,
               "chats: the tokenizer's special tokens are those of %s template: give "
               "--chat-template NAME (%s) or a file of your own",
               n_found ? "more than one" : "no", names.text);
    strbuf_destroy(&names);
    return NULL;
}
