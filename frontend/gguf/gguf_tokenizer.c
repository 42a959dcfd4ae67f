#include "frontend/gguf/gguf_tokenizer.h"

#include "frontend/gguf/gguf_tokenizer_names.h"
#include "frontend/hf/hf_files.h"
#include "ir/base/json.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BYTES = 256,
    MOST_PIECE = 4096,
    MOST_CONFIG_BYTES = 16 << 20,
    MOST_TEMPLATE_BYTES = 4 << 20
};

/* llama.cpp's kinds of tokens (llama_token_attr). */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

typedef struct Reader {
    Arena *arena;
    const char *path, *folder; /* of tokenizer.json; the folder that it is in, or NULL */
    json_t *json, *config;     /* the latter of tokenizer_config.json, or NULL */
    const json_t *model;
    Tokenizer *tokenizer;
    GgufTokenizer *out;
    int64_t vocab;
    const char **tokens; /* [vocab]; NULL: there is none of that number */
    int32_t *kinds;
    float *scores;
    Diag *diag;
} Reader;

static bool is_type(const json_t *json, const char *type) {
    const char *text = json_string_value(json_object_get(json, "type"));
    return text && strcmp(text, type) == 0;
}

/* --- reading tokenizer.json, which tokenizer_load has checked --- */

static bool set_token(Reader *reader, const char *text, int64_t id, int kind) {
    if (id < 0 || id >= reader->vocab) {
        return gguf_fail(reader->path, reader->diag,
                         "has token %" PRId64 ", but the model has %" PRId64 " tokens", id,
                         reader->vocab);
    }
    reader->tokens[id] = text;
    reader->kinds[id] = kind;
    return true;
}

/* "<0x0A>" */
static bool is_byte_token(const char *text) {
    unsigned byte;
    int length = 0;
    return strlen(text) == 6 && sscanf(text, "<0x%2x>%n", &byte, &length) == 1 && length == 6;
}

static bool read_tokens(Reader *reader) {
    const json_t *vocab = json_object_get(reader->model, "vocab"), *id, *added;
    const char *unknown = json_string_value(json_object_get(reader->model, "unk_token")), *text;
    size_t i;
    const size_t n = (size_t)reader->vocab;
    reader->tokens = ARENA_ARRAY(reader->arena, const char *, n + 1);
    reader->kinds = ARENA_ARRAY(reader->arena, int32_t, n + 1);
    reader->scores = ARENA_ARRAY(reader->arena, float, n + 1);
    for (size_t k = 0; k < n; k++) {
        reader->tokens[k] = NULL;
        reader->kinds[k] = UNUSED;
        reader->scores[k] = 0;
    }
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) {
        const bool byte = !reader->tokenizer->byte_level && is_byte_token(text);
        const int kind = byte ? BYTE : unknown && strcmp(text, unknown) == 0 ? UNKNOWN : NORMAL;
        if (!set_token(reader, text, json_integer_value(id), kind)) return false;
    }
    json_array_foreach(json_object_get(reader->json, "added_tokens"), i, added) {
        const char *content = json_string_value(json_object_get(added, "content"));
        const int64_t number = json_integer_value(json_object_get(added, "id"));
        const bool special = json_is_true(json_object_get(added, "special"));
        const bool is_unknown = unknown && strcmp(content, unknown) == 0;
        const int kind = is_unknown ? UNKNOWN : special ? CONTROL : USER_DEFINED;
        reader->out->n_plain += json_is_true(json_object_get(added, "lstrip")) ||
                                json_is_true(json_object_get(added, "rstrip")) ||
                                json_is_true(json_object_get(added, "single_word"));
        if (!set_token(reader, content, number, kind)) return false;
    }
    return true;
}

/* The two texts of a merge: "a b" or ["a", "b"]. */
static const char *merge_text(Arena *arena, const json_t *merge, const char *between) {
    if (json_is_array(merge)) {
        return arena_printf(arena, "%s%s%s", json_string_value(json_array_get(merge, 0)), between,
                            json_string_value(json_array_get(merge, 1)));
    }
    const char *text = json_string_value(merge), *space = strchr(text, ' ');
    return arena_printf(arena, "%.*s%s%s", (int)(space - text), text, between, space + 1);
}

const json_t *gguf_member(const json_t *object, const char *text, size_t length) {
    char room[MOST_PIECE];
    if (length >= sizeof(room)) return NULL; /* longer than what any token is made of */
    memcpy(room, text, length);
    room[length] = '\0';
    return json_object_get(object, room);
}

static bool is_piece(const Reader *reader, const json_t *vocab, const char *text, size_t length) {
    const json_t *id = gguf_member(vocab, text, length);
    return id && reader->kinds[json_integer_value(id)] == NORMAL;
}

