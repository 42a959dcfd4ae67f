/* Hugging Face's tokenizer.json: added tokens, and models of type BPE. */
#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/json_pieces.h"
#include "runtime/tokenizer/json_steps.h"
#include "runtime/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    Tokenizer *tokenizer;
    SourceLoc loc;
    Diag *diag;
    unsigned char *bytes;                /* room for any text of the file */
    LooseToken *loose, *by_id, *by_text; /* the last two: sort_loose */
    int n_loose, loose_capacity;
} Reader;

/* A token's bytes -> reader->bytes. False: it has a character that stands for no byte. */
static bool to_bytes(Reader *reader, const char *text, size_t length, size_t *out_length) {
    *out_length = length;
    if (!reader->tokenizer->byte_level) {
        memcpy(reader->bytes, text, length);
        return true;
    }
    size_t n = 0;
    for (size_t i = 0; i < length;) {
        uint32_t character;
        int bytes = utf8_read((const unsigned char *)text + i, length - i, &character);
        int byte = bytes ? byte_of_character(character) : -1;
        if (byte < 0) return false;
        reader->bytes[n++] = (unsigned char)byte;
        i += (size_t)bytes;
    }
    *out_length = n;
    return true;
}

/* An id within what is supported; false: reported. */
static bool read_id(const Reader *reader, const json_t *value, const char *text, uint32_t *out) {
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    *out = (uint32_t)id;
    if (id >= 0 && id < VOCABULARY_MOST_IDS) return true;
    diag_error(reader->diag, reader->loc, "the id of '%.60s' is not a whole number from 0 to %u",
               text, VOCABULARY_MOST_IDS - 1);
    return false;
}

static bool read_vocabulary(Reader *reader, const json_t *vocab) {
    Vocabulary *vocabulary = &reader->tokenizer->vocabulary;
    const char *text;
    json_t *value;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0) {
        diag_error(reader->diag, reader->loc, "model: it has no vocab");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)vocab, text, value) {
        uint32_t id, other;
        size_t length = strlen(text);
        if (!read_id(reader, value, text, &id)) return false;
        if (length == 0) continue; /* never made of anything */
        if (!to_bytes(reader, text, length, &length)) {
            ARENA_PUSH(reader->tokenizer->arena, reader->loose, reader->n_loose,
                       reader->loose_capacity, ((LooseToken){id, text, strlen(text)}));
            continue;
        }
        if (vocabulary_add(vocabulary, id, reader->bytes, length, &other)) continue;
        diag_error(reader->diag, reader->loc, "vocab: '%.60s' has the id %u of another", text, id);
        return false;
    }
    return true;
}

/* Two texts of a merge: "a b", or ["a", "b"]. */
static bool read_parts(const json_t *merge, const char *parts[2], size_t lengths[2]) {
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' ')) return false;
        parts[0] = text;
        lengths[0] = (size_t)(space - text);
        parts[1] = space + 1;
        lengths[1] = strlen(space + 1);
    } else {
        for (size_t i = 0; i < 2; i++) {
            parts[i] = json_string_value(json_array_get(merge, i));
            if (!parts[i]) return false;
            lengths[i] = strlen(parts[i]);
        }
        if (json_array_size(merge) != 2) return false;
    }
    return lengths[0] > 0 && lengths[1] > 0;
}

