/* Datasets: windows and splits, a permutation per epoch, errors with positions. */
#include "ir/base/file.h"
#include "runtime/data/dataset.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_INTS = 256 };

static char path[] = "/tmp/test_dataset-XXXXXX";

static void put_file(const void *bytes, size_t length) {
    Diag *diag = diag_create();
    CHECK(file_write(path, bytes, length, diag), "%s", diag_text(diag));
    diag_destroy(diag);
}

/* Header with these first three numbers, then n tokens 0, 1, 2, ... and `extra` bytes. */
static void put_tokens(int32_t magic, int32_t version, int32_t promised, int n, int extra) {
    size_t length = HEADER_INTS * 4 + 2 * (size_t)n + (size_t)extra;
    unsigned char *bytes = calloc(1, length);
    int32_t header[] = {magic, version, promised};
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < n; i++) {
        uint16_t token = (uint16_t)i;
        memcpy(bytes + HEADER_INTS * 4 + 2 * i, &token, 2);
    }
    put_file(bytes, length);
    free(bytes);
}

static void put_text(size_t n) {
    unsigned char *bytes = malloc(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i % 251);
    put_file(bytes, n);
    free(bytes);
}

static void expect_open_error(int seq, int vocab, const char *reason) {
    Diag *diag = diag_create();
    Dataset *dataset = dataset_open(path, seq, vocab, 1, diag);
    CHECK(!dataset, "was opened");
    CHECK(strstr(diag_text(diag), reason), "no '%s' in: %s", reason, diag_text(diag));
    CHECK(strstr(diag_text(diag), path), "no path in: %s", diag_text(diag));
    dataset_close(dataset);
    diag_destroy(diag);
}

static void test_windows(void) {
    Diag *diag = diag_create();
    int32_t tokens[8], labels[8];
    check_begin("dataset: windows of a byte file, labels shifted by one");
    put_text(33);
    Dataset *dataset = dataset_open(path, 8, 256, 1, diag);
    CHECK(dataset && dataset_count_tokens(dataset) == 33, "%s", diag_text(diag));
    CHECK(dataset_count_windows(dataset) == 4, "%d windows", (int)dataset_count_windows(dataset));
    CHECK(dataset_window(dataset, 3, tokens, labels, diag), "%s", diag_text(diag));
    for (int i = 0; i < 8; i++) {
        CHECK(tokens[i] == 24 + i && labels[i] == 25 + i, "position %d: %d, %d", i, tokens[i],
              labels[i]);
    }
    dataset_close(dataset);

    check_begin("dataset: the smallest file, one window");
    put_text(9);
    dataset = dataset_open(path, 8, 256, 1, diag);
    CHECK(dataset && dataset_count_windows(dataset) == 1, "%s", diag_text(diag));
    for (int i = 0; i < 3; i++) {
        CHECK(dataset_sample(dataset, 1, i, tokens, labels, diag) && tokens[0] == 0, "sample");
    }
    dataset_close(dataset);

    check_begin("dataset: a token file of llm.c");
    put_tokens(20240520, 1, 1000, 1000, 0);
    dataset = dataset_open(path, 8, 50257, 1, diag);
    CHECK(dataset && dataset_count_tokens(dataset) == 1000, "%s", diag_text(diag));
    CHECK(dataset_window(dataset, 100, tokens, labels, diag), "%s", diag_text(diag));
    CHECK(tokens[0] == 800 && labels[7] == 808, "tokens %d, labels %d", tokens[0], labels[7]);
    dataset_close(dataset);
    diag_destroy(diag);
}

