/* philox.c: the published test vectors, moments, and shards that draw what the whole draws. */
#include "runtime/cpu/philox.h"
#include "tests/unit/kernel_check.h"

/* Known answers of philox4x32-10, from the Random123 distribution of Salmon et al. 2011. */
static void check_vectors(void) {
    const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                  {0xffffffff, 0xffffffff},
                  {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                 {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  {0xa4093822, 0x299f31d0},
                  {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox_block(known[i].counter, known[i].key, out);
        CHECK(memcmp(out, known[i].out, sizeof out) == 0, "vector %d: %08x %08x %08x %08x", i,
              out[0], out[1], out[2], out[3]);
    }
}

/* Element i is lane i % 4 of the block that the header describes, also far out and unaligned. */
static void check_layout(void) {
    const PhiloxStream stream = {.seed = 0x123456789abcdefu, .step = 77, .key = 5};
    const uint64_t firsts[] = {0, 3, 1000001, ((uint64_t)1 << 34) - 100};
    for (int f = 0; f < 4; f++) {
        float x[300];
        philox_uniform_run(&stream, firsts[f], 1, 300, x);
        for (uint64_t i = 0; i < 300; i++) {
            const uint64_t e = firsts[f] + i;
            const uint32_t counter[] = {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), 5, 77};
            const uint32_t key[] = {(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)};
            uint32_t out[4];
            philox_block(counter, key, out);
            CHECK(x[i] == (float)(out[e % 4] >> 8) * 0x1p-24f, "element %d of run %d", (int)i, f);
        }
        float strided[20];
        uint64_t blocks[PHILOX_BLOCKS];
        uint32_t words[4][PHILOX_BLOCKS];
        for (uint64_t j = 0; j < PHILOX_BLOCKS; j++) blocks[j] = firsts[f] / 4 + j * 7 % 5;
        philox_blocks(&stream, blocks, words);
        for (int j = 0; j < PHILOX_BLOCKS; j++) {
            const uint32_t counter[4] = {(uint32_t)blocks[j], (uint32_t)(blocks[j] >> 32),
                                         stream.key, (uint32_t)stream.step};
            const uint32_t seed[2] = {(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)};
            uint32_t out[4];
            philox_block(counter, seed, out);
            for (int l = 0; l < 4; l++) CHECK(words[l][j] == out[l], "block %d of many", j);
        }
        philox_uniform_run(&stream, firsts[f] + 1, 13, 20, strided);
        for (int i = 0; i < 20; i++) CHECK(strided[i] == x[1 + 13 * i], "strided element %d", i);
    }
}

static void check_moments(void) {
    enum { N = 1 << 20 };
    float *x = kc_zeros(N);
    const PhiloxStream stream = {.seed = 1};
    const PhiloxSpace space = {.n_dims = 1, .dims = {N}, .stride = {1}};
    philox_fill_normal(&stream, &space, 0.5f, 2.0f, x);
    double moment[5] = {0};
    for (int i = 0; i < N; i++) {
        CHECK(isfinite(x[i]), "element %d is not finite", i);
        for (int m = 1; m < 5; m++) moment[m] += pow(((double)x[i] - 0.5) / 2, m) / N;
    }
    /* Four standard errors: 1/sqrt(N) = 1e-3 times 1, sqrt 2, sqrt 15, sqrt 96. */
    CHECK(fabs(moment[1]) < 4e-3 && fabs(moment[2] - 1) < 6e-3, "mean %g, variance %g", moment[1],
          moment[2]);
    CHECK(fabs(moment[3]) < 16e-3 && fabs(moment[4] - 3) < 4e-2, "third %g, fourth %g", moment[3],
          moment[4]);
    philox_fill_uniform(&stream, &space, -3.0f, 5.0f, x);
    double mean = 0;
    for (int i = 0; i < N; i++) {
        CHECK(x[i] >= -3 && x[i] < 5.0001f, "uniform %g", (double)x[i]);
        mean += (double)x[i] / N;
    }
    CHECK(fabs(mean - 1) < 1e-2, "uniform's mean %g", mean);
    free(x);
}

/* A [6, 50, 70] tensor, whole and cut along each dimension, by 1 and by 3 threads. */
static void check_shards(void) {
    const int64_t dims[] = {6, 50, 70}, n = 6 * 50 * 70;
    const PhiloxStream stream = {.seed = 42, .key = 8};
    PhiloxSpace space = {.n_dims = 3, .dims = {6, 50, 70}, .stride = {3500, 70, 1}};
    float *whole = kc_zeros(n), *part = kc_zeros(n);
    omp_set_num_threads(1);
    philox_fill_normal(&stream, &space, 0, 1, whole);
    omp_set_num_threads(3);
    philox_fill_normal(&stream, &space, 0, 1, part);
    omp_set_num_threads(2);
    CHECK(kc_same_bits(whole, part, n), "depends on the number of threads");
    for (int cut = 0; cut < 3; cut++) {
        space.dims[cut] = dims[cut] / 2;
        space.offset[cut] = dims[cut] - dims[cut] / 2;
        philox_fill_normal(&stream, &space, 0, 1, part);
        int64_t i = 0;
        for (int64_t a = 0; a < space.dims[0]; a++)
            for (int64_t b = 0; b < space.dims[1]; b++)
                for (int64_t c = 0; c < space.dims[2]; c++)
                    CHECK(part[i++] == whole[(a + space.offset[0]) * 3500 +
                                             (b + space.offset[1]) * 70 + c + space.offset[2]],
                          "cut along %d: element %d,%d,%d", cut, (int)a, (int)b, (int)c);
        space.dims[cut] = dims[cut];
        space.offset[cut] = 0;
    }
    free(whole), free(part);
}

int main(void) {
    check_begin("Philox's published vectors");
    check_vectors();
    check_begin("element i is lane i % 4 of block i / 4");
    check_layout();
    check_begin("normal and uniform moments");
    check_moments();
    check_begin("shards draw what the whole draws");
    check_shards();
    return check_report();
}
