/* Texts that are packed, and in columns: gzip, Zstandard and Parquet's files give the tokens of the
 * same texts as lines of JSON, whatever the codec, encoding and pages (tests/data/parquet, made by
 * pyarrow: tests/reference/make_parquet.py); damaged ones give an error or other text, but nothing
 * that AddressSanitizer sees; blocks end where documents do. */
#include "frontend/json_lines.h"
#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "runtime/data/text_blocks.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define DATA "tests/data/parquet/"

static Arena *arena;
static Tokenizer *tokenizer;
static char folder[] = "/tmp/test_packed-XXXXXX";

typedef struct Tokens {
    TokenList list;
    TokenMarks marks;
} Tokens;

static bool append(void *user, const uint32_t *tokens, const unsigned char *marks, size_t count,
                   Diag *diag) {
    Tokens *all = user;
    (void)diag;
    for (size_t i = 0; i < count; i++) {
        token_list_add(&all->list, tokens[i]);
        token_marks_fill(&all->marks, all->list.count, marks[i]);
    }
    return true;
}

static int n_threads = 2;

static Tokens encode(const char *path, const CorpusOptions *how, CorpusTotals *totals, bool *good,
                     Diag *diag) {
    Tokens tokens = {0};
    CorpusOptions options = *how;
    options.paths = &path;
    options.n_paths = 1;
    options.n_threads = n_threads;
    *good = corpus_encode(tokenizer, &options, append, &tokens, totals, diag);
    return tokens;
}

static void release(Tokens *tokens) {
    token_list_release(&tokens->list);
    token_marks_release(&tokens->marks);
}

static CorpusOptions plain_options(void) {
    return (CorpusOptions){.first = NO_TOKEN, .last = tokenizer->n_ids - 1};
}

/* Both files have the same tokens, documents and marks. */
static void compare(const char *path, const char *lines, const CorpusOptions *options) {
    Diag *diag = diag_create();
    CorpusTotals totals, expected_totals;
    bool good, expected_good;
    Tokens tokens = encode(path, options, &totals, &good, diag);
    Tokens expected = encode(lines, options, &expected_totals, &expected_good, diag);
    CHECK(good && expected_good, "%s", diag_text(diag));
    CHECK(expected.list.count > 0, "no tokens");
    CHECK(tokens.list.count == expected.list.count &&
              memcmp(tokens.list.items, expected.list.items,
                     tokens.list.count * sizeof(uint32_t)) == 0,
          "%zu tokens instead of %zu, or others", tokens.list.count, expected.list.count);
    CHECK(tokens.list.count == expected.list.count &&
              memcmp(tokens.marks.items, expected.marks.items, tokens.list.count) == 0,
          "other marks");
    CHECK(totals.n_documents == expected_totals.n_documents &&
              totals.n_bytes == expected_totals.n_bytes,
          "%lld documents instead of %lld", (long long)totals.n_documents,
          (long long)expected_totals.n_documents);
    release(&tokens);
    release(&expected);
    diag_destroy(diag);
}

/* --- Parquet --- */

static const char *const FILES[] = {"none",
                                    "snappy",
                                    "gzip",
                                    "zstd",
                                    "pages2",
                                    "plain",
                                    "fallback",
                                    "delta_length_byte_array",
                                    "delta_byte_array",
                                    "required"};
enum { N_FILES = sizeof(FILES) / sizeof(FILES[0]) };

static void test_texts(void) {
    const CorpusOptions options = plain_options();
    for (int i = 0; i < N_FILES; i++) {
        check_begin(arena_printf(arena, "Parquet, texts: %s", FILES[i]));
        compare(arena_printf(arena, DATA "%s.parquet", FILES[i]), DATA "texts.jsonl", &options);
    }
}

static void refuse(const char *name, const CorpusOptions *options, const char *expected) {
    Diag *diag = diag_create();
    CorpusTotals totals;
    bool good;
    check_begin(arena_printf(arena, "Parquet, refused: %s", expected));
    Tokens tokens =
        encode(arena_printf(arena, DATA "%s.parquet", name), options, &totals, &good, diag);
    CHECK(!good && strstr(diag_text(diag), expected), "%s", diag_text(diag));
    release(&tokens);
    diag_destroy(diag);
}

