/* Tokenizers against what Hugging Face's tokenizers, tiktoken and SentencePiece make of hard texts
 * (tests/data/tokenizers, made by tests/reference/compare_*.py), and against themselves:
 * round trips, long words, one thread and several. Would catch: merges in another order, text
 * divided elsewhere, bytes that are lost, a file from outside that crashes or hangs the reader.
 */
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/merge.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#define DATA "tests/data/tokenizers/"

static char folder[] = "/tmp/test_tokenizer-XXXXXX";
static Arena *arena;

static uint32_t random_state = 12345;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Tokenizer *load(const char *path, const char *pattern) {
    Diag *diag = diag_create();
    Tokenizer *tokenizer = tokenizer_load(path, pattern, diag);
    CHECK(tokenizer, "%s", diag_text(diag));
    diag_destroy(diag);
    return tokenizer;
}

static bool encode(Encoder *encoder, const void *text, size_t length, bool special,
                   TokenList *out) {
    Diag *diag = diag_create();
    EncoderOutput output = {.tokens = out};
    out->count = 0;
    bool good = encoder_encode(encoder, text, length, special, &output, "test", diag);
    CHECK(good, "%s", diag_text(diag));
    diag_destroy(diag);
    return good;
}

/* --- references --- */

static void compare(Encoder *encoder, const json_t *line, const char *member, bool special,
                    int number) {
    const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, member);
    TokenList tokens = {0};
    if (!ids) return;
    encode(encoder, json_string_value(text), json_string_length(text), special, &tokens);
    CHECK(tokens.count == json_array_size(ids), "line %d: %zu tokens instead of %zu of '%.60s'",
          number, tokens.count, json_array_size(ids), json_string_value(text));
    for (size_t i = 0; i < tokens.count && i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        CHECK((json_int_t)tokens.items[i] == id, "line %d: token %zu is %u, not %lld, of '%.60s'",
              number, i, tokens.items[i], (long long)id, json_string_value(text));
    }
    token_list_release(&tokens);
}

/* The ids of a line -> its text, where it is told. */
static void compare_decoded(const Tokenizer *tokenizer, const json_t *line, int number) {
    const json_t *ids = json_object_get(line, "ids"), *id;
    const char *decoded = json_string_value(json_object_get(line, "decoded"));
    StrBuf text = strbuf_create();
    size_t i, length;
    json_array_foreach(ids, i, id) {
        const char *part = tokenizer_text(tokenizer, (uint32_t)json_integer_value(id), &length);
        bool skips = tokenizer->strips_space && i == 0 && length > 0 && part[0] == ' ';
        strbuf_put_bytes(&text, part + skips, length - skips);
    }
    CHECK(!decoded || strcmp(decoded, text.text) == 0, "line %d: decoded to '%s', not '%s'", number,
          text.text, decoded);
    strbuf_destroy(&text);
}

static void test_reference(const char *file, const char *cases, const char *pattern) {
    char name[128];
    snprintf(name, sizeof(name), "%s: the tokens of the reference", cases);
    check_begin(name);
    Diag *diag = diag_create();
    Tokenizer *tokenizer = load(arena_printf(arena, DATA "%s", file), pattern);
    size_t length;
    char *text =
        file_read(arena, arena_printf(arena, DATA "%s.cases.jsonl", cases), 1 << 20, &length, diag);
    CHECK(text, "%s", diag_text(diag));
    if (tokenizer && text) {
        Encoder *encoder = encoder_create(tokenizer);
        int number = 0;
        for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
            json_t *line = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
            CHECK(line, "line %d is no JSON", number + 1);
            compare(encoder, line, "ids", false, ++number);
            compare(encoder, line, "special", true, number);
            compare_decoded(tokenizer, line, number);
            json_decref(line);
        }
        CHECK(number > 60, "only %d cases", number);
        encoder_destroy(encoder);
    }
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

/* --- round trips --- */

static void decode(const Tokenizer *tokenizer, const TokenList *tokens, StrBuf *out) {
    for (size_t i = 0; i < tokens->count; i++) {
        size_t length;
        const char *text = tokenizer_text(tokenizer, tokens->items[i], &length);
        CHECK(length > 0, "token %u has no text", tokens->items[i]);
        strbuf_put_bytes(out, text, length);
    }
}

/* Bytes of all kinds: letters, spaces, halves of characters, anything. */
static size_t random_bytes(unsigned char *out, size_t most) {
    static const char *const PARTS[] = {
        " the",          "\xc3\xa9", "\xe2\x82", "\xf0\x9f\x98\x80", "\xff",      "\xed\xa0\x80",
        "1234",          "\r\n",     "'ll",      "\xe2\x96\x81",     "e\xcc\x81", "\xc0\xaf",
        "<|endoftext|>", "    "};
    size_t n = 0, length = random_below((uint32_t)most - 20);
    while (n < length) {
        const char *part = PARTS[random_below(14)];
        if (random_below(3) == 0) {
            out[n++] = (unsigned char)random_below(256);
        } else {
            memcpy(out + n, part, strlen(part));
            n += strlen(part);
        }
    }
    return n;
}

