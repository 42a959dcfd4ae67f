#include "runtime/tokenizer/tokenizer.h"

#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/space_words.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

Tokenizer *tokenizer_create(void) {
    Tokenizer *tokenizer = memory_zeroed(1, sizeof(*tokenizer));
    vocabulary_init(&tokenizer->vocabulary);
    added_tokens_init(&tokenizer->added);
    tokenizer->unknown = NO_TOKEN;
    memset(tokenizer->byte_tokens, 0xff, sizeof(tokenizer->byte_tokens));
    tokenizer->arena = arena_create();
    return tokenizer;
}

void tokenizer_destroy(Tokenizer *tokenizer) {
    if (!tokenizer) return;
    vocabulary_release(&tokenizer->vocabulary);
    added_tokens_release(&tokenizer->added);
    normalizer_release(&tokenizer->normalizer);
    word_steps_release(&tokenizer->steps);
    pieces_release(&tokenizer->pieces);
    free(tokenizer->texts);
    free(tokenizer->text_begins);
    free(tokenizer->added_index);
    arena_destroy(tokenizer->arena);
    free(tokenizer);
}

typedef enum FileKind { FILE_TIKTOKEN, FILE_JSON, FILE_SENTENCEPIECE } FileKind;

/* JSON begins with a brace, which no base64 has. Before anything of the file is read its size is
 * looked at. */
static bool find_kind(const char *path, FileKind *out, Diag *diag) {
    FileMap map;
    if (!file_map(path, &map, diag)) return false;
    if (map.length_bytes > TOKENIZER_MOST_FILE_BYTES) {
        diag_error(diag, (SourceLoc){path, 0}, "has %zu bytes; at most %d are read of a tokenizer",
                   map.length_bytes, TOKENIZER_MOST_FILE_BYTES);
        file_unmap(&map);
        return false;
    }
    size_t at = 0;
    if (map.length_bytes >= 3 && memcmp(map.data, "\xef\xbb\xbf", 3) == 0) at = 3;
    while (at < map.length_bytes && isspace(map.data[at])) at++;
    *out = tokenizer_is_sentencepiece(map.data, map.length_bytes) ? FILE_SENTENCEPIECE
           : at < map.length_bytes && map.data[at] == '{'         ? FILE_JSON
                                                                  : FILE_TIKTOKEN;
    file_unmap(&map);
    return true;
}

static Tokenizer *load_file(const char *path, const char *pattern, Diag *diag) {
    FileKind kind;
    if (!find_kind(path, &kind, diag)) return NULL;
    if (kind != FILE_TIKTOKEN && pattern) {
        diag_error(diag, NO_LOC, "--pattern: %s has its own; only tiktoken files need one", path);
        return NULL;
    }
    Tokenizer *tokenizer = tokenizer_create();
    tokenizer->path = arena_strdup(tokenizer->arena, path);
    if (kind == FILE_JSON            ? tokenizer_read_json(tokenizer, path, diag)
        : kind == FILE_SENTENCEPIECE ? tokenizer_read_sentencepiece(tokenizer, path, diag)
                                     : tokenizer_read_tiktoken(tokenizer, path, pattern, diag)) {
        tokenizer_divide_at_spaces(tokenizer);
        return tokenizer;
    }
    tokenizer_destroy(tokenizer);
    return NULL;
}

Tokenizer *tokenizer_load(const char *path, const char *pattern, Diag *diag) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return load_file(path, pattern, diag);
    Arena *arena = arena_create();
    const char *file = arena_printf(arena, "%s/tokenizer.json", path);
    const char *model = arena_printf(arena, "%s/tokenizer.model", path);
    const bool has_json = stat(file, &st) == 0, has_model = stat(model, &st) == 0;
    Tokenizer *tokenizer = NULL;
    if (has_json || has_model) {
        tokenizer = load_file(has_json ? file : model, pattern, diag);
    } else {
        diag_error(diag, (SourceLoc){path, 0},
                   "is a folder with neither a tokenizer.json nor a tokenizer.model");
    }
    arena_destroy(arena);
    return tokenizer;
}

/* --- characters for bytes --- */

