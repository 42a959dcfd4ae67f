/* SentencePiece's own files: what is wrong with one is said, and where each space begins a word the
 * tokens are those of whole documents. What they make of hard texts is in test_tokenizer.c.
 *
 * Would catch: files that are taken for another kind; pieces, types or options that are passed
 * over; words cut where a token would go on; spaces at the ends that stay or go.
 */
#include "ir/base/file.h"
#include "ir/base/strbuf.h"
#include "runtime/tokenizer/encoder.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA "tests/data/tokenizers/"

static char path[] = "/tmp/test_sentencepiece-XXXXXX";

/* --- files made here --- */

typedef struct Message {
    unsigned char bytes[4096];
    size_t length;
} Message;

static void put(Message *message, const void *bytes, size_t length) {
    memcpy(message->bytes + message->length, bytes, length);
    message->length += length;
}

static void put_byte(Message *message, unsigned byte) {
    put(message, &(unsigned char){(unsigned char)byte}, 1);
}

/* A field of bytes, fewer than 128. */
static void put_bytes(Message *message, unsigned number, const void *bytes, size_t length) {
    put_byte(message, number << 3 | 2);
    put_byte(message, (unsigned)length);
    put(message, bytes, length);
}

static void put_number(Message *message, unsigned number, unsigned value) {
    if (number >= 16) put_byte(message, (number & 15) << 3 | 0x80);
    put_byte(message, number >= 16 ? number >> 4 : number << 3);
    put_byte(message, value);
}

static void put_piece(Message *message, const char *text, float score, unsigned type) {
    Message piece = {.length = 0};
    put_bytes(&piece, 1, text, strlen(text));
    put_byte(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof(score));
    put_number(&piece, 3, type);
    put_bytes(message, 1, piece.bytes, piece.length);
}

/* Pieces of "ab", one merge. kind: 1 Unigram, 2 BPE. */
static Message make(unsigned kind) {
    Message message = {.length = 0}, trainer = {.length = 0};
    put_piece(&message, "<unk>", 0, 2);
    put_piece(&message, "<s>", 0, 3);
    put_piece(&message, "</s>", 0, 3);
    put_piece(&message, "\xe2\x96\x81", -1, 1);
    put_piece(&message, "a", -2, 1);
    put_piece(&message, "b", -3, 1);
    put_piece(&message, "ab", -0.5f, 1);
    put_number(&trainer, 3, kind);
    put_bytes(&message, 2, trainer.bytes, trainer.length);
    return message;
}

static Tokenizer *load(const Message *message, Diag *diag) {
    CHECK(file_write(path, message->bytes, message->length, diag), "%s", diag_text(diag));
    return tokenizer_load(path, NULL, diag);
}