static void test_round_trip(const char *file, const char *pattern, bool in_order) {
    char name[128];
    snprintf(name, sizeof(name), "%s: any bytes come back", file);
    check_begin(name);
    Tokenizer *tokenizer = load(arena_printf(arena, DATA "%s", file), pattern);
    if (!tokenizer) return;
    Encoder *encoder = encoder_create(tokenizer);
    TokenList tokens = {0};
    unsigned char bytes[400];
    for (int round = 0; round < 2000; round++) {
        size_t n = random_bytes(bytes, sizeof(bytes));
        StrBuf back = strbuf_create();
        encode(encoder, bytes, n, random_below(2), &tokens);
        decode(tokenizer, &tokens, &back);
        bool same = back.length == n && memcmp(back.text, bytes, n) == 0;
        CHECK(same || !in_order, "round %d: %zu bytes became %zu", round, n, back.length);
        strbuf_destroy(&back);
    }
    token_list_release(&tokens);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
}

/* --- long words --- */

/* What merging means, as slowly as it is said. */
static size_t merge_slowly(const Vocabulary *vocabulary, uint32_t *symbols, size_t n) {
    for (;;) {
        const PairSlot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const PairSlot *slot = vocabulary_find_pair(vocabulary, symbols[i], symbols[i + 1]);
            if (slot && (!best || slot->rank < best->rank)) {
                best = slot;
                at = i;
            }
        }
        if (!best) return n;
        symbols[at] = best->merged;
        memmove(symbols + at + 1, symbols + at + 2, (n - at - 2) * sizeof(*symbols));
        n--;
    }
}

static void test_merge(void) {
    check_begin("words of all lengths are merged as by the slowest way");
    Vocabulary vocabulary;
    MergeSpace space = {0};
    uint32_t other;
    vocabulary_init(&vocabulary);
    for (uint32_t id = 0; id < 3; id++) vocabulary_add(&vocabulary, id, &"abc"[id], 1, &other);
    for (uint32_t id = 3; id < 120; id++) { /* of random merges, several ways to one token */
        uint32_t left = random_below(id), right = random_below(id);
        vocabulary_add_pair(&vocabulary, left, right, random_below(60), id);
    }
    for (int round = 0; round < 3000; round++) {
        uint32_t symbols[200], slow[200];
        size_t n = 1 + random_below(round % 3 ? 60 : 200);
        for (size_t i = 0; i < n; i++) slow[i] = symbols[i] = random_below(1 + round % 3);
        size_t left = merge_word(&vocabulary, &space, symbols, n);
        size_t expected = merge_slowly(&vocabulary, slow, n);
        CHECK(left == expected && memcmp(symbols, slow, left * sizeof(*slow)) == 0,
              "round %d: %zu symbols became %zu, not %zu", round, n, left, expected);
    }
    merge_release(&space);
    vocabulary_release(&vocabulary);
}

static void test_long_word(void) {
    check_begin("a word of a million letters takes no time to speak of");
    Tokenizer *tokenizer = load(DATA "gpt2.json", NULL);
    if (!tokenizer) return;
    Encoder *encoder = encoder_create(tokenizer);
    size_t n = 1 << 20;
    TokenList tokens = {0};
    for (int kind = 0; kind < 4; kind++) {
        unsigned char *text = malloc(n);
        for (size_t i = 0; i < n; i++) {
            text[i] = (unsigned char)(kind == 0   ? 'a'
                                      : kind == 1 ? ' '
                                      : kind == 2 ? "aeinrst"[random_below(7)]
                                                  : 0x80);
        }
        double begin = seconds_now();
        encode(encoder, text, n, false, &tokens);
        double seconds = seconds_now() - begin;
        CHECK(seconds < 20, "kind %d: %.1f s", kind, seconds);
        free(text);
    }
    token_list_release(&tokens);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
}

/* --- one thread and several --- */

static bool append(void *user, const uint32_t *tokens, const unsigned char *marks, size_t count,
                   Diag *diag) {
    (void)marks;
    (void)diag;
    TokenList *list = user;
    token_list_reserve(list, count);
    memcpy(list->items + list->count, tokens, count * sizeof(*tokens));
    list->count += count;
    return true;
}

