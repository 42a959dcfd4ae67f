/* The emulator of CUDA kernels, by kernels whose results are known (tests/emulate/probe.cu).
 *
 * Would catch: lanes mixed up in a shuffle, a fragment of a matrix instruction in the wrong place,
 * a barrier that lets threads through, data of cp.async that is there before it was waited for, a
 * mistake of a kernel (different barriers, missing lanes) that passes unseen.
 */
#include "tests/emulate/emulate.h"
#include "tests/emulate/probe.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static bool run(const char *name, int blocks, int threads, int shared_bytes,
                const ProbeArgs *args) {
    const struct EmulateProbe *probe = EMULATE_PROBES;
    while (probe->name && strcmp(probe->name, name) != 0) probe++;
    return probe->name && emulate_run(probe->entry, name, (uint32_t[3]){(uint32_t)blocks, 1, 1},
                                      threads, shared_bytes, args);
}

/* bfloat16 by cutting: the tests use numbers that fit. */
static unsigned short cut(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (unsigned short)(bits >> 16);
}

static void test_shuffles(void) {
    int out[64 * 6];
    check_begin("shuffles and ballots");
    CHECK(run("shuffles", 1, 64, 0, &(ProbeArgs){.ints = out}), "%s", emulate_error());
    for (int t = 0; t < 64; t++) {
        int lane = t % 32, warp = t - lane, ballot = 0;
        for (int i = 0; i < 32; i++) ballot |= (int)((unsigned)((warp + i) % 3 == 0) << i);
        int expected[6] = {warp + 5,
                           warp + (lane ^ 16),
                           lane < 29 ? t + 3 : t,
                           lane >= 3 ? t - 3 : t,
                           warp + (lane ^ 5),
                           ballot};
        for (int i = 0; i < 6; i++) {
            CHECK(out[t * 6 + i] == expected[i], "thread %d, result %d: %d instead of %d", t, i,
                  out[t * 6 + i], expected[i]);
        }
    }
    check_begin("masks of half a warp");
    CHECK(run("half_warps", 1, 64, 0, &(ProbeArgs){.ints = out}), "%s", emulate_error());
    for (int t = 0; t < 64; t++) {
        int expected = t / 16 * 16 * 16 + 120;
        CHECK(out[t] == expected, "thread %d: %d instead of %d", t, out[t], expected);
    }
}

static void test_barriers(void) {
    enum { BLOCKS = 3, THREADS = 256 };
    float in[BLOCKS * THREADS], out[THREADS];
    int count = 0;
    check_begin("reductions over blocks");
    for (int i = 0; i < BLOCKS * THREADS; i++) in[i] = (float)(i % 97);
    CHECK(run("reduce", BLOCKS, THREADS, 0, &(ProbeArgs){.ints = &count, .floats = in, .out = out}),
          "%s", emulate_error());
    for (int b = 0; b < BLOCKS; b++) {
        float sum = 0;
        for (int t = 0; t < THREADS; t++) sum += in[b * THREADS + t];
        CHECK(out[b] == sum, "block %d: %g instead of %g", b, (double)out[b], (double)sum);
    }
    CHECK(count == BLOCKS, "%d blocks counted", count);
    check_begin("dynamic shared memory; a missing barrier shows");
    for (unsigned order = 0; order < 4; order++) {
        ProbeArgs args = {.floats = in, .out = out};
        int wrong[2] = {0, 0};
        emulate_set_order(order);
        for (args.n = 0; args.n < 2; args.n++) {
            CHECK(run("reverse", 1, THREADS, THREADS * 4, &args), "%s", emulate_error());
            for (int t = 0; t < THREADS; t++) wrong[args.n] += out[t] != in[THREADS - 1 - t];
        }
        CHECK(wrong[0] == 0, "order %u: %d wrong", order, wrong[0]);
        CHECK(wrong[1] > 0, "order %u: nothing wrong without the barrier", order);
    }
    emulate_set_order(0);
}

static void test_multiply(void) {
    static _Alignas(16) unsigned short tiles[16 * 16 + 16 * 8];
    float a[16][16], b[16][8], out[16][8], expected[16][8];
    for (int m = 0; m < 16; m++) {
        for (int k = 0; k < 16; k++) {
            a[m][k] = (float)((m * 7 + k * 3) % 11 - 5) / 8;
            tiles[m * 16 + k] = cut(a[m][k]);
        }
    }
    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < 8; n++) {
            b[k][n] = (float)((k * 5 + n * 9) % 13 - 6) / 4;
            tiles[256 + k * 8 + n] = cut(b[k][n]);
        }
    }
    ProbeArgs args = {.out = &out[0][0], .bf16s = tiles};
    check_begin("mma against a triple loop, operands by cp.async and ldmatrix");
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 8; n++) {
            expected[m][n] = out[m][n] = (float)(m - n);
            for (int k = 0; k < 16; k++) expected[m][n] += a[m][k] * b[k][n];
        }
    }
    CHECK(run("multiply", 1, 32, 0, &args), "%s", emulate_error());
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 8; n++) {
            CHECK(out[m][n] == expected[m][n], "row %d column %d: %g instead of %g", m, n,
                  (double)out[m][n], (double)expected[m][n]);
        }
    }
    check_begin("cp.async without its wait shows");
    for (args.n = 1; args.n < 3; args.n++) {
        memset(out, 0, sizeof(out));
        CHECK(run("multiply", 1, 32, 0, &args), "%s", emulate_error());
        CHECK(isnan(out[0][0]), "%g", (double)out[0][0]);
    }
}

