#include "runtime/cpu/tiles.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, PAIRS = 16, TILE = ROWS * 2 * PAIRS }; /* numbers of bf16 in a tile */

/* GCC has the intrinsics from 11 on. */
#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USES_TILES __attribute__((target("amx-tile,amx-bf16")))

/* Linux lets a process use tiles that asks for it (arch_prctl(2)), as each context is 8 KiB. */
static bool ask_system(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    enum { HAS_BF16 = 1 << 22, HAS_TILES = 1 << 24 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & HAS_BF16) || !(d & HAS_TILES)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

typedef struct __attribute__((packed)) TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

USES_TILES static void open_tiles(void) {
    /* In memory of its own: GCC's intrinsic reads but the first 8 bytes, as far as it knows. */
    static const TileConfig config = {.palette = 1,
                                      .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                      .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS}};
    _tile_loadconfig(&config);
}

USES_TILES static void close_tiles(void) {
    _tile_release();
}

/* Tiles 0 to 3 are the block's, 4 and 5 of A, 6 and 7 of B. */
USES_TILES static void multiply_tiles(int n_terms, const TileTerm *terms, int steps, bool add,
                                      float *c, int64_t stride) {
    /* GCC's loads of tiles do not say that they read memory: what was stored there has to be. */
    __asm__ volatile("" ::: "memory");
    const int64_t row = stride * (int64_t)sizeof(float);
    float *below = c + ROWS * stride;
    if (add) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + ROWS, row);
        _tile_loadd(2, below, row);
        _tile_loadd(3, below + ROWS, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int t = 0; t < n_terms; t++) {
        const uint16_t *a = terms[t].a, *b = terms[t].b;
        for (int i = 0; i < steps; i++, a += TILE_STEP, b += TILE_STEP) {
            _tile_loadd(4, a, 64);
            _tile_loadd(6, b, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, b + TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, a + TILE, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + ROWS, row);
    _tile_stored(2, below, row);
    _tile_stored(3, below + ROWS, row);
}

#else
static bool ask_system(void) {
    return false;
}

static void open_tiles(void) {
}

static void close_tiles(void) {
}

static void multiply_tiles(int n_terms, const TileTerm *terms, int steps, bool add, float *c,
                           int64_t stride) {
    (void)n_terms, (void)terms, (void)steps, (void)add, (void)c, (void)stride;
}
#endif

static bool machine_has_tiles;
static bool imitated, refused;

bool tiles_unwanted(void) {
    const char *wish = getenv("PERILUNE_AMX");
    return wish && strcmp(wish, "off") == 0;
}

static void ask_once(void) {
    machine_has_tiles = !tiles_unwanted() && ask_system();
}

bool tiles_ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_once);
    return imitated || (machine_has_tiles && !refused);
}

void tiles_imitate(bool imitate) {
    imitated = imitate;
}

void tiles_refuse(bool refuse) {
    refused = refuse;
}

void tiles_open(void) {
    if (!imitated) open_tiles();
}

void tiles_close(void) {
    if (!imitated) close_tiles();
}

/* Denormal numbers are zero, read or written. */
static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return flush(wide);
}

/* c [16][16] += the products of one pair of tiles, in the instruction's order and with its
 * roundings (Intel's manual for developers, volume 2, TDPBF16PS). */
static void imitate_product(const uint16_t *a, const uint16_t *b, float *c, int64_t stride) {
    for (int i = 0; i < ROWS; i++, a += 2 * PAIRS, c += stride) {
        float sums[2][ROWS] = {{0}}; /* of even and of odd k */
        for (int p = 0; p < 2 * PAIRS; p++) {
            const float left = widen(a[p]);
            const uint16_t *right = b + p / 2 * 2 * ROWS + p % 2;
            float *to = sums[p % 2];
            for (int j = 0; j < ROWS; j++) to[j] = flush(fmaf(left, widen(right[2 * j]), to[j]));
        }
        for (int j = 0; j < ROWS; j++) c[j] = flush(flush(c[j]) + flush(sums[0][j] + sums[1][j]));
    }
}

static void imitate_tiles(int n_terms, const TileTerm *terms, int steps, bool add, float *c,
                          int64_t stride) {
    for (int i = 0; !add && i < TILE_BLOCK; i++) memset(c + i * stride, 0, TILE_BLOCK * sizeof *c);
    for (int t = 0; t < n_terms; t++)
        for (int i = 0; i < steps; i++)
            for (int quarter = 0; quarter < 4; quarter++) {
                const int down = quarter / 2, right = quarter % 2;
                imitate_product(terms[t].a + i * TILE_STEP + down * TILE,
                                terms[t].b + i * TILE_STEP + right * TILE,
                                c + down * ROWS * stride + right * ROWS, stride);
            }
}

void tiles_multiply(int n_terms, const TileTerm *terms, int steps, bool add, float *c,
                    int64_t stride) {
    (imitated ? imitate_tiles : multiply_tiles)(n_terms, terms, steps, add, c, stride);
}