/* llama.cpp joins any two neighbours that make a token: the merges must have all such pairs. */
static bool check_merges(const Reader *reader) {
    const json_t *merges = json_object_get(reader->model, "merges"), *merge, *id;
    const json_t *vocab = json_object_get(reader->model, "vocab");
    json_t *known = json_object();
    const char *text, *missing = NULL;
    size_t i;
    json_array_foreach(merges, i, merge) {
        json_object_set_new(known, merge_text(reader->arena, merge, " "), json_true());
    }
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) {
        const size_t length = strlen(text);
        if (reader->kinds[json_integer_value(id)] != NORMAL) continue;
        for (size_t left = 1; left < length && !missing; left++) {
            if (((unsigned char)text[left] & 0xc0) == 0x80 ||
                !is_piece(reader, vocab, text, left) ||
                !is_piece(reader, vocab, text + left, length - left)) {
                continue;
            }
            const char *pair = arena_printf(reader->arena, "%.*s %s", (int)left, text, text + left);
            if (!json_object_get(known, pair)) missing = pair;
        }
    }
    json_decref(known);
    if (!missing) return true;
    return gguf_fail(reader->path, reader->diag,
                     "its merges lack %s, two tokens that make a third, which llama.cpp would "
                     "join: only tokenizers of SentencePiece's kind are written",
                     hf_quoted(reader->arena, missing));
}

/* SentencePiece joins the two neighbours whose token has the greatest score: that of an earlier
 * merge. What no merge makes has less than all. False: merges of a token are not all together. */
static bool read_scores(Reader *reader) {
    const json_t *merges = json_object_get(reader->model, "merges"), *merge;
    const json_t *vocab = json_object_get(reader->model, "vocab");
    const float least = -(float)(json_array_size(merges) + 1);
    int64_t last = -1;
    size_t i;
    for (int64_t id = 0; id < reader->vocab; id++) {
        if (reader->kinds[id] == NORMAL) reader->scores[id] = least;
    }
    json_array_foreach(merges, i, merge) {
        const char *whole = merge_text(reader->arena, merge, "");
        const int64_t id = json_integer_value(json_object_get(vocab, whole));
        if (id == last) continue;
        last = id;
        if (reader->scores[id] != least) {
            return gguf_fail(reader->path, reader->diag,
                             "merges that make %s have others between them, where llama.cpp "
                             "has one score for all: only tokenizers of SentencePiece's kind "
                             "are written",
                             hf_quoted(reader->arena, whole));
        }
        reader->scores[id] = -(float)(i + 1);
    }
    return true;
}

/* --- what stands beside it --- */

static bool open_folder(Reader *reader, const char *path) {
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    reader->folder = folder ? path : NULL;
    reader->path = folder ? arena_printf(reader->arena, "%s/tokenizer.json", path) : path;
    const char *config =
        folder ? arena_printf(reader->arena, "%s/tokenizer_config.json", path) : NULL;
    if (!config || access(config, F_OK) != 0) return true;
    reader->config = json_parse_file_texts(config, MOST_CONFIG_BYTES, reader->diag);
    return reader->config != NULL;
}

/* A token of tokenizer_config.json: its text, or an object with it. -1: there is none. */
static int64_t config_token(const Reader *reader, const char *key) {
    const json_t *value = json_object_get(reader->config, key);
    const char *text = json_string_value(value);
    if (!text) text = json_string_value(json_object_get(value, "content"));
    for (int64_t id = 0; text && id < reader->vocab; id++) {
        if (reader->tokens[id] && strcmp(reader->tokens[id], text) == 0) return id;
    }
    return -1;
}