static void test_errors(void) {
    Diag *diag = diag_create();
    int32_t tokens[8], labels[8];
    check_begin("dataset: too few tokens");
    put_text(8);
    expect_open_error(8, 256, "has 8 tokens; seq=8 needs at least 9");
    put_file("", 0);
    expect_open_error(8, 256, "has 0 tokens; seq=8 needs at least 9");

    check_begin("dataset: bytes outside a small vocabulary");
    put_text(300);
    expect_open_error(8, 100, "byte 100 at position 100 is outside the vocabulary of 100");

    check_begin("dataset: token headers that lie");
    put_tokens(20240520, 2, 100, 100, 0);
    expect_open_error(8, 300, "version 2; of this kind only version 1");
    put_tokens(20240520, 1, 101, 100, 0);
    expect_open_error(8, 300, "promises 101 tokens, but 200 bytes follow");
    put_tokens(20240520, 1, 100, 100, 1);
    expect_open_error(8, 300, "promises 100 tokens, but 201 bytes follow");
    put_tokens(20240520, 1, -1, 100, 0);
    expect_open_error(8, 300, "promises -1 tokens");
    put_tokens(20240801, 1, 50, 100, 0);
    expect_open_error(8, 300, "version 1; of this kind only version 7");
    put_tokens(20240801, 7, 100, 100, 0);
    expect_open_error(8, 300, "promises 100 tokens, but 200 bytes follow its header (4 per token)");
    int32_t magic = 20240520;
    put_file(&magic, sizeof magic);
    expect_open_error(8, 300, "ends inside its header");

    check_begin("dataset: a token outside the vocabulary is found when read");
    put_tokens(20240520, 1, 1000, 1000, 0);
    Dataset *dataset = dataset_open(path, 8, 700, 1, diag), *train, *val;
    CHECK(dataset && dataset_window(dataset, 86, tokens, labels, diag), "%s", diag_text(diag));
    CHECK(!dataset_window(dataset, 87, tokens, labels, diag), "token 700 was accepted");
    CHECK(strstr(diag_text(diag), "token 700 at position 700 is outside the vocabulary of 700"),
          "%s", diag_text(diag));

    check_begin("dataset: splits that leave too little");
    CHECK(!dataset_split(dataset, 0.008, &train, &val, diag), "8 tokens were accepted");
    CHECK(strstr(diag_text(diag), "leaves 992 tokens to train and 8 to validate; seq=8 needs at"),
          "%s", diag_text(diag));
    CHECK(!dataset_split(dataset, 1, &train, &val, diag), "fraction 1 was accepted");
    CHECK(!dataset_split(dataset, NAN, &train, &val, diag), "fraction NaN was accepted");
    CHECK(train == NULL && val == NULL, "outputs are set");
    dataset_close(dataset);
    diag_destroy(diag);
}

static void test_split(void) {
    Diag *diag = diag_create();
    int32_t tokens[8], labels[8];
    check_begin("dataset: the split shares no token and outlives the whole");
    put_tokens(20240520, 1, 1000, 1000, 0);
    Dataset *dataset = dataset_open(path, 8, 1000, 1, diag), *train, *val;
    CHECK(dataset_split(dataset, 0.1, &train, &val, diag), "%s", diag_text(diag));
    dataset_close(dataset);
    CHECK(dataset_count_tokens(train) == 900 && dataset_count_tokens(val) == 100, "sizes");
    CHECK(dataset_mapped_bytes(train) == 1024 + 2000 && dataset_mapped_bytes(val) == 1024 + 2000,
          "%lld bytes mapped", (long long)dataset_mapped_bytes(val));
    int last = (int)dataset_count_windows(train) - 1;
    CHECK(last == 111 && dataset_window(train, last, tokens, labels, diag), "%d", last);
    CHECK(labels[7] < 900, "a training label is a validation token");
    CHECK(dataset_window(val, 0, tokens, labels, diag) && tokens[0] == 900, "%d", tokens[0]);
    CHECK(dataset_count_windows(val) == 12, "validation windows");

    check_begin("dataset: unigram entropy");
    double entropy = dataset_unigram_entropy(val, DATASET_MOST_COUNTED);
    CHECK(fabs(entropy - log(100)) < 1e-12, "%.15f, not log(100): 100 tokens, all once", entropy);
    dataset_close(train);
    dataset_close(val);
    put_file("aaaaaaaaab", 10);
    dataset = dataset_open(path, 8, 256, 1, diag);
    entropy = dataset_unigram_entropy(dataset, DATASET_MOST_COUNTED);
    CHECK(fabs(entropy - (-0.9 * log(0.9) - 0.1 * log(0.1))) < 1e-12, "%.15f", entropy);
    dataset_close(dataset);
    diag_destroy(diag);
}