static void refuses(const Message *message, const char *expected) {
    Diag *diag = diag_create();
    Tokenizer *tokenizer = load(message, diag);
    CHECK(!tokenizer && diag_error_count(diag) == 1 && strstr(diag_text(diag), expected),
          "said '%s', not '%s'", diag_text(diag), expected);
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

static void refuses_piece(const char *text, float score, unsigned type, const char *expected) {
    Message message = make(2);
    put_piece(&message, text, score, type);
    refuses(&message, expected);
}

static void refuses_option(unsigned in, unsigned number, unsigned value, const char *expected) {
    Message message = make(1), inner = {.length = 0};
    put_number(&inner, number, value);
    put_bytes(&message, in, inner.bytes, inner.length);
    refuses(&message, expected);
}

static void test_wrong(void) {
    check_begin("what is wrong with a file is said");
    refuses_piece("a", -9, 1, "piece 7 is piece 4 once more");
    refuses_piece("", 0, 1, "piece 7 is empty or has a NUL");
    refuses_piece("\xff", 0, 1, "piece 7 is no UTF-8");
    refuses_piece("c", -1.f / 0.f, 1, "piece 7 has a score that is no number");
    refuses_piece("c", 0, 9, "piece 7 is of no known type");
    refuses_piece("c", 0, 5, "piece 7 is unused, which is not supported in BPE");
    refuses_option(2, 3, 3, "model_type WORD or CHAR is not supported");
    refuses_option(2, 24, 1, "treat_whitespace_as_suffix is not supported");
    refuses_option(3, 5, 0, "escape_whitespaces false is not supported");
    Message message = make(1), inner = {.length = 0};
    put_bytes(&inner, 2, "\xff\xff\xff\xff", 4);
    put_bytes(&message, 3, inner.bytes, inner.length);
    refuses(&message, "the trie does not fit");
    message = make(1);
    put_bytes(&message, 5, inner.bytes, inner.length);
    refuses(&message, "a denormalizer is not supported");
    message = make(2);
    message.length -= 1;
    refuses(&message, "is a damaged model of SentencePiece, or none");
    message = make(2);
    put_byte(&message, 1 << 3 | 3); /* a group */
    refuses(&message, "is a damaged model of SentencePiece, or none");
}

/* --- text --- */

static void encode(Encoder *encoder, const char *text, size_t length, TokenList *out) {
    Diag *diag = diag_create();
    EncoderOutput output = {.tokens = out};
    out->count = 0;
    CHECK(
        encoder_encode(encoder, (const unsigned char *)text, length, false, &output, "test", diag),
        "%s", diag_text(diag));
    diag_destroy(diag);
}

static void check_ids(unsigned kind, const char *text, const char *expected) {
    Diag *diag = diag_create();
    const Message message = make(kind);
    Tokenizer *tokenizer = load(&message, diag);
    CHECK(tokenizer, "%s", diag_text(diag));
    if (tokenizer) {
        TokenList tokens = {0};
        StrBuf said = strbuf_create();
        Encoder *encoder = encoder_create(tokenizer);
        encode(encoder, text, strlen(text), &tokens);
        encoder_destroy(encoder);
        for (size_t i = 0; i < tokens.count; i++) strbuf_printf(&said, "%u ", tokens.items[i]);
        CHECK(strcmp(said.text, expected) == 0, "'%s': %s, not %s", text, said.text, expected);
        strbuf_destroy(&said);
        token_list_release(&tokens);
    }
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

static void test_text(void) {
    check_begin("pieces, unknown characters, spaces at the ends and between");
    for (unsigned kind = 1; kind <= 2; kind++) {
        check_ids(kind, "ab", "3 6 ");
        check_ids(kind, "  ba   aab ", "3 5 4 3 4 6 ");
        check_ids(kind, "xyab z", "3 0 6 3 0 ");
        check_ids(kind, "   ", "");
        check_ids(kind, "<s>", "3 0 ");
    }
}

/* --- words --- */

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

static size_t random_text(char *out, size_t most) {
    static const char *const PARTS[] = {
        " ", "  ",  "the",          "ab", "\xe2\x96\x81", "\xc3\xa9",     "\n", "a",
        "e", "ing", "\xe4\xb8\xad", "0",  "<tool>",       "\xe2\x96\x81x"};
    size_t n = 0;
    while (n + 16 < most && random_below(40)) {
        const char *part = PARTS[random_below(sizeof(PARTS) / sizeof(PARTS[0]))];
        memcpy(out + n, part, strlen(part));
        n += strlen(part);
    }
    return n;
}

/* divides: its tokens allow it. */
static void test_words(const char *file, bool divides) {
    char name[128], text[1000];
    snprintf(name, sizeof(name), "%s: each space begins a word: %s", file, divides ? "yes" : "no");
    check_begin(name);
    Diag *diag = diag_create();
    snprintf(text, sizeof(text), DATA "%s", file);
    Tokenizer *divided = tokenizer_load(text, NULL, diag);
    Tokenizer *whole = tokenizer_load(text, NULL, diag);
    CHECK(divided && whole, "%s", diag_text(diag));
    if (divided && whole) {
        CHECK(divided->steps.count == divides, "%d steps", divided->steps.count);
        word_steps_release(&whole->steps);
        Encoder *by_words = encoder_create(divided), *at_once = encoder_create(whole);
        TokenList a = {0}, b = {0};
        for (int round = 0; round < 3000; round++) {
            const size_t n = random_text(text, sizeof(text));
            encode(by_words, text, n, &a);
            encode(at_once, text, n, &b);
            CHECK(a.count == b.count && memcmp(a.items, b.items, a.count * sizeof(*a.items)) == 0,
                  "round %d: %zu tokens and %zu of '%.*s'", round, a.count, b.count, (int)n, text);
        }
        token_list_release(&a);
        token_list_release(&b);
        encoder_destroy(by_words);
        encoder_destroy(at_once);
    }
    tokenizer_destroy(divided);
    tokenizer_destroy(whole);
    diag_destroy(diag);
}

int main(void) {
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    test_wrong();
    test_text();
    test_words("llama2.json", true);
    test_words("sp_llama2.model", true);
    test_words("sp_bytes.model", true);
    test_words("sp_bpe-across.model", false);
    unlink(path);
    return check_report();
}
