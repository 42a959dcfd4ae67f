/* The emulator of CUDA kernels, by kernels whose results are known (tests/emulate/probe.cu).
 *
 * Would catch: lanes mixed up in a shuffle, a fragment of a matrix instruction in the wrong place,
 * a number that is rounded to the wrong side,
 * a barrier that lets threads through, data of cp.async that is there before it was waited for, a
 * mistake of a kernel (different barriers, missing lanes) that passes unseen.
 */
#include "runtime/cpu/vec_low.h"
#include "tests/emulate/emulate.h"
#include "tests/emulate/probe.h"
#include "tests/unit/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool run(const char *name, int blocks, int threads, int shared_bytes,
                const ProbeArgs *args) {
    const struct EmulateProbe *probe = EMULATE_PROBES;
    while (probe->name && strcmp(probe->name, name) != 0) probe++;
    return probe->name && emulate_run(probe->entry, name, (uint32_t[3]){(uint32_t)blocks, 1, 1},
                                      threads, shared_bytes, args);
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

static void test_multiply(DType dtype, const char *kernel) {
    static _Alignas(16) unsigned short tiles[16 * 16 + 16 * 8];
    float a[16][16], b[16][8], out[16][8], expected[16][8];
    for (int m = 0; m < 16; m++) {
        for (int k = 0; k < 16; k++) {
            a[m][k] = (float)((m * 7 + k * 3) % 11 - 5) / 8;
            vec_put(tiles, dtype, m * 16 + k, a[m][k]);
        }
    }
    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < 8; n++) {
            b[k][n] = (float)((k * 5 + n * 9) % 13 - 6) / 4;
            vec_put(tiles, dtype, 256 + k * 8 + n, b[k][n]);
        }
    }
    ProbeArgs args = {.out = &out[0][0], .lows = tiles};
    check_begin(dtype == DTYPE_F16
                    ? "mma of f16 against a triple loop, operands by cp.async and ldmatrix"
                    : "mma of bf16 against a triple loop, operands by cp.async and ldmatrix");
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 8; n++) {
            expected[m][n] = out[m][n] = (float)(m - n);
            for (int k = 0; k < 16; k++) expected[m][n] += a[m][k] * b[k][n];
        }
    }
    CHECK(run(kernel, 1, 32, 0, &args), "%s", emulate_error());
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 8; n++) {
            CHECK(out[m][n] == expected[m][n], "row %d column %d: %g instead of %g", m, n,
                  (double)out[m][n], (double)expected[m][n]);
        }
    }
    check_begin("cp.async without its wait shows");
    for (args.n = 1; args.n < 3; args.n++) {
        memset(out, 0, sizeof(out));
        CHECK(run(kernel, 1, 32, 0, &args), "%s", emulate_error());
        CHECK(isnan(out[0][0]), "%g", (double)out[0][0]);
    }
}

enum { WGMMA_SHARED = 64 * 128 + 16 * 256 + 128 * 128 };

static void test_wgmma(DType dtype, const char *kernel) {
    static _Alignas(16) unsigned short operands[64 * 16 + 16 * 128];
    static float out[64][128], expected[64][128];
    static const char *const WAYS[] = {"tiles", "tiles, b transposed", "a in fragments", "a by k"};
    for (int i = 0; i < 64 * 16 + 16 * 128; i++)
        vec_put(operands, dtype, i, (float)((i * 7 + i / 16 * 3 + i / 128) % 23 - 11) / 8);
    for (int way = PROBE_TILES; way <= PROBE_NO_WAIT; way++) {
        char name[100];
        for (int m = 0; m < 64; m++) {
            for (int n = 0; n < 128; n++) {
                expected[m][n] = out[m][n] = (float)(m - n);
                for (int k = 0; k < 16; k++) {
                    expected[m][n] += vec_get(operands, dtype, m * 16 + k) *
                                      vec_get(operands, dtype, 1024 + k * 128 + n);
                }
            }
        }
        ProbeArgs args = {.out = &out[0][0], .lows = operands, .n = way};
        snprintf(name, sizeof(name), "%s against a triple loop: %s", kernel,
                 way == PROBE_NO_WAIT ? "without its wait it shows" : WAYS[way]);
        check_begin(name);
        CHECK(run(kernel, 1, 128, WGMMA_SHARED, &args), "%s", emulate_error());
        for (int m = 0; m < 64; m++) {
            for (int n = 0; n < 128; n++) {
                bool good = way == PROBE_NO_WAIT ? isnan(out[m][n]) : out[m][n] == expected[m][n];
                CHECK(good, "row %d column %d: %g instead of %g", m, n, (double)out[m][n],
                      (double)expected[m][n]);
            }
        }
    }
}