static void test_objects(void) {
    Diag *diag = diag_create();
    CorpusOptions options = plain_options();
    check_begin("Parquet, messages in lists");
    Chat chat;
    const ChatTemplate *template = chat_template_find("alpaca", arena, diag);
    CHECK(template && chat_prepare(template, tokenizer, options.last, NULL, &chat, diag), "%s",
          diag_text(diag));
    options.chat = &chat;
    compare(DATA "messages.parquet", DATA "messages.jsonl", &options);
    check_begin("Parquet, messages without calls of tools, for which there is a column");
    compare(DATA "no_tools.parquet", DATA "messages.jsonl", &options);
    refuse("tools", &options, "tools.parquet:12: messages[1]: 'name' is not supported");
    check_begin("Parquet, weights of messages");
    compare(DATA "weights.parquet", DATA "weights.jsonl", &options);
    check_begin("Parquet, prompts and completions in columns");
    options.chat = NULL;
    compare(DATA "pairs.parquet", DATA "pairs.jsonl", &options);
    check_begin("Parquet, a column that --field names");
    options.field = "completion";
    compare(DATA "pairs.parquet", DATA "pairs.jsonl", &options);
    diag_destroy(diag);
}

static void test_labels(void) {
    static const char *const KINDS[] = {"int64", "int32", "double", "float", "delta"};
    CorpusOptions options = plain_options();
    options.classes = "3";
    options.n_classes = 3;
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        check_begin(arena_printf(arena, "Parquet, texts and their classes: %s", KINDS[i]));
        compare(arena_printf(arena, DATA "labels_%s.parquet", KINDS[i]), DATA "labels.jsonl",
                &options);
    }
    options.classes = "2";
    options.n_classes = 2;
    refuse("labels_int64", &options, "'label' is 2; the 2 classes are 0 to 1");
    options.classes = "a,b";
    refuse("plain", &options, "plain.parquet:1: no object with a 'label'");
}

/* True and false, by bits and in runs. */
static void test_answers(void) {
    CorpusOptions options = plain_options();
    options.unpaired = true;
    check_begin("Parquet, answers and whether they are desirable");
    compare(DATA "answers.parquet", DATA "answers.jsonl", &options);
    compare(DATA "answers_runs.parquet", DATA "answers.jsonl", &options);
    refuse("pairs", &options, "pairs.parquet:1: no object with 'label', true or false");
}

/* --- Parquet's rows as objects --- */

typedef struct Objects {
    json_t *list; /* NULL: they are not kept */
    int n_rows, n_wrong;
} Objects;

static bool take_object(void *user, json_t *object, SourceLoc loc, int n_lines) {
    Objects *objects = user;
    objects->n_wrong += loc.line != ++objects->n_rows || n_lines < loc.line;
    if (objects->list && json_array_append(objects->list, object) != 0) abort();
    return true;
}

static void test_rows(void) {
    static const char *const NAMES[] = {"choices", "answers", "answers_runs", "pairs", "records"};
    for (int i = 0; i < 5; i++) {
        const char *lines = i == 2 ? "answers" : NAMES[i];
        Objects rows = {.list = json_array()}, expected = {.list = json_array()};
        Diag *diag = diag_create();
        check_begin(arena_printf(arena, "Parquet: rows as objects: %s", NAMES[i]));
        CHECK(json_lines_each(arena_printf(arena, DATA "%s.parquet", NAMES[i]), take_object, &rows,
                              diag) &&
                  json_lines_each(arena_printf(arena, DATA "%s.jsonl", lines), take_object,
                                  &expected, diag),
              "%s", diag_text(diag));
        CHECK(rows.n_rows >= 20 && rows.n_wrong == 0, "%d rows, %d in wrong places", rows.n_rows,
              rows.n_wrong);
        CHECK(json_equal(rows.list, expected.list), "other objects");
        json_decref(rows.list);
        json_decref(expected.list);
        diag_destroy(diag);
    }
}