/* Text that is hard to begin in the middle of: runs longer than a chunk, digits by threes. */
static size_t make_long_text(unsigned char *out, size_t most) {
    size_t n = 0;
    unsigned char part[400];
    while (n + 700000 < most) {
        size_t run = random_below(40) ? 0 : 1 + random_below(600000);
        unsigned char letter = (unsigned char)"a1 \n"[random_below(4)];
        memset(out + n, letter, run);
        n += run;
        size_t length = random_bytes(part, sizeof(part));
        memcpy(out + n, part, length);
        n += length;
    }
    return n;
}

static void test_threads(const char *file, const char *pattern, const char *what) {
    char name[128];
    snprintf(name, sizeof(name), "%s: a long document by several threads, %s", file, what);
    check_begin(name);
    bool valid = strcmp(what, "UTF-8") == 0;
    Tokenizer *tokenizer = load(arena_printf(arena, DATA "%s", file), pattern);
    if (!tokenizer) return;
    Diag *diag = diag_create();
    size_t most = VARIANT_STEP > 1 ? 2 << 20 : 6 << 20;
    unsigned char *text = malloc(most);
    size_t n = make_long_text(text, most);
    for (size_t i = 0; valid && i < n; i++) {
        if (text[i] >= 0x80) text[i] = 'x';
    }
    const char *path = arena_printf(arena, "%s/long.txt", folder);
    CHECK(file_write(path, text, n, diag), "%s", diag_text(diag));
    TokenList expected = {0};
    Encoder *encoder = encoder_create(tokenizer);
    encode(encoder, text, n, false, &expected);
    CorpusTotals totals;
    CorpusOptions options = {
        .paths = &path, .n_paths = 1, .field = "text", .first = NO_TOKEN, .last = NO_TOKEN};
    for (options.n_threads = VARIANT_STEP > 1 ? 3 : 1; options.n_threads <= 3;
         options.n_threads += 2) {
        TokenList tokens = {0};
        CHECK(corpus_encode(tokenizer, &options, append, &tokens, &totals, diag), "%s",
              diag_text(diag));
        CHECK(tokens.count == expected.count && totals.n_tokens == (int64_t)tokens.count &&
                  memcmp(tokens.items, expected.items, tokens.count * sizeof(uint32_t)) == 0,
              "%d threads: %zu tokens instead of %zu", options.n_threads, tokens.count,
              expected.count);
        token_list_release(&tokens);
    }
    WordCounts counts = {0};
    int64_t pruned, n_bytes = 0;
    added_tokens_release(&tokenizer->added); /* they are no words */
    CHECK(corpus_count(tokenizer, &options, (size_t)1 << 30, &counts, &pruned, &totals, diag), "%s",
          diag_text(diag));
    for (size_t i = 0; i < counts.n_items; i++) {
        CHECK(counts.items[i].count >= 0, "a word is there less than never");
        n_bytes += counts.items[i].count * counts.items[i].length;
    }
    /* Normalizers and pre-tokenizers of other kinds leave bytes out. */
    CHECK((!tokenizer->byte_level || n_bytes == (int64_t)n) && pruned == 0,
          "%lld bytes counted of %zu", (long long)n_bytes, n);
    word_counts_release(&counts);
    encoder_destroy(encoder);
    token_list_release(&expected);
    free(text);
    diag_destroy(diag);
    tokenizer_destroy(tokenizer);
}

/* Else each chunk of a text that is one long word would find and merge all that is left of it. */
static void test_long_chunk(void) {
    check_begin("a chunk ends before a piece that goes on behind what it looks at");
    enum { LENGTH = 1 << 20, BEGIN = 1 << 18, SEEN = 1 << 19 };
    Tokenizer *tokenizer = load(DATA "gpt2.json", NULL);
    if (!tokenizer) return;
    Encoder *encoder = encoder_create(tokenizer);
    Diag *diag = diag_create();
    TokenList tokens = {0};
    EncoderOutput out = {.tokens = &tokens};
    unsigned char *text = malloc(LENGTH);
    memset(text, 'a', LENGTH);
    text[BEGIN + 2] = ' ';
    Chunk chunk = {.text = text, .length = LENGTH, .begin = BEGIN, .until = SEEN, .seen = SEEN};
    CHECK(encoder_encode_chunk(encoder, &chunk, &out, "test", diag), "%s", diag_text(diag));
    CHECK(chunk.end == BEGIN + 2 && tokens.count > 0 && tokens.count <= 2,
          "%zu tokens of %zu bytes", tokens.count, chunk.end - BEGIN);
    free(text);
    token_list_release(&tokens);
    diag_destroy(diag);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
}

/* --- files that are wrong --- */