/* Which window each sample of an epoch is, by its first token. */
static void epoch_order(const Dataset *dataset, uint64_t seed, int epoch, int n, int *out_order) {
    int32_t token[1], label[1];
    Diag *diag = diag_create();
    for (int i = 0; i < n; i++) {
        CHECK(dataset_sample(dataset, seed, (int64_t)epoch * n + i, token, label, diag), "%s",
              diag_text(diag));
        out_order[i] = token[0];
    }
    diag_destroy(diag);
}

static void test_order(void) {
    enum { MAX = 1200 };
    static int order[MAX], other[MAX], seen[MAX];
    Diag *diag = diag_create();
    check_begin("dataset: every epoch visits every window once");
    for (int n = 1; n < MAX; n = n < 20 ? n + 1 : n * 3 / 2) {
        put_tokens(20240520, 1, n + 1, n + 1, 0);
        Dataset *dataset = dataset_open(path, 1, 2000, 1, diag);
        for (int epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            epoch_order(dataset, 42, epoch, n, order);
            for (int i = 0; i < n; i++) seen[order[i]]++;
            for (int i = 0; i < n; i++) CHECK(seen[i] == 1, "%d windows: %d missing", n, i);
        }
        dataset_close(dataset);
    }

    check_begin("dataset: orders differ by epoch and seed, and look random");
    put_tokens(20240520, 1, 1001, 1001, 0);
    Dataset *dataset = dataset_open(path, 1, 2000, 1, diag);
    for (int variant = 0; variant < 3; variant++) {
        int n_fixed = 0, n_neighbours = 0, n_same = 0;
        epoch_order(dataset, variant == 1 ? 43 : 42, variant == 2, 1000, variant ? other : order);
        int *got = variant ? other : order;
        for (int i = 0; i < 1000; i++) {
            n_fixed += got[i] == i;
            n_neighbours += i > 0 && abs(got[i] - got[i - 1]) == 1;
            n_same += variant > 0 && got[i] == order[i];
        }
        /* A random permutation has 1 fixed point and 2 neighbours on average, Poisson. */
        CHECK(n_fixed < 8 && n_neighbours < 12 && n_same < 8, "variant %d: %d, %d, %d", variant,
              n_fixed, n_neighbours, n_same);
    }
    epoch_order(dataset, 42, 0, 1000, other);
    CHECK(memcmp(order, other, 1000 * sizeof(int)) == 0, "the order is not repeatable");
    dataset_close(dataset);

    /* 3! orders of three windows over many epochs: 600 of each expected, sigma 22. */
    check_begin("dataset: orders of three windows are even");
    put_tokens(20240520, 1, 4, 4, 0);
    dataset = dataset_open(path, 1, 10, 1, diag);
    int counts[27] = {0};
    for (int epoch = 0; epoch < 3600; epoch++) {
        epoch_order(dataset, 7, epoch, 3, order);
        counts[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    for (int i = 0; i < 27; i++) {
        CHECK(counts[i] == 0 || abs(counts[i] - 600) < 110, "order %d: %d", i, counts[i]);
    }
    dataset_close(dataset);
    diag_destroy(diag);
}

/* --- Megatron-LM's indexed datasets --- */

enum { INDEX_BYTES = 34, N_SEQUENCES = 3, INDEXED_TOKENS = 40 };

static char folder[] = "/tmp/test_dataset-folder-XXXXXX";
static char bin_path[sizeof(folder) + 8], idx_path[sizeof(folder) + 8];

static void put_at(const char *name, const void *bytes, size_t length) {
    Diag *diag = diag_create();
    CHECK(file_write(name, bytes, length, diag), "%s", diag_text(diag));
    diag_destroy(diag);
}

/* Sequences of 10, 0 and 30 tokens 0, 1, 2, ... of 2 bytes, as one document each; returns the
 * index's length. */
static size_t make_index(unsigned char *out, unsigned char type) {
    static const int32_t LENGTHS[] = {10, 0, 30};
    static const int64_t BEGINS[] = {0, 20, 20}, DOCUMENTS[] = {0, 1, 2, 3};
    uint64_t numbers[] = {1, N_SEQUENCES, N_SEQUENCES + 1};
    size_t n = INDEX_BYTES;
    memcpy(out, "MMIDIDX\0", 9);
    memcpy(out + 9, &numbers[0], 8);
    out[17] = type;
    memcpy(out + 18, &numbers[1], 16);
    memcpy(out + n, LENGTHS, sizeof(LENGTHS)), n += sizeof(LENGTHS);
    memcpy(out + n, BEGINS, sizeof(BEGINS)), n += sizeof(BEGINS);
    memcpy(out + n, DOCUMENTS, sizeof(DOCUMENTS)), n += sizeof(DOCUMENTS);
    return n;
}

static void expect_index_error(const unsigned char *index, size_t length, const char *reason) {
    Diag *diag = diag_create();
    put_at(idx_path, index, length);
    Dataset *dataset = dataset_open(bin_path, 8, 50000, 1, diag);
    CHECK(!dataset && strstr(diag_text(diag), reason) && strstr(diag_text(diag), ".idx"),
          "no '%s' in: %s", reason, diag_text(diag));
    dataset_close(dataset);
    diag_destroy(diag);
}

static void test_index(void) {
    Diag *diag = diag_create();
    int32_t tokens[8], labels[8];
    unsigned char index[256];
    uint16_t ids[INDEXED_TOKENS];
    for (int i = 0; i < INDEXED_TOKENS; i++) ids[i] = (uint16_t)(i * 1100);
    CHECK(mkdtemp(folder), "no folder");
    snprintf(bin_path, sizeof(bin_path), "%s/a.bin", folder);
    snprintf(idx_path, sizeof(idx_path), "%s/a.idx", folder);
    put_at(bin_path, ids, sizeof(ids));
    size_t length = make_index(index, 8);
    put_at(idx_path, index, length);
    const char *const names[] = {bin_path, idx_path, folder};
    for (int i = 0; i < 3; i++) {
        check_begin(i == 0   ? "dataset: Megatron-LM's tokens beside their index"
                    : i == 1 ? "dataset: by the index's name"
                             : "dataset: in a folder, the index is no file of tokens");
        Dataset *dataset = dataset_open(names[i], 8, 50000, 1, diag);
        CHECK(dataset && dataset_count_tokens(dataset) == INDEXED_TOKENS, "%s", diag_text(diag));
        CHECK(dataset && dataset_window(dataset, 3, tokens, labels, diag) && tokens[0] == 26400 &&
                  labels[7] == 35200,
              "%d", tokens[0]);
        dataset_close(dataset);
    }

    check_begin("dataset: tokens below 0 are said as they are");
    put_at(idx_path, index, make_index(index, 3));
    Dataset *dataset = dataset_open(bin_path, 8, 50000, 1, diag);
    CHECK(dataset && !dataset_window(dataset, 3, tokens, labels, diag) &&
              strstr(diag_text(diag), "-32536"),
          "%s", diag_text(diag));
    dataset_close(dataset);

    check_begin("dataset: a wrong index says what is wrong");
    expect_index_error(index, 20, "ends inside its header");
    make_index(index, 7);
    expect_index_error(index, length, "of type 7 (float32)");
    make_index(index, 77);
    expect_index_error(index, length, "of type 77 (unknown)");
    make_index(index, 4);
    expect_index_error(index, length,
                       "sequence 1 has 0 tokens from byte 20 on, but the one before");
    make_index(index, 8);
    expect_index_error(index, 60, "ends inside its 3 sequences");
    index[9] = 2;
    expect_index_error(index, length, "index of version 2");
    index[9] = 1, index[INDEX_BYTES + 8] = 31;
    expect_index_error(index, length, "promises 82 bytes of tokens");
    index[INDEX_BYTES + 11] = 0x80;
    expect_index_error(index, length, "sequence 2 has -2147483617 tokens");
    make_index(index, 8);
    memset(index + 18, 0xff, 8);
    expect_index_error(index, length, "ends inside its 18446744073709551615 sequences");

    check_begin("dataset: an index without tokens");
    put_at(idx_path, index, make_index(index, 8));
    unlink(bin_path);
    dataset = dataset_open(folder, 8, 50000, 1, diag);
    CHECK(!dataset && strstr(diag_text(diag), "a.bin"), "%s", diag_text(diag));
    dataset_close(dataset);
    unlink(idx_path);
    rmdir(folder);
    diag_destroy(diag);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    test_windows();
    test_errors();
    test_split();
    test_order();
    unlink(path);
    test_index();
    return check_report();
}
