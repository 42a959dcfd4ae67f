/* safetensors: what is written comes back; whatever is broken gives an error and never a crash. */
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/test_safetensors-XXXXXX";

/* Neither file_write nor fopen(.., "w"): thousands of these need no sync, and some file systems
 * write at once what was truncated to nothing. */
static void put_file(const void *bytes, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && pwrite(fd, bytes, length, 0) == (ssize_t)length &&
              ftruncate(fd, (off_t)length) == 0,
          "cannot write");
    if (fd >= 0) close(fd);
}

static size_t get_file(unsigned char *bytes, size_t size) {
    FILE *file = fopen(path, "rb");
    size_t length = file ? fread(bytes, 1, size, file) : 0;
    if (file) fclose(file);
    return length;
}

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const uint16_t halves[3] = {0x3f80, 0x4000, 0x4040};
static const int64_t step = 123456789012;

static SafetensorsWriter *declare_example(void) {
    SafetensorsWriter *writer = safetensors_writer_create();
    safetensors_writer_add_metadata(writer, "format", "pt");
    safetensors_writer_add_metadata(writer, "note", "\"quoted\" \xc3\xa9\n");
    safetensors_writer_add_tensor(writer, "step", SAFETENSORS_I64, NULL, 0);
    safetensors_writer_add_tensor(writer, "none", SAFETENSORS_F32, (int64_t[]){4, 0}, 2);
    safetensors_writer_add_tensor(writer, "w/1", SAFETENSORS_F32, (int64_t[]){2, 3}, 2);
    safetensors_writer_add_tensor(writer, "half", SAFETENSORS_BF16, (int64_t[]){3}, 1);
    return writer;
}

static void write_example(void) {
    Diag *diag = diag_create();
    SafetensorsWriter *writer = declare_example();
    bool ok = safetensors_writer_open(writer, path, diag) &&
              safetensors_writer_put(writer, "step", &step, 8, diag) &&
              safetensors_writer_put(writer, "w/1", weights, 20, diag) &&
              safetensors_writer_put(writer, "w/1", weights + 5, 4, diag) &&
              safetensors_writer_put(writer, "half", halves, 6, diag) &&
              safetensors_writer_commit(writer, diag);
    CHECK(ok, "%s", diag_text(diag));
    diag_destroy(diag);
}

static void test_round_trip(void) {
    Diag *diag = diag_create();
    SafetensorsInfo info;
    check_begin("safetensors: what is written comes back");
    write_example();
    Safetensors *file = safetensors_open(path, diag);
    CHECK(file != NULL, "%s", diag_text(diag));
    CHECK(safetensors_count(file) == 4, "%d tensors", safetensors_count(file));
    CHECK(strcmp(safetensors_at(file, 0)->name, "step") == 0, "file order");
    CHECK(safetensors_find(file, "w/1", &info) && info.dtype == SAFETENSORS_F32 &&
              info.n_dims == 2 && info.shape[0] == 2 && info.shape[1] == 3 && info.n_bytes == 24,
          "w/1 differs");
    CHECK(memcmp(info.data, weights, 24) == 0 && (uintptr_t)info.data % 8 == 0, "w/1's data");
    CHECK(safetensors_find(file, "half", &info) && memcmp(info.data, halves, 6) == 0, "half");
    CHECK(safetensors_find(file, "none", &info) && info.n_bytes == 0 && info.shape[1] == 0, "none");
    CHECK(safetensors_find(file, "step", &info) && info.n_dims == 0, "step");
    CHECK(memcmp(info.data, &step, 8) == 0, "step's data");
    CHECK(!safetensors_find(file, "w/2", &info), "found what is not there");
    CHECK(safetensors_count_metadata(file) == 2, "metadata");
    CHECK(strcmp(safetensors_find_metadata(file, "note"), "\"quoted\" \xc3\xa9\n") == 0, "note");
    CHECK(!safetensors_find_metadata(file, "w/1"), "found metadata that is not there");
    safetensors_close(file);

    check_begin("safetensors: no tensors at all");
    SafetensorsWriter *writer = safetensors_writer_create();
    CHECK(safetensors_writer_open(writer, path, diag) && safetensors_writer_commit(writer, diag),
          "%s", diag_text(diag));
    file = safetensors_open(path, diag);
    CHECK(file && safetensors_count(file) == 0, "%s", diag_text(diag));
    CHECK(!safetensors_find(file, "x", &info), "found");
    safetensors_close(file);

    check_begin("safetensors: an abandoned writer leaves the old file");
    write_example();
    writer = declare_example();
    CHECK(safetensors_writer_open(writer, path, diag), "%s", diag_text(diag));
    safetensors_writer_abandon(writer);
    file = safetensors_open(path, diag);
    CHECK(file && safetensors_count(file) == 4, "%s", diag_text(diag));
    safetensors_close(file);
    diag_destroy(diag);
}