static void refuses_text(const char *name, const char *text, const char *pattern,
                         const char *expected) {
    Diag *diag = diag_create();
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    CHECK(file_write(path, text, strlen(text), diag), "%s", diag_text(diag));
    Tokenizer *tokenizer = tokenizer_load(path, pattern, diag);
    CHECK(!tokenizer && diag_error_count(diag) == 1 && strstr(diag_text(diag), expected),
          "said '%s' instead of '%s'", diag_text(diag), expected);
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

#define LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

#define UNIGRAM(vocab) "\"model\":{\"type\":\"Unigram\",\"vocab\":[" vocab "]}"
#define CHARSMAP(text)                                                                             \
    "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" text "\"}"

static void test_wrong_json(void) {
    static const char *const CASES[][2] = {
        {"{", "JSON: "},
        {"{}", "no model"},
        {"{\"model\":{\"type\":\"WordLevel\"}}", "the model type 'WordLevel' is not supported"},
        {"{" MODEL "}", "without the pre-tokenizer ByteLevel"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "'Whitespace'"},
        {"{" MODEL "," LEVEL ",\"normalizer\":{\"type\":\"Truncate\"}}", "'Truncate'"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", "not a list of 1 to"},
        {"{" UNIGRAM("[\"a\"]") "}", "vocab[0] is not a piece and its score"},
        {"{" UNIGRAM("[\"a\",0],[\"a\",0]") "}", "vocab[1], 'a', is there twice"},
        {"{\"model\":{\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unk_id is not the number of a piece"},
        {"{\"model\":{\"unk_id\":1,\"vocab\":[[\"a\",0],[\"\",0]]}}", "number of an empty piece"},
        {"{" UNIGRAM("[\"a\",0]") "," LEVEL "}", "ByteLevel with a model of type 'Unigram'"},
        {"{" UNIGRAM("[\"a\",0]") "," CHARSMAP("YQ") "}", "no base64"},
        {"{" UNIGRAM("[\"a\",0]") "," CHARSMAP("/////w==") "}", "the trie does not fit"},
        {"{" UNIGRAM("[\"a\",0]") "," CHARSMAP("BAAAAAAAAAD/") "}", "not UTF-8"},
        {"{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":0}}", "max_input_chars"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":[]}}", "no vocab"},
        {"{" LEVEL ",\"model\":{\"vocab\":{},\"merges\":[]}}", "no vocab"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0}}}", "no merges"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "the id of 'a'"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", "the id of 'a'"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0 of another"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "duplicate"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "not two tokens"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "not two tokens"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "not two tokens"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", "not two tokens"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"b a\"]}}", "the first is not"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "the second is not"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "make together"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "'dropout'"},
        {"{" LEVEL ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"x\"}}",
         "'end_of_word_suffix'"},
        {"{" MODEL "," LEVEL ",\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]}", "has the id 0"},
        {"{" MODEL "," LEVEL ",\"added_tokens\":[{\"id\":5,\"content\":\"a\"}]}", "has the id 5"},
        {"{" MODEL "," LEVEL ",\"added_tokens\":[{\"id\":5}]}", "no content"},
        {"{" MODEL "," LEVEL ",\"added_tokens\":[{\"id\":5,\"content\":\"\"}]}", "is empty"},
        {"{" MODEL "," LEVEL ",\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"special\":1}]}",
         "neither true nor false"},
    };
    check_begin("what is wrong or not supported in a tokenizer.json is said in a line");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        refuses_text("wrong.json", CASES[i][0], NULL, CASES[i][1]);
    }
}

/* Found by what the normalizer makes of their text, which here is another number of bytes. */
static void test_normalized_added(void) {
    static const char FILE_TEXT[] =
        "{" MODEL "," LEVEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"NFKD\"},{\"type\":\"Lowercase\"}]},\"added_tokens\":["
        "{\"id\":3,\"content\":\"\u00c5\",\"normalized\":true},"
        "{\"id\":4,\"content\":\"\uff21\uff22\",\"normalized\":true},"
        "{\"id\":5,\"content\":\"BA\",\"normalized\":false}]}";
    static const uint32_t EXPECTED[] = {0, 3, 1, 4, 1, 5, 1, 0, 3};
    const char *text = "a\xc3\x85"
                       "bABbBAba"
                       "a\xcc\x8a";
    const char *path = arena_printf(arena, "%s/added.json", folder);
    Diag *diag = diag_create();
    CHECK(file_write(path, FILE_TEXT, strlen(FILE_TEXT), diag), "%s", diag_text(diag));
    diag_destroy(diag);
    check_begin("tokens that are found in normalized text");
    Tokenizer *tokenizer = load(path, NULL);
    Encoder *encoder = tokenizer ? encoder_create(tokenizer) : NULL;
    TokenList tokens = {0};
    CHECK(encoder && encode(encoder, text, strlen(text), false, &tokens), "not encoded");
    CHECK(tokens.count == 9 && memcmp(tokens.items, EXPECTED, sizeof(EXPECTED)) == 0, "%zu tokens",
          tokens.count);
    token_list_release(&tokens);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    check_end();
}