static void test_matrices(void) {
    static _Alignas(16) unsigned short tiles[4][8][8];
    int out[192];
    for (int i = 0; i < 256; i++) (&tiles[0][0][0])[i] = (unsigned short)(1000 + i);
    for (int trans = 0; trans < 2; trans++) {
        check_begin(trans ? "ldmatrix, transposed" : "ldmatrix");
        CHECK(run("matrices", 1, 32, 0,
                  &(ProbeArgs){.ints = out, .bf16s = &tiles[0][0][0], .n = trans}),
              "%s", emulate_error());
        for (int i = 0; i < 6; i++) {
            for (int lane = 0; lane < 32; lane++) {
                int row = lane / 4, column = lane % 4 * 2, matrix = i < 4 ? i : i - 4;
                int low = tiles[matrix][row][column], high = tiles[matrix][row][column + 1];
                if (trans && i < 4) {
                    low = tiles[matrix][column][row];
                    high = tiles[matrix][column + 1][row];
                }
                CHECK(out[i * 32 + lane] == (low | high << 16), "register %d of lane %d", i, lane);
            }
        }
    }
    for (int bytes = 0; bytes <= 16; bytes += 8) {
        check_begin(bytes == 0   ? "cp.async of nothing: zeros, and no read"
                    : bytes == 8 ? "cp.async of 8 bytes"
                                 : "cp.async of 16 bytes");
        const unsigned short *from = bytes ? &tiles[0][0][0] : NULL;
        CHECK(run("copy_part", 1, 1, 0, &(ProbeArgs){.ints = out, .bf16s = from, .n = bytes}), "%s",
              emulate_error());
        for (int i = 0; i < 8; i++) {
            int expected = i < bytes / 2 ? 1000 + i : 0;
            CHECK(out[i] == expected, "element %d: %d instead of %d", i, out[i], expected);
        }
    }
}

static void test_mistakes(void) {
    static _Alignas(16) unsigned short tile[64];
    static int out[1024];
    static const struct {
        const char *kernel;
        int blocks, threads, shared_bytes;
        const char *expected; /* in the report */
    } CASES[] = {
        {"two_barriers", 1, 64, 0, "thread 0 is at __syncthreads of tests/emulate/probe.cu:"},
        {"early_return", 1, 64, 0, "thread 7 has ended"},
        {"lane_missing", 1, 64, 0, "thread 9 has ended"},
        {"lane_missing", 1, 8, 0, "the mask names a lane beyond the block's end"},
        {"not_in_mask", 1, 32, 0, "the thread is not in its own mask"},
        {"misaligned", 1, 1, 0, "an address is not a multiple of 16"},
        {"shuffles", 1, 1025, 0, "1025 threads in a block"},
        {"shuffles", 1, 32, 227 * 1024 + 1, "232449 bytes of shared memory"},
        {"shuffles", 0, 32, 0, "a grid of 0 x 1 x 1 blocks"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[100];
        snprintf(name, sizeof(name), "a mistake is reported: %s", CASES[i].expected);
        check_begin(name);
        bool good = run(CASES[i].kernel, CASES[i].blocks, CASES[i].threads, CASES[i].shared_bytes,
                        &(ProbeArgs){.ints = out, .bf16s = tile});
        CHECK(!good, "it passed");
        CHECK(strstr(emulate_error(), CASES[i].expected), "it says: %s", emulate_error());
        CHECK(strstr(emulate_error(), CASES[i].kernel), "it says: %s", emulate_error());
    }
    check_begin("after a mistake kernels run as before");
    CHECK(run("half_warps", 1, 64, 0, &(ProbeArgs){.ints = out}), "%s", emulate_error());
    CHECK(out[63] == 888, "%d", out[63]);
}

int main(void) {
    if (emulate_missing()) {
        printf("skip the emulator of kernels: %s\n", emulate_missing());
        return 0;
    }
    test_shuffles();
    test_barriers();
    test_multiply();
    test_matrices();
    test_mistakes();
    return check_report();
}
