/* .tiktoken files: `base64 rank` a line. A token's rank is its id, and any two tokens whose bytes
 * together are a token's may be merged, at its rank. */
#include "ir/base/file.h"
#include "runtime/tokenizer/base64.h"
#include "runtime/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_TOKEN_BYTES = 1024, /* cl100k's and o200k's have at most 128 */
};
#define MOST_PAIR_WORK ((uint64_t)1 << 31) /* bytes looked at to find which pairs there are */

typedef struct SpecialToken {
    const char *pattern, *text;
    uint32_t id;
} SpecialToken;

/* The special tokens of OpenAI's vocabularies are not in their files. Each has its place where the
 * file ends before it. */
static const SpecialToken SPECIALS[] = {
    {"gpt2", "<|endoftext|>", 50256},          {"cl100k", "<|endoftext|>", 100257},
    {"cl100k", "<|fim_prefix|>", 100258},      {"cl100k", "<|fim_middle|>", 100259},
    {"cl100k", "<|fim_suffix|>", 100260},      {"cl100k", "<|endofprompt|>", 100276},
    {"o200k", "<|endoftext|>", 199999},        {"o200k", "<|endofprompt|>", 200018},
    {"llama3", "<|begin_of_text|>", 128000},   {"llama3", "<|end_of_text|>", 128001},
    {"llama3", "<|start_header_id|>", 128006}, {"llama3", "<|end_header_id|>", 128007},
    {"llama3", "<|eot_id|>", 128009},
};
enum { N_SPECIALS = sizeof(SPECIALS) / sizeof(SPECIALS[0]) };

/* What a file of that pattern has when it is the real one. */
static uint32_t expected_count(const char *pattern) {
    if (strcmp(pattern, "gpt2") == 0) return 50256;
    if (strcmp(pattern, "cl100k") == 0) return 100256;
    if (strcmp(pattern, "o200k") == 0) return 199998;
    if (strcmp(pattern, "llama3") == 0) return 128000;
    return 0;
}

/* bytes: [MOST_TOKEN_BYTES]. False: the line is none. */
static bool parse_line(const char *line, size_t length, unsigned char *bytes, size_t *out_n,
                       uint64_t *out_rank) {
    const char *space = memchr(line, ' ', length);
    if (!space || !base64_decode(line, (size_t)(space - line), bytes, MOST_TOKEN_BYTES, out_n)) {
        return false;
    }
    size_t at = (size_t)(space - line) + 1;
    if (*out_n == 0 || at == length || length - at > 10) return false;
    *out_rank = 0;
    for (; at < length; at++) {
        if (line[at] < '0' || line[at] > '9') return false;
        *out_rank = 10 * *out_rank + (uint64_t)(line[at] - '0');
    }
    return true;
}

static bool read_line(Tokenizer *tokenizer, const char *line, size_t length, SourceLoc loc,
                      Diag *diag) {
    unsigned char bytes[MOST_TOKEN_BYTES];
    size_t n;
    uint64_t rank;
    uint32_t other;
    if (!parse_line(line, length, bytes, &n, &rank)) {
        diag_error(diag, loc,
                   "tiktoken file: a line is a token in base64 (of at most %d bytes), a space and "
                   "its rank",
                   MOST_TOKEN_BYTES);
        return false;
    }
    if (rank >= VOCABULARY_MOST_IDS) {
        diag_error(diag, loc, "tiktoken file: rank %llu; ranks are below %u here",
                   (unsigned long long)rank, VOCABULARY_MOST_IDS);
        return false;
    }
    if (vocabulary_add(&tokenizer->vocabulary, (uint32_t)rank, bytes, n, &other)) {
        return true;
    }
    diag_error(diag, loc, "tiktoken file: %s is there twice",
               other != NO_TOKEN ? "this token" : "this rank");
    return false;
}

static bool read_lines(Tokenizer *tokenizer, const FileMap *map, const char *path, Diag *diag) {
    const char *at = (const char *)map->data, *end = at + map->length_bytes;
    for (int line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        const char *next = newline ? newline + 1 : end;
        if (length && at[length - 1] == '\r') length--;
        if (length && !read_line(tokenizer, at, length, (SourceLoc){path, line}, diag)) {
            return false;
        }
        at = next;
    }
    return true;
}