static void test_refused(void) {
    CorpusOptions options = plain_options();
    refuse("brotli", &options, "column 'text' is compressed by Brotli, which is not read");
    options.field = "words";
    refuse("snappy", &options,
           "no texts or messages in a column 'words'; its columns are id, text, url (--field");
    options.field = "id"; /* of numbers */
    refuse("snappy", &options, "no texts or messages in a column 'id'; its columns are");
    options.field = NULL;
    options.preferences = true;
    refuse("snappy", &options, "no texts or messages in columns of the names that are known");
}

/* --- damage --- */

static uint64_t state = 1;

/* 0 .. n - 1, xorshift64* (Vigna 2016). */
static size_t random_below(size_t n) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (size_t)(state * UINT64_C(2685821657736338717) >> 33) % n;
}

static void put_file(const char *path, const unsigned char *bytes, size_t n) {
    FILE *file = fopen(path, "wb"); /* not file_write, which waits for the disk */
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
        CHECK(false, "%s cannot be written", path);
    }
}

/* Whatever becomes of it: an error in one line, or some text. */
static bool survives(const char *path, const CorpusOptions *options) {
    Diag *diag = diag_create();
    CorpusTotals totals;
    if (!options) { /* as objects */
        Objects objects = {0};
        bool read = json_lines_each(path, take_object, &objects, diag);
        CHECK(read == (diag_error_count(diag) == 0), "%s", diag_text(diag));
        diag_destroy(diag);
        return read;
    }
    bool good;
    Tokens tokens = encode(path, options, &totals, &good, diag);
    CHECK(good == (diag_error_count(diag) == 0), "%s", diag_text(diag));
    release(&tokens);
    diag_destroy(diag);
    return good;
}

/* Cut short anywhere but where a member ends, and with some bytes changed, most of them where
 * metadata are. */
static void damage(const char *name, const unsigned char *bytes, size_t n, size_t n_member,
                   const CorpusOptions *options) {
    enum { CHANGES = 400, MOST_AT_ONCE = 3 };
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    unsigned char *copy = memory_alloc(n);
    int n_cut = 0;
    n_threads = 1; /* thousands of files, a few kilobytes each */
    const size_t step = 13 * VARIANT_STEP * VARIANT_STEP;
    for (size_t length = n - 1; length > step; length -= step) {
        if (length == n_member) continue;
        put_file(path, bytes, length);
        n_cut += survives(path, options);
    }
    CHECK(n_cut == 0, "%d times text that was cut short was read to its end", n_cut);
    for (int i = 0; i < CHANGES / VARIANT_STEP / VARIANT_STEP; i++) {
        size_t n_changes = 1 + random_below(MOST_AT_ONCE);
        memcpy(copy, bytes, n);
        for (size_t k = 0; k < n_changes; k++) {
            static const unsigned char OFTEN[] = {0, 1, 0x7f, 0x80, 0xff};
            size_t at = random_below(3) ? n - 1 - random_below(n / 2) : random_below(n);
            copy[at] = random_below(2) ? OFTEN[random_below(sizeof(OFTEN))]
                                       : (unsigned char)random_below(256);
        }
        put_file(path, copy, n);
        survives(path, options);
    }
    n_threads = 2;
    free(copy);
}