static bool read_merge(Reader *reader, const json_t *merge, size_t rank) {
    Vocabulary *vocabulary = &reader->tokenizer->vocabulary;
    const char *parts[2];
    size_t lengths[2], n;
    uint32_t ids[3] = {NO_TOKEN, NO_TOKEN, NO_TOKEN};
    if (!read_parts(merge, parts, lengths)) {
        diag_error(reader->diag, reader->loc, "merges[%zu] is not two tokens", rank);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (!to_bytes(reader, parts[i], lengths[i], &n)) continue;
        ids[i] = vocabulary_find(vocabulary, reader->bytes, n);
    }
    if (ids[0] != NO_TOKEN && ids[1] != NO_TOKEN) {
        size_t left, right;
        const unsigned char *bytes = vocabulary_bytes(vocabulary, ids[0], &left);
        memcpy(reader->bytes, bytes, left);
        bytes = vocabulary_bytes(vocabulary, ids[1], &right);
        memcpy(reader->bytes + left, bytes, right);
        ids[2] = vocabulary_find(vocabulary, reader->bytes, left + right);
    }
    for (int i = 0; i < 3; i++) {
        if (ids[i] != NO_TOKEN) continue;
        diag_error(reader->diag, reader->loc,
                   "merges[%zu], '%.*s' and '%.*s': %s is not in the vocab", rank,
                   (int)(lengths[0] < 60 ? lengths[0] : 60), parts[0],
                   (int)(lengths[1] < 60 ? lengths[1] : 60), parts[1],
                   i == 0   ? "the first"
                   : i == 1 ? "the second"
                            : "what they make together");
        return false;
    }
    vocabulary_add_pair(vocabulary, ids[0], ids[1], (uint32_t)rank, ids[2]);
    return true;
}

static bool read_merges(Reader *reader, const json_t *merges) {
    size_t i;
    const json_t *merge;
    if (!json_is_array(merges)) {
        diag_error(reader->diag, reader->loc, "model: it has no merges");
        return false;
    }
    json_array_foreach(merges, i, merge) {
        if (!read_merge(reader, merge, i)) return false;
    }
    return true;
}

/* --- added tokens --- */

static int loose_by_id(const void *left, const void *right) {
    const LooseToken *a = left, *b = right;
    return a->id != b->id ? (a->id < b->id ? -1 : 1) : 0;
}

static int loose_by_text(const void *left, const void *right) {
    const LooseToken *a = left, *b = right;
    return strcmp(a->text, b->text);
}

/* Copies of the loose tokens, sorted once: there may be as many as the vocabulary has. */
static void sort_loose(Reader *reader) {
    size_t n = (size_t)reader->n_loose;
    Arena *arena = reader->tokenizer->arena;
    reader->by_id = ARENA_ARRAY(arena, LooseToken, reader->n_loose + 1);
    reader->by_text = ARENA_ARRAY(arena, LooseToken, reader->n_loose + 1);
    if (n > 0) memcpy(reader->by_id, reader->loose, n * sizeof(LooseToken));
    if (n > 0) memcpy(reader->by_text, reader->loose, n * sizeof(LooseToken));
    qsort(reader->by_id, n, sizeof(LooseToken), loose_by_id);
    qsort(reader->by_text, n, sizeof(LooseToken), loose_by_text);
}

/* Loose tokens of its id or of its text must be both. */
static bool fits_loose(const Reader *reader, const AddedToken *token) {
    size_t n = (size_t)reader->n_loose;
    const LooseToken key = {token->id, token->text, token->length};
    const LooseToken *a = bsearch(&key, reader->by_id, n, sizeof(key), loose_by_id);
    const LooseToken *b = bsearch(&key, reader->by_text, n, sizeof(key), loose_by_text);
    return (!a || strcmp(a->text, token->text) == 0) && (!b || b->id == token->id);
}

/* What is known of the id and the text must be this token. */
static bool check_added(Reader *reader, const AddedToken *token) {
    const Tokenizer *tokenizer = reader->tokenizer;
    size_t length, n;
    vocabulary_bytes(&tokenizer->vocabulary, token->id, &length);
    bool same = length == 0;
    if (to_bytes(reader, token->text, token->length, &n)) {
        uint32_t id = vocabulary_find(&tokenizer->vocabulary, reader->bytes, n);
        same = id == token->id || (id == NO_TOKEN && length == 0);
    }
    if (same) same = fits_loose(reader, token);
    if (same && !added_tokens_by_id(&tokenizer->added, token->id)) return true;
    diag_error(reader->diag, reader->loc,
               "added token '%.60s' has the id %u, which is another token's, or another id in the "
               "vocab",
               token->text, token->id);
    return false;
}