/* Of TemplateProcessing's steps for one text: the token's id, or -1 if the step is the text. */
static int64_t step_token(const json_t *post, const json_t *step) {
    const char *name =
        json_string_value(json_object_get(json_object_get(step, "SpecialToken"), "id"));
    const json_t *token =
        json_object_get(json_object_get(post, "special_tokens"), name ? name : "");
    const json_t *id = json_array_get(json_object_get(token, "ids"), 0);
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* The tokens that the post-processor puts before and behind a text; -1: none. */
static void template_tokens(const json_t *post, int64_t *before, int64_t *behind) {
    const json_t *inner, *steps = json_object_get(post, "single");
    const size_t n = json_array_size(steps);
    size_t i;
    json_array_foreach(json_object_get(post, "processors"), i, inner) {
        template_tokens(inner, before, behind);
    }
    if (n < 2) return;
    *before = step_token(post, json_array_get(steps, 0));
    *behind = step_token(post, json_array_get(steps, n - 1));
}

static void put_id(GgufWriter *writer, const char *key, int64_t id) {
    if (id >= 0) gguf_put_u32(writer, key, (uint32_t)id);
}

/* A flag of tokenizer_config.json, or what the post-processor does. */
static bool adds(const Reader *reader, const char *key, int64_t token) {
    const json_t *value = json_object_get(reader->config, key);
    return json_is_boolean(value) ? json_is_true(value) : token >= 0;
}

/* Returns whether a token ends texts. */
static bool put_special(GgufWriter *writer, const Reader *reader) {
    int64_t before = -1, behind = -1;
    template_tokens(json_object_get(reader->json, "post_processor"), &before, &behind);
    int64_t first = config_token(reader, "bos_token"), end = config_token(reader, "eos_token");
    const uint32_t known = tokenizer_end_of_text(reader->tokenizer);
    if (first < 0) first = before;
    if (end < 0) end = behind;
    if (end < 0 && known != NO_TOKEN) end = known;
    put_id(writer, "tokenizer.ggml.bos_token_id", first >= 0 ? first : end);
    put_id(writer, "tokenizer.ggml.eos_token_id", end);
    put_id(writer, "tokenizer.ggml.padding_token_id", config_token(reader, "pad_token"));
    put_id(writer, "tokenizer.ggml.unknown_token_id", config_token(reader, "unk_token"));
    gguf_put_flag(writer, "tokenizer.ggml.add_bos_token", adds(reader, "add_bos_token", before));
    gguf_put_flag(writer, "tokenizer.ggml.add_eos_token", adds(reader, "add_eos_token", behind));
    return end >= 0;
}

static bool put_chat_template(GgufWriter *writer, const Reader *reader) {
    const char *text = json_string_value(json_object_get(reader->config, "chat_template"));
    const char *file = reader->folder
                           ? arena_printf(reader->arena, "%s/chat_template.jinja", reader->folder)
                           : NULL;
    if (file && access(file, F_OK) == 0) {
        size_t length;
        text = file_read(reader->arena, file, MOST_TEMPLATE_BYTES, &length, reader->diag);
        if (!text) return false;
        if (!gguf_is_text(text, length))
            return gguf_fail(reader->path, reader->diag, "%s is not UTF-8", file);
    }
    if (text) gguf_put_text(writer, "tokenizer.chat_template", text);
    return true;
}

/* --- writing --- */

static void put_lists(GgufWriter *writer, const Reader *reader, bool scores) {
    const uint64_t n = (uint64_t)reader->vocab;
    gguf_put_array(writer, "tokenizer.ggml.tokens", GGUF_TEXT, n);
    for (uint64_t id = 0; id < n; id++) {
        const char *text = reader->tokens[id];
        if (!text) text = arena_printf(reader->arena, "[PAD%" PRIu64 "]", id);
        gguf_put_element_text(writer, text, strlen(text));
    }
    if (scores) {
        gguf_put_array(writer, "tokenizer.ggml.scores", GGUF_F32, n);
        gguf_put_element(writer, reader->scores, n * sizeof(float));
    }
    gguf_put_array(writer, "tokenizer.ggml.token_type", GGUF_I32, n);
    gguf_put_element(writer, reader->kinds, n * sizeof(int32_t));
}

static bool put_byte_level(GgufWriter *writer, Reader *reader) {
    const GgufPre *pre = gguf_pre_of(reader->json);
    const json_t *merges = json_object_get(reader->model, "merges"), *merge;
    const json_t *normalizer = json_object_get(reader->json, "normalizer");
    size_t i;
    reader->out->composes = normalizer && !json_is_null(normalizer);
    if (reader->out->composes && !is_type(normalizer, "NFC")) {
        return gguf_fail(reader->path, reader->diag,
                         "its normalizer is more than NFC, which llama.cpp has not");
    }
    if (!pre) {
        return gguf_fail(reader->path, reader->diag,
                         "its text is divided into words in a way that llama.cpp has no name "
                         "for (tokenizer.ggml.pre): those of GPT-2, Llama 3, Qwen 2, GPT-4o, "
                         "Tekken and SmolLM can be written");
    }
    gguf_put_text(writer, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(writer, "tokenizer.ggml.pre", pre->name);
    put_lists(writer, reader, false);
    gguf_put_array(writer, "tokenizer.ggml.merges", GGUF_TEXT, json_array_size(merges));
    json_array_foreach(merges, i, merge) {
        const char *text = merge_text(reader->arena, merge, " ");
        gguf_put_element_text(writer, text, strlen(text));
    }
    return true;
}

/* Do spaces become the mark, and nothing else another thing? *prefix: and one comes before a text.
 */
static bool normalizer_marks(const json_t *normalizer, bool *prefix) {
    const json_t *inner;
    size_t i;
    if (!normalizer || json_is_null(normalizer)) return true;
    if (is_type(normalizer, "Sequence")) {
        json_array_foreach(json_object_get(normalizer, "normalizers"), i, inner) {
            if (!normalizer_marks(inner, prefix)) return false;
        }
        return true;
    }
    if (is_type(normalizer, "Prepend")) {
        *prefix = true;
        return true;
    }
    const json_t *from = json_object_get(json_object_get(normalizer, "pattern"), "String");
    return is_type(normalizer, "Replace") && json_is_string(from) &&
           strcmp(json_string_value(from), " ") == 0;
}

static bool steps_mark(const json_t *pre, bool *prefix) {
    if (!pre || json_is_null(pre)) return true;
    const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
    *prefix |= !scheme || strcmp(scheme, "never") != 0;
    return is_type(pre, "Metaspace") && json_is_false(json_object_get(pre, "split"));
}

static bool put_characters(GgufWriter *writer, Reader *reader) {
    bool prefix = false;
    if (!normalizer_marks(json_object_get(reader->json, "normalizer"), &prefix) ||
        !steps_mark(json_object_get(reader->json, "pre_tokenizer"), &prefix)) {
        return gguf_fail(reader->path, reader->diag,
                         "its text is changed, or divided, in another way than that spaces "
                         "become a mark, which is all that llama.cpp's model of it does");
    }
    if (!check_merges(reader) || !read_scores(reader)) return false;
    gguf_put_text(writer, "tokenizer.ggml.model", "llama");
    gguf_put_text(writer, "tokenizer.ggml.pre", "default");
    gguf_put_flag(writer, "tokenizer.ggml.add_space_prefix", prefix);
    put_lists(writer, reader, true);
    return true;
}

static bool put_tokenizer(GgufWriter *writer, Reader *reader) {
    const Tokenizer *tokenizer = reader->tokenizer;
    if (strcmp(tokenizer->format, "tokenizer.json") != 0 || tokenizer->kind != TOKENIZER_BPE) {
        return gguf_fail(reader->path, reader->diag,
                         "is no tokenizer.json of type BPE, which alone is written as GGUF");
    }
    reader->json = json_parse_file(reader->path, TOKENIZER_MOST_FILE_BYTES, reader->diag);
    if (!reader->json) return false;
    reader->model = json_object_get(reader->json, "model");
    reader->out->kind = tokenizer->byte_level ? "gpt2" : "llama";
    const bool fine =
        read_tokens(reader) &&
        (tokenizer->byte_level ? put_byte_level(writer, reader) : put_characters(writer, reader));
    if (fine) reader->out->ends_texts = put_special(writer, reader);
    return fine && put_chat_template(writer, reader);
}

/* Tokens are bytes, by the characters that stand for them. */
static void put_bytes(GgufWriter *writer) {
    const int32_t kind = NORMAL;
    gguf_put_text(writer, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(writer, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_array(writer, "tokenizer.ggml.tokens", GGUF_TEXT, BYTES);
    for (int byte = 0; byte < BYTES; byte++) {
        unsigned char text[4];
        const int length = utf8_write(byte_character((unsigned char)byte), text);
        gguf_put_element_text(writer, (const char *)text, (size_t)length);
    }
    gguf_put_array(writer, "tokenizer.ggml.token_type", GGUF_I32, BYTES);
    for (int byte = 0; byte < BYTES; byte++) gguf_put_element(writer, &kind, sizeof(kind));
    gguf_put_array(writer, "tokenizer.ggml.merges", GGUF_TEXT, 0);
    gguf_put_flag(writer, "tokenizer.ggml.add_bos_token", false);
}

bool gguf_tokenizer_put(GgufWriter *writer, Arena *arena, const char *path, int64_t vocab,
                        GgufTokenizer *out, Diag *diag) {
    Reader reader = {.arena = arena, .out = out, .vocab = vocab, .diag = diag};
    *out = (GgufTokenizer){.kind = vocab == BYTES ? "bytes" : "none"};
    if (!path && vocab == BYTES) {
        put_bytes(writer);
        return true;
    }
    if (!path) {
        gguf_put_text(writer, "tokenizer.ggml.model", "none");
        return true;
    }
    bool fine = open_folder(&reader, path);
    reader.tokenizer = fine ? tokenizer_load(path, NULL, diag) : NULL;
    fine = reader.tokenizer && put_tokenizer(writer, &reader);
    tokenizer_destroy(reader.tokenizer);
    json_decref(reader.json);
    json_decref(reader.config);
    return fine;
}