static bool stands_for_itself(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

uint32_t byte_character(unsigned char byte) {
    uint32_t next = 0x100;
    if (stands_for_itself(byte)) return byte;
    for (uint32_t b = 0; b < byte; b++) next += !stands_for_itself(b);
    return next;
}

int byte_of_character(uint32_t character) {
    if (character < 0x100) return stands_for_itself(character) ? (int)character : -1;
    uint32_t index = character - 0x100; /* 0x00..0x20, 0x7f..0xa0, 0xad */
    if (index <= 0x20) return (int)index;
    if (index <= 0x20 + 0x22) return (int)(index - 0x21 + 0x7f);
    return index == 0x43 ? 0xad : -1;
}

/* --- tables by id --- */

/* A token's text where characters are spelled: U+2581 is a space; bytes: <0x0A> is one. */
static size_t decode_spelling(const unsigned char *spelling, size_t length, bool bytes, char *out) {
    static const char SPACE[] = "\xe2\x96\x81";
    size_t n = 0;
    if (bytes && length == 6 && memcmp(spelling, "<0x", 3) == 0 && spelling[5] == '>' &&
        isxdigit(spelling[3]) && isxdigit(spelling[4])) {
        char digits[3] = {(char)spelling[3], (char)spelling[4], '\0'};
        out[0] = (char)strtol(digits, NULL, 16);
        return 1;
    }
    for (size_t i = 0; i < length;) {
        if (length - i >= 3 && memcmp(spelling + i, SPACE, 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = (char)spelling[i++];
        }
    }
    return n;
}

/* A piece's text in WordPiece: with the space before it that a piece within a word lacks, and that
 * marks and suffixes of English lose where the decoder cleans up. */
static size_t decode_piece(const Tokenizer *tokenizer, const char *piece, size_t length,
                           char *out) {
    static const char *const NO_SPACE[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    size_t n_prefix = strlen(tokenizer->inner_prefix), n = 0;
    bool spaced = true;
    if (n_prefix && length >= n_prefix && memcmp(piece, tokenizer->inner_prefix, n_prefix) == 0) {
        memcpy(out, piece + n_prefix, length - n_prefix);
        return length - n_prefix;
    }
    for (size_t i = 0; tokenizer->cleans_up && i < sizeof(NO_SPACE) / sizeof(NO_SPACE[0]); i++) {
        size_t n_text = strlen(NO_SPACE[i]);
        spaced &= length < n_text || memcmp(piece, NO_SPACE[i], n_text) != 0;
    }
    if (spaced) out[n++] = ' ';
    memcpy(out + n, piece, length);
    return n + length;
}

static void count_ids(Tokenizer *tokenizer, const LooseToken *loose, int n_loose) {
    uint32_t n_ids = tokenizer->vocabulary.n_ids;
    for (int i = 0; i < tokenizer->added.count; i++) {
        uint32_t id = tokenizer->added.items[i].id;
        if (id >= n_ids) n_ids = id + 1;
    }
    for (int i = 0; i < n_loose; i++) {
        if (loose[i].id >= n_ids) n_ids = loose[i].id + 1;
    }
    tokenizer->n_ids = n_ids;
}

void tokenizer_finish(Tokenizer *tokenizer, const LooseToken *loose, int n_loose) {
    count_ids(tokenizer, loose, n_loose);
    size_t n_ids = tokenizer->n_ids, total = tokenizer->vocabulary.n_bytes + n_ids + 1;
    int32_t *loose_index = memory_alloc((n_ids + 1) * sizeof(int32_t));
    tokenizer->added_index = memory_alloc((n_ids + 1) * sizeof(int32_t));
    tokenizer->text_begins = memory_zeroed(n_ids + 1, sizeof(size_t));
    memset(tokenizer->added_index, 0xff, (n_ids + 1) * sizeof(int32_t));
    memset(loose_index, 0xff, (n_ids + 1) * sizeof(int32_t));
    for (int i = 0; i < tokenizer->added.count; i++) {
        tokenizer->added_index[tokenizer->added.items[i].id] = i;
        total += tokenizer->added.items[i].length;
    }
    for (int i = 0; i < n_loose; i++) {
        loose_index[loose[i].id] = i;
        total += loose[i].length;
    }
    tokenizer->texts = memory_alloc(total);
    size_t at = 0;
    for (uint32_t id = 0; id < n_ids; id++) {
        size_t length;
        const void *bytes = vocabulary_bytes(&tokenizer->vocabulary, id, &length);
        tokenizer->text_begins[id] = at;
        if (tokenizer->added_index[id] >= 0) {
            const AddedToken *token = &tokenizer->added.items[tokenizer->added_index[id]];
            bytes = token->text;
            length = token->length;
        } else if (loose_index[id] >= 0) {
            bytes = loose[loose_index[id]].text;
            length = loose[loose_index[id]].length;
        } else if (!tokenizer->byte_level && tokenizer->kind != TOKENIZER_WORDPIECE) {
            bool spells = tokenizer->kind == TOKENIZER_BPE || tokenizer->pieces.byte_fallback;
            at += decode_spelling(bytes, length, spells, tokenizer->texts + at);
            length = 0;
        }
        if (length && tokenizer->kind == TOKENIZER_WORDPIECE) {
            at += decode_piece(tokenizer, bytes, length, tokenizer->texts + at);
            length = 0;
        }
        if (length) memcpy(tokenizer->texts + at, bytes, length);
        at += length;
    }
    tokenizer->text_begins[n_ids] = at;
    free(loose_index);
}

uint32_t tokenizer_count_tokens(const Tokenizer *tokenizer) {
    uint32_t count = 0;
    size_t length;
    for (uint32_t id = 0; id < tokenizer->n_ids; id++) {
        tokenizer_text(tokenizer, id, &length);
        count += length > 0;
    }
    return count;
}

/* --- names --- */

uint32_t tokenizer_end_of_text(const Tokenizer *tokenizer) {
    static const char *const NAMES[] = {
        "<|endoftext|>",       "<|end_of_text|>",       "</s>", "<eos>", "<|eos|>",
        "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>", "[SEP]"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        const AddedToken *token = added_tokens_by_text(&tokenizer->added, NAMES[i]);
        if (token) return token->id;
    }
    return NO_TOKEN;
}

uint32_t tokenizer_find_added(const Tokenizer *tokenizer, const char *name, const char *option,
                              Diag *diag) {
    const AddedToken *token = added_tokens_by_text(&tokenizer->added, name);
    if (token) return token->id;
    if (strcmp(name, "auto") == 0) {
        uint32_t id = tokenizer_end_of_text(tokenizer);
        if (id == NO_TOKEN) {
            diag_error(diag, NO_LOC,
                       "--%s auto: the tokenizer has no token of a known name that ends a text; "
                       "`perilune tokenizer show` lists those that it has",
                       option);
        }
        return id;
    }
    char *end;
    errno = 0;
    unsigned long long id = strtoull(name, &end, 10);
    if (isdigit((unsigned char)name[0]) && !*end && !errno && id < tokenizer->n_ids) {
        size_t length;
        tokenizer_text(tokenizer, (uint32_t)id, &length);
        if (length) return (uint32_t)id;
    }
    diag_error(diag, NO_LOC,
               "--%s: the tokenizer has no special token '%s'; `perilune tokenizer show` lists "
               "them",
               option, name);
    return NO_TOKEN;
}