static void test_wrong_tiktoken(void) {
    check_begin("what is wrong in a tiktoken file is said in a line");
    refuses_text("wrong.tiktoken", "YQ== 0\n", NULL, "give --pattern");
    refuses_text("wrong.tiktoken", "\r\nYQ== 0", NULL, "give --pattern");
    static const char *const NONE[] = {"",         "[]",         "\n\n",
                                       "a text\n", "\"YQ== 0\"", "\n[1 2]\nYQ== 0\n"};
    for (size_t i = 0; i < sizeof(NONE) / sizeof(NONE[0]); i++) {
        refuses_text("none.json", NONE[i], NULL, "none.json: is no tokenizer: neither a");
    }
    refuses_text("wrong.tiktoken", "YQ== 0\n", "gpt2", "byte 0x00 has no token");
    refuses_text("wrong.tiktoken", "YQ== 0\nYQ== 1\n", "gpt2",
                 "wrong.tiktoken:2: tiktoken file: this "
                 "token is there twice");
    refuses_text("wrong.tiktoken", "YQ== 0\nYg== 0\n", "gpt2", "this rank is there twice");
    refuses_text("wrong.tiktoken", "YQ== 4194304\n", "gpt2", "rank 4194304");
    refuses_text("wrong.tiktoken", "YQ== 99999999999\n", "gpt2", "a line is");
    refuses_text("wrong.tiktoken", "YQ 0\n", "gpt2", "a line is");
    refuses_text("wrong.tiktoken", "Y*== 0\n", "gpt2", "a line is");
    refuses_text("wrong.tiktoken", "YQ==\n", "gpt2", "a line is");
    refuses_text("wrong.tiktoken", "YQ== x\n", "gpt2", "a line is");
    refuses_text("wrong.tiktoken", "", "gpt2", "of 0 bytes");
}

/* A file with a hole: no brace is looked for behind its gigabyte of nothing. */
static void test_large_file(void) {
    check_begin("too large a file is refused for its size, before it is read");
    const char *path = arena_printf(arena, "%s/large.json", folder);
    Diag *diag = diag_create();
    CHECK(file_write(path, " ", 1, diag), "%s", diag_text(diag));
    CHECK(truncate(path, (off_t)1 << 30) == 0, "no file with a hole");
    for (int i = 0; i < 2; i++) {
        Diag *mistakes = diag_create();
        CHECK(!tokenizer_load(path, i ? "gpt2" : NULL, mistakes), "loaded");
        CHECK(strstr(diag_text(mistakes), "large.json: has 1073741824 bytes; at most 268435456 "),
              "said '%s'", diag_text(mistakes));
        diag_destroy(mistakes);
    }
    unlink(path);
    diag_destroy(diag);
}

static void test_patterns(void) {
    static const struct {
        const char *text, *expected;
        PatternDialect dialect;
    } CASES[] = {
        {"(", "missing closing parenthesis", PATTERN_RUST},
        {"", "empty", PATTERN_RUST},
        {"[a[b]]", "a set within a set", PATTERN_ONIGURUMA},
        {"[a&&b]", "&& in a set", PATTERN_ONIGURUMA},
        {"[\\w--_]", "-- or ~~", PATTERN_RUST},
        {"a{1,2}+", "{n,m}+", PATTERN_ONIGURUMA},
        {"\\Ka", "\\K is not supported", PATTERN_RUST},
        {"\\u12", "\\u without four digits", PATTERN_ONIGURUMA},
        {"a\\", "a backslash at the end", PATTERN_RUST},
    };
    check_begin("patterns that PCRE2 would read in another way are refused");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Diag *diag = diag_create();
        Pattern *pattern = pattern_compile(CASES[i].text, CASES[i].dialect, NO_LOC, diag);
        CHECK(!pattern && strstr(diag_text(diag), CASES[i].expected), "'%s': said '%s'",
              CASES[i].text, diag_text(diag));
        pattern_destroy(pattern);
        diag_destroy(diag);
    }
}

static void gives_up(const char *pattern, size_t length) {
    Tokenizer *tokenizer = load(DATA "small.tiktoken", pattern);
    Encoder *encoder = tokenizer ? encoder_create(tokenizer) : NULL;
    Diag *diag = diag_create();
    TokenList tokens = {0};
    EncoderOutput out = {.tokens = &tokens};
    unsigned char *text = malloc(length);
    memset(text, 'a', length);
    bool good = encoder && encoder_encode(encoder, text, length, false, &out, "hostile.txt", diag);
    CHECK(!good && strstr(diag_text(diag), "hostile.txt: the tokenizer's pattern takes too long"),
          "said '%s'", diag_text(diag));
    free(text);
    token_list_release(&tokens);
    diag_destroy(diag);
    encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
}