/* One that is found in normalized text is so by what normalizing makes of its own. */
static bool add_token(Tokenizer *tokenizer, const AddedToken *token) {
    NormalText room = {.patterns = NULL};
    const unsigned char *found = (const unsigned char *)token->text;
    size_t n_found = token->length;
    bool good = (!token->normalized || normalize(&tokenizer->normalizer, found, n_found, true,
                                                 &room, &found, &n_found)) &&
                added_tokens_add(&tokenizer->added, token, found, n_found);
    normal_text_release(&room);
    return good;
}

static bool read_added_token(Reader *reader, const json_t *object, size_t index) {
    const char *text = json_string_value(json_object_get(object, "content"));
    AddedToken token = {.text = (char *)(uintptr_t)text};
    char where[40];
    snprintf(where, sizeof(where), "added_tokens[%zu]", index);
    if (!text) {
        diag_error(reader->diag, reader->loc, "%s: it has no content", where);
        return false;
    }
    token.length = strlen(text);
    SourceLoc loc = reader->loc;
    Diag *diag = reader->diag;
    token.normalized = true;
    if (!read_id(reader, json_object_get(object, "id"), text, &token.id) ||
        !json_read_bool(object, "special", where, &token.special, loc, diag) ||
        !json_read_bool(object, "single_word", where, &token.single_word, loc, diag) ||
        !json_read_bool(object, "lstrip", where, &token.left_strip, loc, diag) ||
        !json_read_bool(object, "rstrip", where, &token.right_strip, loc, diag) ||
        !json_read_bool(object, "normalized", where, &token.normalized, loc, diag)) {
        return false;
    }
    if (!check_added(reader, &token)) return false;
    if (add_token(reader->tokenizer, &token)) return true;
    diag_error(diag, loc, "%s: '%.60s' is empty, longer than %d bytes or there twice", where, text,
               ADDED_TOKEN_MOST_BYTES);
    return false;
}

static bool read_added_tokens(Reader *reader, const json_t *list) {
    enum { MOST_ADDED = 20000 }; /* each is compared with those before it */
    size_t i;
    const json_t *object;
    if (json_array_size(list) > MOST_ADDED) {
        diag_error(reader->diag, reader->loc, "%zu added tokens; at most %d are supported",
                   json_array_size(list), MOST_ADDED);
        return false;
    }
    sort_loose(reader);
    json_array_foreach(list, i, object) {
        if (!read_added_token(reader, object, i)) return false;
    }
    return true;
}

/* --- the model --- */

static bool check_absent(const Reader *reader, const json_t *model, const char *name) {
    const json_t *value = json_object_get(model, name);
    bool absent = !value || json_is_null(value) || json_is_false(value) ||
                  (json_is_number(value) && json_number_value(value) == 0) ||
                  (json_is_string(value) && !json_string_value(value)[0]);
    if (!absent) diag_error(reader->diag, reader->loc, "model: '%s' is not supported", name);
    return absent;
}

static bool read_unknown(Reader *reader, const json_t *model) {
    const char *text = NULL;
    size_t n;
    if (!json_read_text(model, "unk_token", "model", &text, reader->loc, reader->diag)) {
        return false;
    }
    if (!text || !*text) return true;
    if (to_bytes(reader, text, strlen(text), &n)) {
        reader->tokenizer->unknown =
            vocabulary_find(&reader->tokenizer->vocabulary, reader->bytes, n);
    }
    for (int i = 0; i < reader->n_loose; i++) {
        if (strcmp(reader->loose[i].text, text) == 0) {
            reader->tokenizer->unknown = reader->loose[i].id;
        }
    }
    return true;
}