static void test_damage(void) {
    static const char *const NAMES[] = {"none",
                                        "snappy",
                                        "gzip",
                                        "zstd",
                                        "pages2",
                                        "plain",
                                        "delta_length_byte_array",
                                        "delta_byte_array",
                                        "messages",
                                        "pairs",
                                        "weights",
                                        "labels_int64",
                                        "labels_float",
                                        "labels_delta",
                                        "answers",
                                        "answers_runs",
                                        "choices",
                                        "records"};
    CorpusOptions options = plain_options();
    Diag *diag = diag_create();
    Chat chat;
    const ChatTemplate *template = chat_template_find("alpaca", arena, diag);
    CHECK(template && chat_prepare(template, tokenizer, options.last, NULL, &chat, diag), "%s",
          diag_text(diag));
    options.chat = &chat;
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        FileMap map;
        check_begin(arena_printf(arena, "Parquet, damaged: %s", NAMES[i]));
        bool mapped = file_map(arena_printf(arena, DATA "%s.parquet", NAMES[i]), &map, diag);
        CHECK(mapped, "%s", diag_text(diag));
        if (!mapped) continue;
        options.classes = strncmp(NAMES[i], "labels", 6) == 0 ? "3" : NULL;
        options.n_classes = 3;
        options.unpaired = strncmp(NAMES[i], "answers", 7) == 0;
        const bool objects = strcmp(NAMES[i], "choices") == 0 || strcmp(NAMES[i], "records") == 0;
        damage("damaged.parquet", map.data, map.length_bytes, 0, objects ? NULL : &options);
        file_unmap(&map);
    }
    diag_destroy(diag);
}

/* --- gzip and Zstandard --- */

typedef struct Packed {
    unsigned char *bytes;
    size_t n;
} Packed;

static void pack_gzip(Packed *out, const void *text, size_t n) {
    z_stream stream = {0};
    size_t most = n + n / 100 + 1000;
    if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    out->bytes = memory_grow(out->bytes, out->n + most);
    stream.next_in = (unsigned char *)text;
    stream.avail_in = (unsigned)n;
    stream.next_out = out->bytes + out->n;
    stream.avail_out = (unsigned)most;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) abort();
    out->n += most - stream.avail_out;
    deflateEnd(&stream);
}

static void pack_zstd(Packed *out, const void *text, size_t n) {
    size_t most = ZSTD_compressBound(n);
    out->bytes = memory_grow(out->bytes, out->n + most);
    size_t length = ZSTD_compress(out->bytes + out->n, most, text, n, 1);
    if (ZSTD_isError(length)) abort();
    out->n += length;
}

typedef void Pack(Packed *out, const void *text, size_t n);
static const struct {
    const char *end;
    Pack *pack;
} PACKS[] = {{"gz", pack_gzip}, {"zst", pack_zstd}};

static const char LINES[] = "{\"text\": \"one\"}\n{\"text\": \"two and \xc3\xa9\"}\n\n{\"text\": "
                            "\"three\"}\n";

/* In two members or frames, of which the first ends within a line. */
static void test_packed(void) {
    static const char *const NAMES[] = {"lines.jsonl", "lines.json", "text.txt"};
    const CorpusOptions options = plain_options();
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < 3; i++) {
            const char *path = arena_printf(arena, "%s/%s", folder, NAMES[i]);
            const char *packed_path = arena_printf(arena, "%s.%s", path, PACKS[p].end);
            Packed packed = {0};
            check_begin(arena_printf(arena, "packed: %s.%s", NAMES[i], PACKS[p].end));
            PACKS[p].pack(&packed, LINES, 20);
            size_t n_member = packed.n;
            PACKS[p].pack(&packed, LINES + 20, sizeof(LINES) - 1 - 20);
            put_file(path, (const unsigned char *)LINES, sizeof(LINES) - 1);
            put_file(packed_path, packed.bytes, packed.n);
            compare(packed_path, path, &options);
            check_begin(arena_printf(arena, "packed, damaged: %s.%s", NAMES[i], PACKS[p].end));
            damage(arena_printf(arena, "damaged_%s.%s", NAMES[i], PACKS[p].end), packed.bytes,
                   packed.n, n_member, &options);
            free(packed.bytes);
        }
    }
    check_begin("packed: an array of objects");
    Packed packed = {0};
    static const char ARRAY[] = "[{\"text\": \"one\"},\n {\"text\": \"two\"}]";
    const char *path = arena_printf(arena, "%s/array.json", folder);
    pack_gzip(&packed, ARRAY, sizeof(ARRAY) - 1);
    put_file(path, (const unsigned char *)ARRAY, sizeof(ARRAY) - 1);
    put_file(arena_printf(arena, "%s.gz", path), packed.bytes, packed.n);
    compare(arena_printf(arena, "%s.gz", path), path, &options);
    check_begin("packed: a zero behind the last member is padding");
    packed.bytes = memory_grow(packed.bytes, packed.n + 1);
    packed.bytes[packed.n] = 0;
    put_file(arena_printf(arena, "%s.gz", path), packed.bytes, packed.n + 1);
    compare(arena_printf(arena, "%s.gz", path), path, &options);
    free(packed.bytes);
}

