/* Kinds of token files, and folders of them. Would catch: tokens read with another width or from
 * another place, headers that lie, windows that reach from one file into the next, files in the
 * order that the system lists them.
 */
#include "ir/base/file.h"
#include "runtime/data/dataset.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 20, SEQ = 4, VOCAB = 200000, NPY_HEADER = 128 };

static char folder[] = "/tmp/test_token_file-XXXXXX";
static Arena *arena;

static const char *in_folder(const char *name) {
    return arena_printf(arena, "%s/%s", folder, name);
}

static const char *put_file(const char *name, const void *bytes, size_t length) {
    Diag *diag = diag_create();
    const char *path = in_folder(name);
    CHECK(file_write(path, bytes, length, diag), "%s", diag_text(diag));
    diag_destroy(diag);
    return path;
}

/* After `header`, N tokens of `width` bytes: first, first + step, ... */
static const char *put_tokens(const char *name, const void *header, size_t header_bytes, int width,
                              int64_t first, int64_t step) {
    unsigned char bytes[2048] = {0};
    if (header_bytes) memcpy(bytes, header, header_bytes);
    for (int i = 0; i < N; i++) {
        int64_t token = first + i * step;
        memcpy(bytes + header_bytes + i * width, &token, (size_t)width);
    }
    return put_file(name, bytes, header_bytes + (size_t)(N * width));
}

/* A .npy header of NPY_HEADER bytes, as NumPy writes it. */
static const char *npy(const char *type, const char *order) {
    static char header[NPY_HEADER + 1];
    memset(header, ' ', NPY_HEADER);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf(header + 10, NPY_HEADER - 10,
                     "{'descr': '%s', 'fortran_order': %s, 'shape': (%d,), }", type, order, N);
    header[10 + n] = ' ';
    header[NPY_HEADER - 1] = '\n';
    return header;
}

static const int32_t *llmc(int32_t magic, int32_t version) {
    static int32_t header[256];
    header[0] = magic;
    header[1] = version;
    header[2] = N;
    return header;
}

static void expect_tokens(const char *path, int plain_bytes, int64_t first, int64_t step) {
    Diag *diag = diag_create();
    int32_t tokens[SEQ], labels[SEQ];
    Dataset *dataset = dataset_open(path, SEQ, VOCAB, plain_bytes, diag);
    CHECK(dataset && dataset_count_tokens(dataset) == N, "%s", diag_text(diag));
    for (int64_t w = 0; dataset && w < (N - 1) / SEQ; w++) {
        CHECK(dataset_window(dataset, w, tokens, labels, diag), "%s", diag_text(diag));
        CHECK(tokens[0] == first + w * SEQ * step && labels[3] == first + (w * SEQ + 4) * step,
              "window %d: %d ... %d", (int)w, tokens[0], labels[3]);
    }
    dataset_close(dataset);
    diag_destroy(diag);
}

static void expect_error(const char *path, int plain_bytes, const char *reason) {
    Diag *diag = diag_create();
    Dataset *dataset = dataset_open(path, SEQ, VOCAB, plain_bytes, diag);
    CHECK(!dataset && strstr(diag_text(diag), reason), "says: %s, not '%s'", diag_text(diag),
          reason);
    dataset_close(dataset);
    diag_destroy(diag);
}

/* -1 in two's complement, which is below 0 where the type has a sign. */
static void test_all_bits(const char *type, int bytes, const char *expected) {
    check_begin("a token below 0, or of all bits, is outside every vocabulary");
    Diag *diag = diag_create();
    int32_t tokens[SEQ], labels[SEQ];
    put_tokens("a", npy(type, "False"), NPY_HEADER, bytes, -1, 0);
    Dataset *dataset = dataset_open(in_folder("a"), SEQ, VOCAB, 1, diag);
    CHECK(dataset && !dataset_window(dataset, 0, tokens, labels, diag) &&
              strstr(diag_text(diag), expected),
          "%s: '%s' instead of '%s'", type, diag_text(diag), expected);
    dataset_close(dataset);
    diag_destroy(diag);
}