static void expect_unwritable(const char *name, bool twice) {
    Diag *diag = diag_create();
    SafetensorsWriter *writer = safetensors_writer_create();
    for (int i = 0; i <= twice; i++) {
        safetensors_writer_add_tensor(writer, name, SAFETENSORS_U8, (int64_t[]){1}, 1);
    }
    CHECK(!safetensors_writer_open(writer, path, diag), "was accepted");
    CHECK(strstr(diag_text(diag), "cannot be written"), "%s", diag_text(diag));
    safetensors_writer_abandon(writer);
    diag_destroy(diag);
}

/* A file of this header and n_data zero bytes. */
static void put_header(const char *header, size_t n_data) {
    unsigned char bytes[4096] = {0};
    uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    put_file(bytes, 8 + length + n_data);
}

static void expect_error(const char *header, size_t n_data, const char *reason) {
    Diag *diag = diag_create();
    put_header(header, n_data);
    Safetensors *file = safetensors_open(path, diag);
    CHECK(!file, "accepted: %s", header);
    CHECK(strstr(diag_text(diag), reason), "no '%s' in: %s", reason, diag_text(diag));
    CHECK(strncmp(diag_text(diag), path, strlen(path)) == 0, "no path in: %s", diag_text(diag));
    safetensors_close(file);
    diag_destroy(diag);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"

static void test_errors(void) {
    check_begin("safetensors: names that cannot be written");
    expect_unwritable("a", true);
    expect_unwritable("__metadata__", false);
    expect_unwritable("\xff", false);

    check_begin("safetensors: each rule broken gives its error");
    expect_error("{" T("a", "F32", "2", "0", "8") "}", 4,
                 "tensor 'a': bytes 0 to 8 are not inside");
    expect_error("{" T("a", "F32", "2", "-8", "0") "}", 8, "tensor 'a': bytes -8 to 0 are not");
    expect_error("{" T("a", "F32", "2", "8", "0") "}", 8, "tensor 'a': bytes 8 to 0 are not");
    expect_error("{" T("a", "F32", "3", "0", "8") "}", 8,
                 "'a': has 8 bytes, but its shape and dty");
    expect_error("{" T("a", "F33", "2", "0", "8") "}", 8, "tensor 'a': dtype 'F33' is not known");
    expect_error("{" T("a", "F32", "-2", "0", "8") "}", 8, "'a': dimension 0 is not a size");
    expect_error("{" T("a", "F32", "2.0", "0", "8") "}", 8, "'a': dimension 0 is not a size");
    expect_error("{" T("a", "F32", "4611686018427387904,4", "0", "8") "}", 8, "is too large");
    expect_error("{" T("a", "F32", "0,9223372036854775807", "0", "8") "}", 8, "shape and dtype 0");
    expect_error("{" T("a", "U8", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1, "has 9 dimensions; at");
    expect_error("{" T("a", "U8", "4", "0", "4") "," T("b", "U8", "4", "2", "6") "}", 6,
                 "tensor 'b': overlaps tensor 'a'");
    expect_error("{" T("a", "U8", "4", "0", "4") "," T("b", "U8", "4", "6", "10") "}", 10,
                 "tensor 'b': 2 unused bytes lie before it");
    expect_error("{" T("a", "U8", "4", "0", "4") "}", 6, "2 bytes follow the last tensor");
    expect_error("{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "0", "1") "}", 1,
                 "duplicate object key");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets is not a pair");
    expect_error("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a': has no shape");
    expect_error("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "'a': has no dtype");
    expect_error("{\"a\":7}", 0, "tensor 'a': is not a JSON object");
    expect_error("[]", 0, "the header is not a JSON object");
    expect_error("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not a map of strings");
    expect_error("{\"__metadata__\":3}", 0, "__metadata__ is not a map of strings");
    expect_error("{", 0, "JSON: ");
    expect_error("{} x", 0, "JSON: ");
    expect_error("", 0, "JSON: ");

    check_begin("safetensors: lengths that lie");
    Diag *diag = diag_create();
    put_file("\1\0\0", 3);
    CHECK(!safetensors_open(path, diag), "3 bytes were accepted");
    put_file("\3\0\0\0\0\0\0\0{}", 10);
    CHECK(!safetensors_open(path, diag), "a header past the end was accepted");
    put_file("\377\377\377\377\377\377\377\377{}", 10);
    CHECK(!safetensors_open(path, diag), "a header of 2^64-1 was accepted");
    CHECK(strstr(diag_text(diag), "too short (3 bytes)"), "%s", diag_text(diag));
    CHECK(strstr(diag_text(diag), "was cut short: it says 3 bytes of header"), "%s",
          diag_text(diag));
    diag_destroy(diag);

    check_begin("safetensors: unordered, unpadded files of other programs are read");
    diag = diag_create();
    put_header("{" T("b", "U8", "3", "1", "4") "," T("a", "BOOL", "", "0", "1") "}  ", 4);
    Safetensors *file = safetensors_open(path, diag);
    CHECK(file && strcmp(safetensors_at(file, 0)->name, "a") == 0, "%s", diag_text(diag));
    safetensors_close(file);
    diag_destroy(diag);
}

/* Reads every byte that an accepted file offers; an error must say something. */
static bool try_file(const unsigned char *bytes, size_t length) {
    Diag *diag = diag_create();
    unsigned sum = 0;
    put_file(bytes, length);
    Safetensors *file = safetensors_open(path, diag);
    bool accepted = file != NULL;
    for (int i = 0; file && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        const unsigned char *data = info->data;
        for (size_t k = 0; k < info->n_bytes; k++) sum += data[k];
        SafetensorsInfo found;
        CHECK(safetensors_find(file, info->name, &found) && found.data == info->data, "find");
    }
    CHECK(accepted == (diag_error_count(diag) == 0), "accepted %d, %s", accepted, diag_text(diag));
    CHECK(sum < 1u << 30, "%u", sum);
    safetensors_close(file);
    diag_destroy(diag);
    return accepted;
}

static void test_damage(void) {
    unsigned char good[4096], bad[4096];
    write_example();
    size_t length = get_file(good, sizeof good);
    uint64_t header_bytes;
    memcpy(&header_bytes, good, 8);
    CHECK(try_file(good, length), "the example is not accepted");

    check_begin("safetensors: every truncation is an error");
    for (size_t n = 0; n < length; n++) CHECK(!try_file(good, n), "%zu bytes were accepted", n);

    check_begin("safetensors: no flipped bit crashes; flips in the length are errors");
    for (size_t bit = 0; bit < 8 * length; bit++) {
        memcpy(bad, good, length);
        bad[bit / 8] ^= (unsigned char)(1u << bit % 8);
        bool accepted = try_file(bad, length);
        bool in_length = bit < 64, in_data = bit / 8 >= 8 + header_bytes;
        CHECK(!(accepted && in_length), "length bit %zu was accepted", bit);
        CHECK(accepted || !in_data, "data bit %zu was refused", bit);
    }

    check_begin("safetensors: no random damage to the header crashes");
    uint32_t random = 1;
    static const char spice[] = "{}[]\",:0123456789-eE.tfn\\u \xff";
    for (int round = 0; round < 20000; round++) {
        memcpy(bad, good, length);
        for (int k = 0; k < 1 + round % 5; k++) {
            random = random * 1664525u + 1013904223u;
            size_t at = 8 + (random >> 8) % header_bytes;
            random = random * 1664525u + 1013904223u;
            bad[at] = (unsigned char)spice[(random >> 8) % (sizeof spice - 1)];
        }
        try_file(bad, length);
    }
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    test_round_trip();
    test_errors();
    test_damage();
    unlink(path);
    return check_report();
}