static void test_wgmma_mistakes(void) {
    static _Alignas(16) unsigned short operands[64 * 16 + 16 * 128];
    static float out[64 * 128];
    static const struct {
        int way, threads;
        const char *expected;
    } CASES[] = {
        {PROBE_NO_FENCE, 128, "no wgmma_fence since the last wait"},
        {PROBE_NOT_HANDED_OVER, 128, "tiles were written and not handed to wgmma"},
        {PROBE_TILE_CHANGED, 128, "operands changed while it was under way"},
        {PROBE_FRAGMENT_CHANGED, 128, "operands changed while it was under way"},
        {PROBE_SUM_CHANGED, 128, "accumulators changed while it was under way"},
        {PROBE_MISALIGNED, 128, "a tile's start is misaligned"},
        {PROBE_NOT_SWIZZLED, 128, "a tile without 128-byte swizzle"},
        {PROBE_DIFFERENT, 128, "threads of a group issued different operations"},
        {PROBE_TILES, 64, "not four warps"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        ProbeArgs args = {.out = out, .lows = operands, .n = CASES[i].way};
        char name[100];
        snprintf(name, sizeof(name), "a mistake with wgmma is reported: %s", CASES[i].expected);
        check_begin(name);
        CHECK(!run("wgmma_bf16", 1, CASES[i].threads, WGMMA_SHARED, &args), "it passed");
        CHECK(strstr(emulate_error(), CASES[i].expected), "it says: %s", emulate_error());
    }
}

/* Blocks that wait for those of lower index, which run before them or not; and for one that never
 * does it. */
static void test_turns(void) {
    enum { BLOCKS = 5 };
    static _Alignas(16) float sums[4];
    static const char *const NAMES[] = {"blocks take turns", "blocks wait for a later one",
                                        "blocks wait for nobody"};
    for (int way = 0; way < 3; way++) {
        int turn = 0;
        ProbeArgs args = {.ints = &turn, .out = sums, .n = way == 2};
        check_begin(NAMES[way]);
        emulate_set_order(way == 1);
        bool good = run("turns", BLOCKS, 1, 0, &args);
        emulate_set_order(0);
        if (way == 0) {
            CHECK(good, "%s", emulate_error());
            CHECK(turn == BLOCKS && sums[0] == 4 && sums[1] == 8 && sums[2] == 12 && sums[3] == 10,
                  "%d turns, %g %g %g %g", turn, (double)sums[0], (double)sums[1], (double)sums[2],
                  (double)sums[3]);
        } else {
            CHECK(!good && strstr(emulate_error(), "waits for what no block before it does"),
                  "it says: %s", emulate_error());
        }
    }
}

/* Half of the warps hand on what the other half waits for; mistakes. */
static void test_named_barriers(void) {
    enum { THREADS = 128 };
    static const char *const SAYS[] = {"",
                                       "others wait there for another number",
                                       "comes twice",
                                       "ends with 32 threads at barrier 2",
                                       "is stuck",
                                       "no such barrier"};
    int in[THREADS], out[THREADS];
    for (int t = 0; t < THREADS; t++) in[t] = 7 * t + 1;
    for (int way = PROBE_HANDED_ON; way <= PROBE_TOO_MANY; way++) {
        check_begin(way ? SAYS[way] : "warps hand on what others wait for");
        for (unsigned order = 0; order < 4; order++) {
            ProbeArgs args = {.ints = out, .lows = (const unsigned short *)in, .n = way};
            memset(out, 0, sizeof(out));
            emulate_set_order(order);
            bool good = run("named_barriers", 1, THREADS, 0, &args);
            CHECK(good == (way == PROBE_HANDED_ON) && strstr(emulate_error(), SAYS[way]),
                  "it says: %s", emulate_error());
            for (int t = THREADS / 2; t < THREADS && way == PROBE_HANDED_ON; t++)
                CHECK(out[t] == in[t - THREADS / 2], "thread %d: %d", t, out[t]);
        }
    }
    emulate_set_order(0);
}

static void test_bulk(void) {
    static const char *const SAYS[] = {"", "changed while it was under way",
                                       "ends with cp.reduce.async.bulk", "not whole 16 bytes"};
    static _Alignas(16) float in[32], out[32];
    for (int t = 0; t < 32; t++) in[t] = (float)(t * t);
    for (int way = PROBE_BULK; way <= PROBE_BULK_MISALIGNED; way++) {
        ProbeArgs args = {.floats = in, .out = out, .n = way};
        check_begin(way ? SAYS[way] : "bulk copies and sums");
        bool good = run("bulk", 1, 32, 0, &args);
        CHECK(good == (way == PROBE_BULK) && strstr(emulate_error(), SAYS[way]), "it says: %s",
              emulate_error());
        for (int t = 0; t < 32 && way == PROBE_BULK; t++)
            CHECK(out[t] == in[t] * (t < 28 ? 2 : 1), "%d: %g", t, (double)out[t]);
    }
}

/* What a number of 16 bits is worth, from its fields. */
static double value_of(DType dtype, int bits) {
    int fraction_bits = dtype == DTYPE_F16 ? 10 : 7, bias = dtype == DTYPE_F16 ? 15 : 127;
    int fraction = bits & ((1 << fraction_bits) - 1), exponent = (bits & 0x7fff) >> fraction_bits;
    double whole = exponent ? fraction + (1 << fraction_bits) : fraction;
    double value = ldexp(whole, (exponent ? exponent : 1) - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* All numbers, what lies between each two of them, just above and just below that; infinities. */
static void test_conversions(DType dtype, const char *kernel) {
    enum { EACH = 4, MOST = 2 * 0x7f80 * EACH };
    static float in[MOST], out[2 * MOST];
    static unsigned short lows[MOST], expected[MOST];
    static int rounded[MOST];
    const unsigned short *got = (const unsigned short *)rounded;
    int infinity = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80, n = 0;
    check_begin(kernel);
    for (int sign = 0; sign < 2; sign++) {
        for (int bits = 0; bits < infinity; bits++) {
            double value = value_of(dtype, bits), next = value_of(dtype, bits + 1);
            float middle = (float)((value + next) / 2);
            const float x[EACH] = {(float)value, middle, nextafterf(middle, 0),
                                   nextafterf(middle, INFINITY)};
            const int to[EACH] = {bits, bits + bits % 2, bits, bits + 1};
            for (int i = 0; i < EACH; i++, n++) {
                in[n] = sign ? -x[i] : x[i];
                expected[n] = (unsigned short)(to[i] | sign << 15);
                lows[n] = (unsigned short)(bits | sign << 15);
            }
        }
    }
    ProbeArgs args = {.ints = rounded, .floats = in, .out = out, .lows = lows, .n = n};
    CHECK(run(kernel, 1, 256, 0, &args), "%s", emulate_error());
    for (int i = 0; i < 2 * n; i++) {
        CHECK(got[i] == expected[i % n], "%.9g becomes %04x, not %04x", (double)in[i % n], got[i],
              expected[i % n]);
        CHECK((double)out[i] == value_of(dtype, lows[i % n]) &&
                  !signbit(out[i]) == !(lows[i % n] & 0x8000),
              "%04x becomes %.9g", lows[i % n], (double)out[i]);
    }
}

static void test_special_conversions(DType dtype, const char *kernel) {
    enum { N = 8 };
    const int infinity = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    float in[N] = {INFINITY, -INFINITY, NAN, -NAN, FLT_MAX, -FLT_MAX, 0x1p-149f, -0x1p-149f};
    int to[N] = {infinity, infinity | 0x8000, 0x7fff, 0x7fff,
                 infinity, infinity | 0x8000, 0,      0x8000};
    unsigned short lows[N] = {(unsigned short)infinity,
                              (unsigned short)(infinity | 0x8000),
                              (unsigned short)(infinity + 1),
                              0x7fff,
                              0xffff,
                              0,
                              0x8000,
                              1};
    int rounded[N];
    float out[2 * N];
    const unsigned short *got = (const unsigned short *)rounded;
    check_begin("infinities and numbers that are none");
    ProbeArgs args = {.ints = rounded, .floats = in, .out = out, .lows = lows, .n = N};
    CHECK(run(kernel, 1, 32, 0, &args), "%s", emulate_error());
    for (int i = 0; i < 2 * N; i++) {
        CHECK(got[i] == to[i % N], "%s: number %d becomes %04x", kernel, i % N, got[i]);
    }
    for (int i = 0; i < 2 * N; i += N) {
        CHECK(isinf(out[i]) && out[i] > 0 && isinf(out[i + 1]) && out[i + 1] < 0, "infinity");
        CHECK(isnan(out[i + 2]) && isnan(out[i + 3]) && isnan(out[i + 4]), "not a number");
    }
}

static void test_matrices(void) {
    static _Alignas(16) unsigned short tiles[4][8][8];
    int out[192];
    for (int i = 0; i < 256; i++) (&tiles[0][0][0])[i] = (unsigned short)(1000 + i);
    for (int trans = 0; trans < 2; trans++) {
        check_begin(trans ? "ldmatrix, transposed" : "ldmatrix");
        CHECK(run("matrices", 1, 32, 0,
                  &(ProbeArgs){.ints = out, .lows = &tiles[0][0][0], .n = trans}),
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
    int stored[256];
    check_begin("stmatrix");
    CHECK(run("store_matrices", 1, 32, 0, &(ProbeArgs){.ints = stored, .lows = &tiles[0][0][0]}),
          "%s", emulate_error());
    for (int i = 0; i < 256; i++) /* rows in reverse */
        CHECK(stored[i] == 1000 + (31 - i / 8) * 8 + i % 8, "element %d: %d", i, stored[i]);
    for (int bytes = 0; bytes <= 16; bytes += 8) {
        check_begin(bytes == 0   ? "cp.async of nothing: zeros, and no read"
                    : bytes == 8 ? "cp.async of 8 bytes"
                                 : "cp.async of 16 bytes");
        const unsigned short *from = bytes ? &tiles[0][0][0] : NULL;
        CHECK(run("copy_part", 1, 1, 0, &(ProbeArgs){.ints = out, .lows = from, .n = bytes}), "%s",
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
                        &(ProbeArgs){.ints = out, .lows = tile});
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
    test_multiply(DTYPE_BF16, "multiply_bf16");
    test_multiply(DTYPE_F16, "multiply_f16");
    test_wgmma(DTYPE_BF16, "wgmma_bf16");
    test_wgmma(DTYPE_F16, "wgmma_f16");
    test_wgmma_mistakes();
    test_turns();
    test_named_barriers();
    test_bulk();
    test_conversions(DTYPE_BF16, "convert_bf16");
    test_conversions(DTYPE_F16, "convert_f16");
    test_special_conversions(DTYPE_BF16, "convert_bf16");
    test_special_conversions(DTYPE_F16, "convert_f16");
    test_matrices();
    test_mistakes();
    return check_report();
}
