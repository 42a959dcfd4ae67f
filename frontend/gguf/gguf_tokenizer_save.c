#include "frontend/gguf/gguf_tokenizer.h"

#include "frontend/gguf/gguf_tokenizer_names.h"
#include "frontend/hf/hf_files.h"
#include "ir/base/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* llama.cpp's kinds of tokens (llama_token_attr). */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };
enum { MERGES_OF_TOKEN = 16, SOME_MERGES = 1000 }; /* published ones have 2 of a token */
static const char MARK[] = "\xe2\x96\x81";         /* of a space, U+2581 */

typedef struct Saver {
    const GgufFile *file;
    json_t *vocab, *added, *merges;
    const GgufPair *tokens, *kinds, *scores;
    Diag *diag;
} Saver;

/* A list that is there, of that kind, and as long as that of tokens. */
static const GgufPair *list_of(const Saver *saver, const char *key, GgufKind kind) {
    const GgufPair *pair = gguf_find(saver->file, key);
    const bool fits = pair && pair->is_array && pair->kind == kind &&
                      (!saver->tokens || pair->count == saver->tokens->count);
    if (fits) return pair;
    gguf_fail(saver->file->path, saver->diag, "has no list '%s' of its tokens", key);
    return NULL;
}

static void put(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) BUG("out of memory");
}

static bool read_tokens(Saver *saver) {
    const unsigned char *at = saver->tokens->data;
    for (uint64_t id = 0; id < saver->tokens->count; id++) {
        size_t length;
        const char *bytes = gguf_next_text(&at, &length);
        const char *text = arena_strndup(saver->file->arena, bytes, length);
        const int64_t kind = gguf_integer(saver->kinds, id);
        if (kind == UNUSED || length == 0) continue;
        if (!gguf_is_text(bytes, length)) {
            return gguf_fail(saver->file->path, saver->diag, "token %" PRIu64 " is not UTF-8", id);
        }
        if (json_object_get(saver->vocab, text)) {
            return gguf_fail(saver->file->path, saver->diag, "has the token %s twice",
                             hf_quoted(saver->file->arena, text));
        }
        if (kind == CONTROL || kind == USER_DEFINED || kind == UNKNOWN) {
            json_t *added = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                                      "content", text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                      "normalized", 0, "special", kind != USER_DEFINED);
            if (json_array_append_new(saver->added, added) != 0) BUG("out of memory");
        }
        put(saver->vocab, text, json_integer((json_int_t)id));
    }
    return true;
}

static void add_merge(Saver *saver, const char *text, size_t left, size_t length) {
    json_t *pair = json_pack("[s%, s%]", text, left, text + left, length - left);
    if (json_array_append_new(saver->merges, pair) != 0) BUG("out of memory");
}

/* "a b", where a may begin with a space. */
static bool read_merges(Saver *saver) {
    const GgufPair *merges = gguf_find(saver->file, "tokenizer.ggml.merges");
    if (!merges || !merges->is_array || merges->kind != GGUF_TEXT) {
        return gguf_fail(saver->file->path, saver->diag,
                         "has no list 'tokenizer.ggml.merges' of texts");
    }
    const unsigned char *at = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        size_t length;
        const char *text = gguf_next_text(&at, &length);
        const char *space = length > 2 ? memchr(text + 1, ' ', length - 1) : NULL;
        const size_t left = space ? (size_t)(space - text) : 0;
        if (!gguf_is_text(text, length)) {
            return gguf_fail(saver->file->path, saver->diag, "merge %" PRIu64 " is not UTF-8", i);
        }
        json_t *pair =
            space ? json_pack("[s%, s%]", text, left, space + 1, length - left - 1) : NULL;
        if (!pair)
            return gguf_fail(saver->file->path, saver->diag, "merge %" PRIu64 " is not two tokens",
                             i);
        if (json_array_append_new(saver->merges, pair) != 0) BUG("out of memory");
    }
    return true;
}

/* --- merges of scores: any two neighbours that make a token, the greatest score first --- */

typedef struct Scored {
    const char *text;
    size_t length;
    uint64_t id;
    float score;
} Scored;