/* BPE's dropout is for training, and its affixes are of kinds that nothing here merges. */
static bool read_bpe(Reader *reader, const json_t *model) {
    Tokenizer *tokenizer = reader->tokenizer;
    bool byte_fallback = false;
    SourceLoc loc = reader->loc;
    if (!json_read_bool(model, "byte_fallback", "model", &byte_fallback, loc, reader->diag) ||
        !json_read_bool(model, "fuse_unk", "model", &tokenizer->fuses_unknown, loc, reader->diag) ||
        !json_read_bool(model, "ignore_merges", "model", &tokenizer->whole_words, loc,
                        reader->diag) ||
        !check_absent(reader, model, "dropout") ||
        !check_absent(reader, model, "continuing_subword_prefix") ||
        !check_absent(reader, model, "end_of_word_suffix")) {
        return false;
    }
    if (!tokenizer->byte_level && !byte_fallback) {
        diag_error(reader->diag, loc,
                   "BPE without the pre-tokenizer ByteLevel or byte_fallback is not supported");
        return false;
    }
    return read_vocabulary(reader, json_object_get(model, "vocab")) &&
           read_merges(reader, json_object_get(model, "merges")) && read_unknown(reader, model);
}

static bool read_model(Reader *reader, const json_t *model) {
    Tokenizer *tokenizer = reader->tokenizer;
    SourceLoc loc = reader->loc;
    if (!json_is_object(model)) {
        diag_error(reader->diag, loc, "is not a tokenizer.json: it has no model");
        return false;
    }
    /* Older files do not say it. */
    const char *type = json_object_get(model, "unk_id")                     ? "Unigram"
                       : json_object_get(model, "max_input_chars_per_word") ? "WordPiece"
                                                                            : "BPE";
    if (!json_read_text(model, "type", "model", &type, loc, reader->diag)) return false;
    if (strcmp(type, "BPE") == 0) return read_bpe(reader, model);
    if (tokenizer->byte_level) {
        diag_error(reader->diag, loc, "ByteLevel with a model of type '%.60s' is not supported",
                   type);
        return false;
    }
    if (strcmp(type, "Unigram") == 0) return json_read_unigram(tokenizer, model, loc, reader->diag);
    if (strcmp(type, "WordPiece") == 0) {
        return json_read_wordpiece(tokenizer, model, loc, reader->diag) &&
               read_vocabulary(reader, json_object_get(model, "vocab")) &&
               read_unknown(reader, model);
    }
    diag_error(reader->diag, loc,
               "the model type '%.60s' is not supported; BPE, Unigram and WordPiece are", type);
    return false;
}

static void set_bytes(Tokenizer *tokenizer) {
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        char spelling[8];
        snprintf(spelling, sizeof(spelling), "<0x%02X>", b);
        tokenizer->byte_tokens[b] = tokenizer->byte_level
                                        ? vocabulary_find(&tokenizer->vocabulary, &byte, 1)
                                        : vocabulary_find(&tokenizer->vocabulary, spelling, 6);
    }
}

bool tokenizer_read_json(Tokenizer *tokenizer, const char *path, Diag *diag) {
    size_t length;
    Arena *scratch = arena_create();
    const char *text = file_read(scratch, path, TOKENIZER_MOST_FILE_BYTES, &length, diag);
    size_t skipped = text && length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    json_t *root = text ? json_parse_bytes(path, text + skipped, length - skipped, diag) : NULL;
    arena_destroy(scratch);
    if (!root) return false;
    Reader reader = {.tokenizer = tokenizer, .loc = {path, 0}, .diag = diag};
    reader.bytes = memory_alloc(2 * length + 1); /* two of its texts fit */
    tokenizer->format = "tokenizer.json";
    bool good =
        json_read_steps(tokenizer, root, path, diag) &&
        read_model(&reader, json_object_get(root, "model")) &&
        read_added_tokens(&reader, json_object_get(root, "added_tokens")) &&
        (tokenizer->kind == TOKENIZER_BPE || json_finish_pieces(tokenizer, reader.loc, diag));
    if (good) {
        set_bytes(tokenizer);
        tokenizer_finish(tokenizer, reader.loose, reader.n_loose);
    }
    free(reader.bytes);
    json_decref(root);
    return good;
}