static bool add_pairs(Tokenizer *tokenizer, SourceLoc loc, Diag *diag) {
    Vocabulary *vocabulary = &tokenizer->vocabulary;
    uint64_t work = 0;
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        uint64_t length = vocabulary->lengths[id];
        work += length * length;
    }
    if (work > MOST_PAIR_WORK) {
        diag_error(diag, loc, "tiktoken file: too many tokens of too many bytes");
        return false;
    }
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(vocabulary, id, &length);
        for (size_t i = 1; i < length; i++) {
            uint32_t left = vocabulary_find(vocabulary, bytes, i);
            if (left == NO_TOKEN) continue;
            uint32_t right = vocabulary_find(vocabulary, bytes + i, length - i);
            if (right != NO_TOKEN) vocabulary_add_pair(vocabulary, left, right, id, id);
        }
    }
    return true;
}

static bool set_bytes(Tokenizer *tokenizer, SourceLoc loc, Diag *diag) {
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        tokenizer->byte_tokens[b] = vocabulary_find(&tokenizer->vocabulary, &byte, 1);
        if (tokenizer->byte_tokens[b] != NO_TOKEN) continue;
        diag_error(diag, loc, "tiktoken file: byte 0x%02x has no token: it is not whole", b);
        return false;
    }
    return true;
}

static void add_specials(Tokenizer *tokenizer, const char *pattern) {
    uint32_t expected = expected_count(pattern);
    for (int i = 0; i < N_SPECIALS && expected == tokenizer->vocabulary.n_tokens; i++) {
        const SpecialToken *special = &SPECIALS[i];
        if (strcmp(special->pattern, pattern) != 0) continue;
        AddedToken token = {.id = special->id,
                            .text = (char *)(uintptr_t)special->text,
                            .length = strlen(special->text),
                            .special = true};
        added_tokens_add(&tokenizer->added, &token, token.text, token.length);
    }
}

/* Whether the first line that is not empty is one of a tiktoken file. */
static bool begins_as_tiktoken(const FileMap *map) {
    const char *at = (const char *)map->data, *end = at + map->length_bytes;
    unsigned char bytes[MOST_TOKEN_BYTES];
    size_t n;
    uint64_t rank;
    while (at < end && (*at == '\r' || *at == '\n')) at++;
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    size_t length = (size_t)((newline ? newline : end) - at);
    if (length && at[length - 1] == '\r') length--;
    return length && parse_line(at, length, bytes, &n, &rank);
}

/* Says what is missing where no pattern is given: that, or all that makes a tokenizer. */
static void refuse_without_pattern(const char *path, Diag *diag) {
    SourceLoc loc = {path, 0};
    FileMap map;
    if (!file_map(path, &map, diag)) return;
    if (begins_as_tiktoken(&map)) {
        diag_error(diag, loc,
                   "a tiktoken file does not say how text is divided: give --pattern "
                   "gpt2|cl100k|llama3|o200k or a regular expression");
    } else {
        diag_error(diag, loc,
                   "is no tokenizer: neither a tokenizer.json, an object that has a model, nor a "
                   ".model of SentencePiece, nor tiktoken's lines of a token in base64 and its "
                   "rank");
    }
    file_unmap(&map);
}

bool tokenizer_read_tiktoken(Tokenizer *tokenizer, const char *path, const char *pattern,
                             Diag *diag) {
    SourceLoc loc = {path, 0};
    FileMap map;
    if (!pattern) {
        refuse_without_pattern(path, diag);
        return false;
    }
    const char *known = pattern_by_name(pattern);
    tokenizer->format = "tiktoken";
    tokenizer->byte_level = tokenizer->whole_words = true;
    tokenizer->pattern = arena_strdup(tokenizer->arena, known ? known : pattern);
    WordStep *step = &tokenizer->steps.items[0];
    step->pattern =
        pattern_compile(tokenizer->pattern, PATTERN_RUST, (SourceLoc){"--pattern", 0}, diag);
    if (!step->pattern) return false;
    tokenizer->steps.count = 1;
    if (!file_map(path, &map, diag)) return false;
    bool good = map.length_bytes > 0;
    if (!good) diag_error(diag, loc, "tiktoken file of 0 bytes");
    good = good && read_lines(tokenizer, &map, path, diag);
    file_unmap(&map);
    if (!good || !set_bytes(tokenizer, loc, diag) || !add_pairs(tokenizer, loc, diag)) return false;
    add_specials(tokenizer, pattern);
    tokenizer_finish(tokenizer, NULL, 0);
    return true;
}