/* Its entropy is that of the others. */
static void test_below_zero(void) {
    check_begin("a token below 0 is not counted");
    Diag *diag = diag_create();
    put_tokens("a", npy("<i4", "False"), NPY_HEADER, 4, -1, 1);
    Dataset *dataset = dataset_open(in_folder("a"), SEQ, VOCAB, 1, diag);
    CHECK(dataset && dataset_unigram_entropy(dataset, 1000) > 0, "entropy");
    dataset_close(dataset);
    diag_destroy(diag);
}

static void test_kinds(void) {
    check_begin("llm.c's tokens of 32 bits");
    expect_tokens(put_tokens("a", llmc(20240801, 7), 1024, 4, 60000, 7000), 1, 60000, 7000);
    check_begin("tokens of 16 and 32 bits without a header");
    expect_tokens(put_tokens("a", NULL, 0, 2, 300, 17), 2, 300, 17);
    expect_tokens(put_tokens("a", NULL, 0, 4, 60000, 7000), 4, 60000, 7000);
    put_file("a", "123", 3);
    expect_error(in_folder("a"), 2, "3 bytes are no whole number of tokens of 2 bytes");
    check_begin("no text, which is told by its first bytes; but tokens of 16 bits may begin so");
    static const struct {
        const char *bytes, *error;
    } NO_TEXT[] = {
        {"PAR1 PAR1", "is a Parquet file: give --tokenizer, by which its texts are read"},
        {"\x1f\x8b 123456", "is compressed by gzip: unpack it, or give --tokenizer"},
        {"\xfd\x37zXZ\0 12", "is compressed by xz: unpack it"},
        {"\xff\xfeT\0t\0u\0", "is text in UTF-16: make it UTF-8"}};
    for (size_t i = 0; i < sizeof(NO_TEXT) / sizeof(NO_TEXT[0]); i++) {
        put_file("a", NO_TEXT[i].bytes, 8);
        expect_error(in_folder("a"), 1, NO_TEXT[i].error);
    }
    expect_tokens(put_tokens("a", NULL, 0, 2, 0xfeff, 1), 2, 0xfeff, 1);
    check_begin("a header is believed, whatever --token-bytes says");
    expect_tokens(put_tokens("a", llmc(20240520, 1), 1024, 2, 300, 17), 4, 300, 17);

    check_begin(".npy files");
    static const struct {
        const char *type;
        int width;
    } TYPES[] = {{"|u1", 1}, {"<u2", 2}, {"<u4", 4}, {"<i4", 4}, {"<u8", 8}, {"<i8", 8}};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        int64_t step = TYPES[i].width == 1 ? 3 : TYPES[i].width == 2 ? 3000 : 9000;
        const char *header = npy(TYPES[i].type, "False");
        expect_tokens(put_tokens("a", header, NPY_HEADER, TYPES[i].width, 5, step), 1, 5, step);
    }
    check_begin(".npy files that are no tokens");
    static const char *const BAD[] = {"<f4", ">u2", "<i2", "|S4"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        put_tokens("a", npy(BAD[i], "False"), NPY_HEADER, 2, 5, 3);
        expect_error(in_folder("a"), 1, "tokens must be u1, u2, u4, u8, i4 or i8");
    }
    put_tokens("a", npy("<u2", "True"), NPY_HEADER, 2, 5, 3);
    expect_error(in_folder("a"), 1, "in C order");
    char cut[NPY_HEADER + 3];
    memcpy(cut, npy("<u2", "False"), NPY_HEADER);
    memset(cut + NPY_HEADER, 0, 3);
    for (size_t n = 8; n < NPY_HEADER; n++) {
        expect_error(put_file("a", cut, n), 1, "ends inside its header");
    }
    expect_error(put_file("a", cut, NPY_HEADER + 3), 1, "promises 20 tokens, but 3 bytes follow");
    expect_error(put_file("a", cut, NPY_HEADER + 2), 1, "promises 20 tokens, but 2 bytes follow");
    cut[6] = 9;
    expect_error(put_file("a", cut, NPY_HEADER + 2), 1, "version 9");
    cut[6] = 1;
    memset(cut + 8, 0xff, 2);
    expect_error(put_file("a", cut, NPY_HEADER + 3), 1, "ends inside its header");
    test_all_bits("<i4", 4, "token -1 at position 0 is");
    test_all_bits("<i8", 8, "token -1 at position 0 is");
    test_all_bits("<u4", 4, "token 4294967295 at position 0 is");
    test_all_bits("<u8", 8, "token 18446744073709551615 at position 0 is");
    test_below_zero();
}