/* Without their limits both would take hours. */
static void test_slow_patterns(void) {
    check_begin("a pattern that goes back and forth ends with an error, not never");
    gives_up("(?:a|aa|a+)+$(?<=b)|.", 200);
    check_begin("and so does one that looks to the end from everywhere");
    gives_up("a(?=.*[bc])|a", 8 << 20);
}

/* What a match looks at, in windows and all at once: large runs, and matches at their ends. */
static void test_windows(void) {
    static const char *const PATTERNS[] = {"\\s+(?!\\S)|\\s+", "\\ba+\\b",  "a+(?=b)|\\s+$", "x*",
                                           "\\p{M}+|.{3}",     "(?<=b)a+|$"};
    static const char *const RUNS[] = {"a", " ", "\n", "\xcc\x81", "\xe4\xb8\xad", "b", "ab"};
    check_begin("matches are the same where text goes on");
    PatternSpace *space = pattern_space_create();
    unsigned char *text = malloc(80000);
    for (int round = 0; round < 60; round++) {
        size_t n = 0, begin, end, begin_cut, end_cut;
        while (n < 60000) {
            const char *run = RUNS[random_below(7)];
            uint32_t length = 1 + random_below(random_below(3) ? 8 : 5000);
            for (uint32_t i = 0; i < length; i++, n += strlen(run))
                memcpy(text + n, run, strlen(run));
        }
        Diag *diag = diag_create();
        Pattern *pattern = pattern_compile(PATTERNS[round % 6], PATTERN_RUST, NO_LOC, diag);
        CHECK(pattern, "%s", diag_text(diag));
        for (size_t from = 0, cut; pattern && from <= n; from = end + (end == from)) {
            while (from < n && (text[from] & 0xc0) == 0x80) from++;
            end = n;
            PatternResult whole = pattern_find(pattern, space, text, n, false, from, &begin, &end);
            if (whole == PATTERN_NOT_FOUND) break;
            cut = from + random_below((uint32_t)(n - from) + 1);
            while (cut < n && (text[cut] & 0xc0) == 0x80) cut++;
            PatternResult part =
                pattern_find(pattern, space, text, cut, true, from, &begin_cut, &end_cut);
            CHECK(part == PATTERN_CUT_OFF || (begin_cut == begin && end_cut == end && end <= cut),
                  "%zu-%zu of %zu instead of %zu-%zu", begin_cut, end_cut, cut, begin, end);
            CHECK(part == PATTERN_FOUND || cut <= end + 1, "%zu-%zu not found in %zu", begin, end,
                  cut);
        }
        pattern_destroy(pattern);
        diag_destroy(diag);
    }
    free(text);
    pattern_space_destroy(space);
}

/* A few bytes, a stretch, or a digit is changed. */
static void mutate(char *text, size_t *length, size_t capacity) {
    size_t at = random_below((uint32_t)*length), n = 1 + random_below(40);
    switch (random_below(5)) {
    case 0: text[at] = (char)random_below(256); break;
    case 1: *length = at + 1; break;
    case 2:
        if (at + n > *length) n = *length - at;
        memmove(text + at, text + at + n, *length - at - n);
        *length -= n;
        break;
    case 3:
        if (*length + n > capacity || at + n > *length) break;
        memmove(text + at + n, text + at, *length - at);
        *length += n;
        break;
    default:
        while (at + 1 < *length && (text[at] < '0' || text[at] > '9')) at++;
        text[at] = (char)('0' + random_below(10));
        break;
    }
    if (*length == 0) *length = 1;
}

/* Random bytes become a trie of labels that are met, small offsets and leaves, and a text of ASCII.
 */
static void shape_charsmap(unsigned char *bytes, size_t length) {
    size_t n_units = random_below((uint32_t)length / 4);
    uint32_t n_bytes = 4 * (uint32_t)n_units;
    memcpy(bytes, &n_bytes, 4);
    for (size_t i = 0; i < n_units; i++) {
        uint32_t label = random_below(3) ? random_below(16) : random_below(64) | 1u << 31;
        uint32_t unit = random_below(4) << 10 | random_below(2) << 8 | label;
        memcpy(bytes + 4 + 4 * i, &unit, 4);
    }
    for (size_t i = 4 + 4 * n_units; i < length; i++) bytes[i] &= 0x7f;
}