static void test_ends_early(void) {
    const CorpusOptions options = plain_options();
    for (int p = 0; p < 2; p++) {
        Packed packed = {0};
        Diag *diag = diag_create();
        CorpusTotals totals;
        bool good;
        check_begin(arena_printf(arena, "packed: %s that is cut short says so", PACKS[p].end));
        const char *path = arena_printf(arena, "%s/short.jsonl.%s", folder, PACKS[p].end);
        PACKS[p].pack(&packed, LINES, sizeof(LINES) - 1);
        put_file(path, packed.bytes, packed.n - 5);
        Tokens tokens = encode(path, &options, &totals, &good, diag);
        CHECK(!good && strstr(diag_text(diag), "ends too early: a part of it is missing"), "%s",
              diag_text(diag));
        release(&tokens);
        diag_destroy(diag);
        free(packed.bytes);
    }
}

/* Documents of all lengths, some longer than a block: together they are the text, and each block
 * but the last ends with a document. */
static void test_blocks(const char *end) {
    enum { LENGTH = 50 << 20, LONG = 20 << 20 };
    check_begin(arena_printf(arena, "blocks end with %s",
                             end ? end[0] == '\n' ? "lines" : "documents" : "the text"));
    size_t n_end = end ? strlen(end) : 0, at = 0, n_blocks = 0;
    unsigned char *text = memory_alloc(LENGTH);
    for (size_t i = 0; i < LENGTH; i++) text[i] = (unsigned char)('a' + i % 23);
    for (size_t i = 1000; end && i + n_end < LENGTH;) {
        memcpy(text + i, end, n_end);
        i += i > 3 << 20 && i < 4 << 20 ? LONG : n_end + random_below(200000);
    }
    Packed packed = {0};
    Diag *diag = diag_create();
    pack_zstd(&packed, text, LENGTH);
    TextBlocks *blocks = text_blocks_open("x", unpacker_create(PACK_ZSTD, packed.bytes, packed.n));
    text_blocks_end_with(blocks, end);
    for (;;) {
        unsigned char *block;
        size_t length, n_packed;
        bool good = text_blocks_next(blocks, &block, &length, &n_packed, diag);
        CHECK(good, "%s", diag_text(diag));
        if (!good || !block) break;
        CHECK(at + length <= LENGTH && memcmp(text + at, block, length) == 0, "other text at %zu",
              at);
        at += length;
        n_blocks++;
        CHECK(at == LENGTH ||
                  (end && length >= n_end && memcmp(block + length - n_end, end, n_end) == 0),
              "a block ends within a document");
        free(block);
    }
    CHECK(at == LENGTH, "%zu of %d bytes", at, (int)LENGTH);
    CHECK(n_blocks == 1 || end, "%zu blocks", n_blocks);
    CHECK(!end || n_blocks > 2, "%zu blocks", n_blocks);
    text_blocks_close(blocks);
    diag_destroy(diag);
    free(packed.bytes);
    free(text);
}

int main(void) {
    Diag *diag = diag_create();
    arena = arena_create();
    if (!mkdtemp(folder)) return 1;
    check_begin("a tokenizer");
    tokenizer = tokenizer_load("tests/data/tokenizers/trained.json", NULL, diag);
    CHECK(tokenizer, "%s", diag_text(diag));
    if (tokenizer) {
        test_texts();
        test_objects();
        test_labels();
        test_answers();
        test_rows();
        test_refused();
        test_damage();
        test_packed();
        test_ends_early();
        test_blocks("\n");
        test_blocks("<|end|>");
        test_blocks(NULL);
    }
    check_end();
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
    arena_destroy(arena);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return check_report();
}