/* Files of 20, 20, 3 (no window) and 20 tokens, of three kinds, written in another order. */
static void test_folder(void) {
    Diag *diag = diag_create();
    int32_t tokens[SEQ], labels[SEQ];
    unlink(in_folder("a"));
    check_begin("a folder without files");
    put_file(".hidden", "text", 4);
    mkdir(in_folder("inner"), 0700);
    expect_error(folder, 1, "is a folder without files");
    check_begin("a folder's files in the order of their names, no window over two of them");
    put_tokens("d", npy("<i8", "False"), NPY_HEADER, 8, 3000, 1);
    put_file("c", (const uint16_t[]){1, 2, 3}, 6);
    put_tokens("b", llmc(20240801, 7), 1024, 4, 100000, 1);
    put_tokens("a", llmc(20240520, 1), 1024, 2, 1000, 1);
    static const int FIRST[] = {1000,   1004,   1008, 1012, 100000, 100004,
                                100008, 100012, 3000, 3004, 3008,   3012};
    Dataset *dataset = dataset_open(folder, SEQ, VOCAB, 2, diag), *train, *val;
    CHECK(dataset && dataset_count_files(dataset) == 4, "%s", diag_text(diag));
    CHECK(dataset && dataset_count_windows(dataset) == 12, "not 12 windows");
    for (int w = 0; dataset && w < 12; w++) {
        CHECK(dataset_window(dataset, w, tokens, labels, diag), "%s", diag_text(diag));
        CHECK(tokens[0] == FIRST[w] && labels[3] == FIRST[w] + 4, "window %d: %d ... %d", w,
              tokens[0], labels[3]);
    }
    check_begin("a split of a folder within a file");
    CHECK(dataset_split(dataset, 31.0 / 63, &train, &val, diag), "%s", diag_text(diag));
    CHECK(dataset_count_tokens(train) == 32 && dataset_count_windows(train) == 4 + 2, "train");
    CHECK(dataset_count_windows(val) == 1 + 4, "%d windows", (int)dataset_count_windows(val));
    CHECK(dataset_window(train, 5, tokens, labels, diag) && labels[3] == 100008, "%d", labels[3]);
    CHECK(dataset_window(val, 0, tokens, labels, diag) && tokens[0] == 100012, "%d", tokens[0]);
    CHECK(dataset_window(val, 4, tokens, labels, diag) && tokens[0] == 3012, "%d", tokens[0]);
    check_begin("entropy of all tokens, and of a sample of them");
    double all = dataset_unigram_entropy(dataset, 63), some = dataset_unigram_entropy(dataset, 10);
    CHECK(fabs(all - log(63)) < 1e-12 && fabs(some - log(10)) < 1e-12, "%g, %g", all, some);
    dataset_close(train);
    dataset_close(val);
    dataset_close(dataset);
    check_begin("text and tokens in one folder");
    expect_error(folder, 1, "c: is text, but");
    check_begin("a link to nothing in a folder");
    CHECK(symlink("nothing", in_folder("e")) == 0, "no link");
    expect_error(folder, 2, "e: cannot be read: No such file");
    diag_destroy(diag);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    arena = arena_create();
    test_kinds();
    test_folder();
    static const char *const NAMES[] = {".hidden", "a", "b", "c", "d", "e"};
    for (int i = 0; i < 6; i++) unlink(in_folder(NAMES[i]));
    rmdir(in_folder("inner"));
    rmdir(folder);
    arena_destroy(arena);
    return check_report();
}