/* Whatever a charsmap says, what it finds is text of its own. */
static void test_charsmap(void) {
    enum { MOST = 64 };
    check_begin("a charsmap of any bytes is refused, or gives text");
    int n_read = 0, n_found = 0;
    for (int round = 0; round < 20000; round++) {
        size_t length = random_below(MOST);
        unsigned char *bytes = malloc(length + 1), chunk[5]; /* not more: sanitizers see it */
        for (size_t i = 0; i < length; i++) bytes[i] = (unsigned char)random_below(256);
        if (length >= 8 && round % 4) shape_charsmap(bytes, length);
        Diag *diag = diag_create();
        Arena *scratch_arena = arena_create();
        Charsmap *map = charsmap_read(bytes, length, scratch_arena, NO_LOC, diag);
        CHECK(map || diag_error_count(diag) == 1, "refused with '%s'", diag_text(diag));
        n_read += map != NULL;
        for (int i = 0; map && i < 50; i++) {
            for (size_t k = 0; k < sizeof(chunk); k++) chunk[k] = (unsigned char)random_below(16);
            const char *found = charsmap_find(map, chunk, sizeof(chunk));
            n_found += found != NULL;
            CHECK(!found || strlen(found) <= CHARSMAP_MOST_TEXT, "a text that does not end");
        }
        arena_destroy(scratch_arena);
        diag_destroy(diag);
        free(bytes);
    }
    CHECK(n_read > 1000 && n_found > 20, "%d read, %d texts found", n_read, n_found);
}

static void test_fuzz(const char *file, const char *pattern) {
    char name[128];
    snprintf(name, sizeof(name), "%s, damaged: refused, or used without harm", file);
    check_begin(name);
    int n_rounds = getenv("TEST_LONG") ? 20000 : VARIANT_STEP > 1 ? 300 : 200, n_loaded = 0;
    Diag *diag = diag_create();
    size_t length, n, capacity;
    char *good = file_read(arena, arena_printf(arena, DATA "%s", file), 1 << 20, &length, diag);
    CHECK(good, "%s", diag_text(diag));
    capacity = length + 4096;
    char *text = malloc(capacity);
    const char *path = arena_printf(arena, "%s/fuzz", folder);
    unsigned char bytes[400];
    for (int round = 0; good && round < n_rounds; round++) {
        Diag *mistakes = diag_create();
        memcpy(text, good, n = length);
        for (uint32_t i = 1 + random_below(3); i; i--) mutate(text, &n, capacity);
        CHECK(file_write(path, text, n, mistakes), "%s", diag_text(mistakes));
        Tokenizer *tokenizer = tokenizer_load(path, pattern, mistakes);
        n_loaded += tokenizer != NULL;
        CHECK(tokenizer || diag_error_count(mistakes) == 1, "refused with '%s'",
              diag_text(mistakes));
        if (tokenizer) {
            Encoder *encoder = encoder_create(tokenizer);
            TokenList tokens = {0};
            EncoderOutput out = {.tokens = &tokens};
            bool done = encoder_encode(encoder, bytes, random_bytes(bytes, sizeof(bytes)),
                                       round % 2, &out, "fuzz", mistakes);
            CHECK(done || diag_error_count(mistakes) == 1, "failed without a reason");
            for (size_t i = 0; i < tokens.count; i++) {
                CHECK(tokens.items[i] < tokenizer->n_ids, "token %u of %u", tokens.items[i],
                      tokenizer->n_ids);
            }
            token_list_release(&tokens);
            encoder_destroy(encoder);
        }
        tokenizer_destroy(tokenizer);
        diag_destroy(mistakes);
    }
    if (getenv("SHOW_TIMES")) printf("# %d of %d loaded\n", n_loaded, n_rounds);
    CHECK(n_loaded > 0 && n_loaded < n_rounds, "%d of %d loaded", n_loaded, n_rounds);
    free(text);
    diag_destroy(diag);
}

/* One step of a form, by this program and by utf8proc. */
static void check_form(NormalForm form, const unsigned char *text, size_t length,
                       const void *expected, size_t n_expected) {
    const Normalizer one = {.items = {{.kind = NORMAL_FORM, .form = form}}, .count = 1};
    NormalText room = {.patterns = NULL};
    const unsigned char *normal;
    size_t n;
    bool good = normalize(&one, text, length, true, &room, &normal, &n);
    CHECK(good && n == n_expected && memcmp(normal, expected, n) == 0,
          "form %d of %zu bytes beginning with '%.12s'", (int)form, length, (const char *)text);
    normal_text_release(&room);
}