static int compare_scored(const void *a, const void *b) {
    const Scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_piece(const Saver *saver, const char *text, size_t length) {
    const json_t *id = gguf_member(saver->vocab, text, length);
    return id && gguf_integer(saver->kinds, (uint64_t)json_integer_value(id)) == NORMAL;
}

/* Of one token. Of a vocabulary of every length of a run of letters there are as many as the square
 * of its size: false is more than *left. */
static bool make_merges_of(Saver *saver, const Scored *token, uint64_t *left) {
    for (size_t at = 1; at < token->length; at++) {
        const bool within = ((unsigned char)token->text[at] & 0xc0) == 0x80;
        if (within || !is_piece(saver, token->text, at) ||
            !is_piece(saver, token->text + at, token->length - at)) {
            continue;
        }
        if ((*left)-- == 0) return false;
        add_merge(saver, token->text, at, token->length);
    }
    return true;
}

static bool make_merges(Saver *saver) {
    const uint64_t n = saver->tokens->count;
    uint64_t left = MERGES_OF_TOKEN * n + SOME_MERGES;
    bool fine = true;
    const unsigned char *at = saver->tokens->data;
    Scored *all = memory_alloc((n + 1) * sizeof(*all));
    for (uint64_t id = 0; id < n; id++) {
        Scored *each = &all[id];
        each->text = gguf_next_text(&at, &each->length);
        each->id = id;
        each->score = (float)gguf_number(saver->scores, id);
        if (isfinite(each->score)) continue;
        free(all);
        return gguf_fail(saver->file->path, saver->diag,
                         "token %" PRIu64 " has a score that is not finite", id);
    }
    qsort(all, n, sizeof(*all), compare_scored);
    for (uint64_t i = 0; fine && i < n; i++) {
        if (gguf_integer(saver->kinds, all[i].id) != NORMAL) continue;
        fine = make_merges_of(saver, &all[i], &left);
    }
    free(all);
    if (fine) return true;
    return gguf_fail(saver->file->path, saver->diag,
                     "has tokens that are made of each other in too many ways: it is broken, or "
                     "made to be");
}

/* --- the file --- */

static json_t *bytes_json(const Saver *saver, const GgufPre *pre) {
    return json_pack(
        "{s:s, s:n, s:n, s:O, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:n, s:n, s:n, s:n, "
        "s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", saver->added, "normalizer",
        "pre_tokenizer", gguf_pre_json(pre), "post_processor", "decoder", "type", "ByteLevel",
        "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout",
        "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
        "byte_fallback", 0, "ignore_merges", pre->whole_words, "vocab", saver->vocab, "merges",
        saver->merges);
}

/* What ends up between words is the mark; one stands before a text, too, unless the file says no.
 */
static json_t *characters_json(const Saver *saver) {
    const GgufPair *flag = gguf_find(saver->file, "tokenizer.ggml.add_space_prefix");
    const bool prefix = !flag || flag->kind != GGUF_BOOL || flag->is_array || flag->data[0];
    int64_t unknown = 0;
    const char *unknown_text = NULL;
    gguf_count(saver->file, "tokenizer.ggml.unknown_token_id", &unknown);
    size_t i;
    const json_t *token;
    json_array_foreach(saver->added, i, token) {
        if (json_integer_value(json_object_get(token, "id")) != unknown) continue;
        unknown_text = json_string_value(json_object_get(token, "content"));
    }
    json_t *marks = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                              "content", MARK);
    json_t *normalizers =
        prefix ? json_pack("[{s:s, s:s}, o]", "type", "Prepend", "prepend", MARK, marks)
               : json_pack("[o]", marks);
    json_t *decoders =
        json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String",
                  MARK, "content", " ", "type", "ByteFallback", "type", "Fuse");
    if (prefix) {
        json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                  "content", " ", "start", 1, "stop", 0));
    }
    return json_pack(
        "{s:s, s:n, s:n, s:O, s:{s:s, s:o}, s:n, s:n, s:{s:s, s:o}, s:{s:s, s:n, s:s?, s:n, s:n, "
        "s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", saver->added, "normalizer",
        "type", "Sequence", "normalizers", normalizers, "pre_tokenizer", "post_processor",
        "decoder", "type", "Sequence", "decoders", decoders, "model", "type", "BPE", "dropout",
        "unk_token", unknown_text, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1,
        "byte_fallback", 1, "ignore_merges", 0, "vocab", saver->vocab, "merges", saver->merges);
}

static json_t *read_all(Saver *saver) {
    const char *model = gguf_text(saver->file, "tokenizer.ggml.model");
    const char *name = gguf_text(saver->file, "tokenizer.ggml.pre");
    const bool bytes = model && strcmp(model, "gpt2") == 0;
    const bool characters = model && strcmp(model, "llama") == 0;
    const GgufPre *pre = bytes && name ? gguf_pre_named(name) : NULL;
    if (!bytes && !characters) {
        gguf_fail(saver->file->path, saver->diag,
                  "'tokenizer.ggml.model' is %s; gpt2 and llama can be saved as tokenizer.json",
                  model ? hf_quoted(saver->file->arena, model) : "missing");
        return NULL;
    }
    if (bytes && !pre) {
        gguf_fail(saver->file->path, saver->diag,
                  "'tokenizer.ggml.pre' is %s, whose words are not known here",
                  name ? hf_quoted(saver->file->arena, name) : "missing");
        return NULL;
    }
    saver->tokens = list_of(saver, "tokenizer.ggml.tokens", GGUF_TEXT);
    saver->kinds = saver->tokens ? list_of(saver, "tokenizer.ggml.token_type", GGUF_I32) : NULL;
    if (!saver->kinds || !read_tokens(saver)) return NULL;
    if (bytes) return read_merges(saver) ? bytes_json(saver, pre) : NULL;
    saver->scores = list_of(saver, "tokenizer.ggml.scores", GGUF_F32);
    return saver->scores && make_merges(saver) ? characters_json(saver) : NULL;
}

bool gguf_tokenizer_save(const GgufFile *file, const char *path, Diag *diag) {
    Saver saver = {.file = file,
                   .vocab = json_object(),
                   .added = json_array(),
                   .merges = json_array(),
                   .diag = diag};
    json_t *json = read_all(&saver);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    const bool fine = text && file_write(path, text, strlen(text), diag);
    free(text);
    json_decref(json);
    json_decref(saver.vocab);
    json_decref(saver.added);
    json_decref(saver.merges);
    return fine;
}