/* Marks whose classes alternate: sorting them by neighbours takes minutes. */
static void test_long_marks(void) {
    enum { PAIRS = 200000 };
    unsigned char *text = malloc(1 + 4 * PAIRS), *expected = malloc(1 + 4 * PAIRS);
    if (!text || !expected) BUG("out of memory");
    text[0] = expected[0] = 'a';
    for (int i = 0; i < PAIRS; i++) {
        memcpy(text + 1 + 4 * (size_t)i, "\xcc\x81\xcc\xa3", 4); /* above, 230, and below, 220 */
        memcpy(expected + 1 + 2 * (size_t)i, "\xcc\xa3", 2);
        memcpy(expected + 1 + 2 * ((size_t)i + PAIRS), "\xcc\x81", 2);
    }
    check_form(NORMAL_FORM_D, text, 1 + 4 * PAIRS, expected, 1 + 4 * PAIRS);
    free(text);
    free(expected);
}

static void test_forms(void) {
    static const utf8proc_int32_t SOME[] = {
        'a',    'e',    0xe9,   0x300,  0x301,  0x323,  0x327,   0x345,   0x5b0,  0x5b4,
        0x1100, 0x1161, 0x11a8, 0xac00, 0xac01, 0x1e69, 0xfdfa,  0xfb01,  0x212b, 0x3099,
        0x304b, 0x9cb,  0x9be,  0x9c7,  0x958,  0x2126, 0x1d15e, 0x2f800, 0xff21, 0x4e00};
    static const int OPTIONS[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE,
                                  UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                  UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    check_begin("forms of Unicode: as utf8proc_map has them, and long runs of marks");
    for (int i = 0; i < 4000; i++) {
        unsigned char text[64];
        size_t length = 0;
        for (uint32_t n = 1 + random_below(12); n > 0; n--) {
            uint32_t which = random_below(sizeof(SOME) / sizeof(SOME[0]));
            length += (size_t)utf8proc_encode_char(SOME[which], text + length);
        }
        utf8proc_uint8_t *expected = NULL;
        utf8proc_ssize_t n = utf8proc_map(text, (utf8proc_ssize_t)length, &expected,
                                          (utf8proc_option_t)(UTF8PROC_STABLE | OPTIONS[i % 4]));
        CHECK(n >= 0, "utf8proc_map");
        if (n >= 0) check_form((NormalForm)(i % 4), text, length, expected, (size_t)n);
        free(expected);
    }
    test_long_marks();
    check_end();
}

int main(void) {
    arena = arena_create();
    if (!mkdtemp(folder)) return 1;
    test_reference("gpt2.json", "gpt2", NULL);
    test_reference("qwen2.json", "qwen2", NULL);
    test_reference("deepseek.json", "deepseek", NULL);
    test_reference("llama2.json", "llama2", NULL);
    test_reference("t5.json", "t5", NULL);
    test_reference("albert.json", "albert", NULL);
    test_reference("fallback.json", "fallback", NULL);
    test_reference("uncased.json", "uncased", NULL);
    test_reference("cased.json", "cased", NULL);
    test_reference("sp_bytes.model", "sp_bytes", NULL);
    test_reference("sp_llama2.model", "sp_llama2", NULL);
    test_reference("sp_bpe-across.model", "sp_bpe-across", NULL);
    test_reference("small.tiktoken", "tiktoken_gpt2", "gpt2");
    test_reference("small.tiktoken", "tiktoken_cl100k", "cl100k");
    test_reference("small.tiktoken", "tiktoken_o200k", "o200k");
    test_round_trip("gpt2.json", NULL, true);
    test_round_trip("deepseek.json", NULL, true);
    test_round_trip("small.tiktoken", "o200k", true);
    test_round_trip("qwen2.json", NULL, false);  /* NFC changes text */
    test_round_trip("llama2.json", NULL, false); /* so do spaces that are put in front */
    test_forms();
    test_merge();
    test_long_word();
    test_long_chunk();
    test_threads("gpt2.json", NULL, "UTF-8");
    test_threads("gpt2.json", NULL, "any bytes");
    test_threads("sp_llama2.model", NULL, "any bytes");
    test_threads("small.tiktoken", "cl100k", "UTF-8");
    test_threads("deepseek.json", NULL, "UTF-8");
    test_threads("uncased.json", NULL, "any bytes");
    test_normalized_added();
    test_wrong_json();
    test_wrong_tiktoken();
    test_large_file();
    test_patterns();
    test_slow_patterns();
    test_windows();
    test_fuzz("gpt2.json", NULL);
    test_fuzz("llama2.json", NULL);
    test_fuzz("t5.json", NULL);
    test_fuzz("fallback.json", NULL);
    test_fuzz("uncased.json", NULL);
    test_fuzz("sp_bytes.model", NULL);
    test_fuzz("sp_llama2.model", NULL);
    test_charsmap();
    test_fuzz("small.tiktoken", "gpt2");
    arena_destroy(arena);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return check_report();
}
