/* Barriers, shuffles, votes and matrix instructions for g++: part of dialect.h. Each names the line
 * that calls it, so that threads which wait at different ones are told apart. */
#ifndef TESTS_EMULATE_WARP_H
#define TESTS_EMULATE_WARP_H

#include "tests/emulate/row.h"
#include "tests/emulate/scheduler.h"

#define EMULATE_HERE       const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATE_SITE(what) (EmulateSite{what, file, line})

static inline void __syncthreads(EMULATE_HERE) {
    emulate_wait_block(nullptr, nullptr, EMULATE_SITE("__syncthreads"));
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATE_HERE) {
    emulate_wait_warp(mask, nullptr, nullptr, EMULATE_SITE("__syncwarp"));
}

/* Votes of a warp, and of a block */
struct EmulateVote {
    int vote;
    unsigned ballot;
    int count, all;
};
static inline void emulate_count_votes(void *const *operands, int n) {
    EmulateVote result = {0, 0, 0, 1};
    for (int i = 0; i < n; i++) {
        EmulateVote *v = (EmulateVote *)operands[i];
        if (!v) continue;
        if (v->vote && i < 32) result.ballot |= 1u << i;
        result.count += v->vote != 0;
        result.all &= v->vote != 0;
    }
    for (int i = 0; i < n; i++) {
        if (operands[i]) *(EmulateVote *)operands[i] = result;
    }
}
#define EMULATE_WARP_VOTE(name, result)                                                            \
    static inline result##_type name(unsigned mask, int vote, EMULATE_HERE) {                      \
        EmulateVote v = {vote, 0, 0, 0};                                                           \
        emulate_wait_warp(mask, &v, emulate_count_votes, EMULATE_SITE(#name));                     \
        return v.result;                                                                           \
    }
#define EMULATE_BLOCK_VOTE(name, result)                                                           \
    static inline int name(int vote, EMULATE_HERE) {                                               \
        EmulateVote v = {vote, 0, 0, 0};                                                           \
        emulate_wait_block(&v, emulate_count_votes, EMULATE_SITE(#name));                          \
        return v.result;                                                                           \
    }
typedef unsigned ballot_type;
typedef int count_type;
typedef int all_type;
EMULATE_WARP_VOTE(__ballot_sync, ballot)
EMULATE_WARP_VOTE(__any_sync, count)
EMULATE_WARP_VOTE(__all_sync, all)
EMULATE_BLOCK_VOTE(__syncthreads_count, count)
EMULATE_BLOCK_VOTE(__syncthreads_or, count)
EMULATE_BLOCK_VOTE(__syncthreads_and, all)

/* The lanes of the mask that came with the same value. */
template <typename T> struct EmulateMatch {
    T value;
    unsigned lanes;
};
template <typename T> static inline void emulate_match_lanes(void *const *operands, int n) {
    for (int lane = 0; lane < n; lane++) {
        EmulateMatch<T> *to = (EmulateMatch<T> *)operands[lane];
        for (int other = 0; to && other < n; other++) {
            const EmulateMatch<T> *from = (const EmulateMatch<T> *)operands[other];
            if (from && from->value == to->value) to->lanes |= 1u << other;
        }
    }
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T x, EMULATE_HERE) {
    EmulateMatch<T> match = {x, 0};
    emulate_wait_warp(mask, &match, emulate_match_lanes<T>, EMULATE_SITE("__match_any_sync"));
    return match.lanes;
}

/* Shuffles. A lane that reads one outside the mask gets garbage, as on a device. */
template <typename T> struct EmulateShuffle {
    T value, result;
    int source;
};
template <typename T> static inline void emulate_shuffle_lanes(void *const *operands, int n) {
    for (int lane = 0; lane < n; lane++) {
        EmulateShuffle<T> *to = (EmulateShuffle<T> *)operands[lane];
        if (!to) continue;
        const EmulateShuffle<T> *from = (const EmulateShuffle<T> *)operands[to->source];
        if (from) {
            to->result = from->value;
        } else {
            memset(&to->result, 0xff, sizeof(T));
        }
    }
}
template <typename T>
static inline T emulate_shuffle(unsigned mask, T value, int source, EmulateSite site) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    EmulateShuffle<T> shuffle = {value, value, source};
    emulate_wait_warp(mask, &shuffle, emulate_shuffle_lanes<T>, site);
    return shuffle.result;
}
static inline int emulate_lane(void) {
    return (int)(emulate_thread_index.x & 31);
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32, EMULATE_HERE) {
    int base = emulate_lane() & ~(width - 1);
    return emulate_shuffle(mask, x, base | (from & (width - 1)), EMULATE_SITE("__shfl_sync"));
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32, EMULATE_HERE) {
    int from = emulate_lane() ^ bits, end = (emulate_lane() & ~(width - 1)) + width;
    if (from >= end) from = emulate_lane();
    return emulate_shuffle(mask, x, from, EMULATE_SITE("__shfl_xor_sync"));
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, int delta, int width = 32, EMULATE_HERE) {
    int from = emulate_lane() + delta, end = (emulate_lane() & ~(width - 1)) + width;
    if (from >= end) from = emulate_lane();
    return emulate_shuffle(mask, x, from, EMULATE_SITE("__shfl_down_sync"));
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, int delta, int width = 32, EMULATE_HERE) {
    int from = emulate_lane() - delta, first = emulate_lane() & ~(width - 1);
    if (from < first) from = emulate_lane();
    return emulate_shuffle(mask, x, from, EMULATE_SITE("__shfl_up_sync"));
}

/* ldmatrix: matrix i's row r is the 16 bytes that lane 8 i + r names. Lane l gets elements 2 (l %
 * 4) and the next of row l / 4; transposed: rows 2 (l % 4) and the next of column l / 4. */
template <int COUNT> struct EmulateLoadMatrix {
    const unsigned short *row;
    uint32_t r[COUNT];
    bool transposed;
};
template <int COUNT> static inline void emulate_load_matrices(void *const *operands, int) {
    const unsigned short *rows[32];
    for (int lane = 0; lane < 32; lane++) {
        rows[lane] = ((EmulateLoadMatrix<COUNT> *)operands[lane])->row;
    }
    for (int lane = 0; lane < 32; lane++) {
        EmulateLoadMatrix<COUNT> *to = (EmulateLoadMatrix<COUNT> *)operands[lane];
        int a = lane / 4, b = lane % 4 * 2;
        for (int i = 0; i < COUNT; i++) {
            const unsigned short *const *matrix = rows + 8 * i;
            uint32_t low = to->transposed ? matrix[b][a] : matrix[a][b];
            uint32_t high = to->transposed ? matrix[b + 1][a] : matrix[a][b + 1];
            to->r[i] = low | high << 16;
        }
    }
}
template <int COUNT>
static inline void emulate_ldmatrix(uint32_t (&r)[COUNT], const void *row, bool transposed,
                                    EmulateSite site) {
    EmulateLoadMatrix<COUNT> load = {(const unsigned short *)row, {}, transposed};
    /* With fewer than four matrices the other lanes' addresses are not read. */
    if (emulate_lane() < 8 * COUNT && (uintptr_t)row % 16) {
        emulate_fail(site, "an address is not a multiple of 16");
    }
    emulate_wait_warp(0xffffffffu, &load, emulate_load_matrices<COUNT>, site);
    memcpy(r, load.r, sizeof load.r);
}

/* stmatrix.x4: the same layout the other way. */
struct EmulateStoreMatrix {
    unsigned short *row;
    const uint32_t *r;
};
static inline void emulate_store_matrices(void *const *operands, int) {
    for (int lane = 0; lane < 32; lane++) {
        const EmulateStoreMatrix *to = (const EmulateStoreMatrix *)operands[lane];
        for (int t = 0; t < 4; t++) {
            const EmulateStoreMatrix *from = (const EmulateStoreMatrix *)operands[lane % 8 * 4 + t];
            memcpy(to->row + 2 * t, &from->r[lane / 8], 4);
        }
    }
}
static inline void emulate_stmatrix(const uint32_t (&r)[4], void *row, EmulateSite site) {
    EmulateStoreMatrix store = {(unsigned short *)row, r};
    if ((uintptr_t)row % 16) emulate_fail(site, "an address is not a multiple of 16");
    emulate_wait_warp(0xffffffffu, &store, emulate_store_matrices, site);
}

/* mma.m16n8k16: with g = lane / 4 and t = lane % 4, rows of a [16, 16], columns of b [16, 8]:
 * a[0..3] hold (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), each with its right neighbour;
 * b[0..1] hold (2t, g) (2t + 8, g), each with the one below;
 * d[0..3] hold (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1). */
struct EmulateMma {
    float d[4];
    uint32_t a[4], b[2];
};
template <class Pair> static inline void emulate_multiply(void *const *operands, int) {
    float a[16][16];
    alignas(EmulateRow) float b[16][8], d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const EmulateMma *from = (const EmulateMma *)operands[lane];
        int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            float *to = &a[g + i % 2 * 8][t + i / 2 * 8];
            Pair::unpack(from->a[i], to[0], to[1]);
        }
        for (int i = 0; i < 2; i++) {
            Pair::unpack(from->b[i], b[t + i * 8][g], b[t + i * 8 + 1][g]);
        }
        for (int i = 0; i < 4; i++) d[g + i / 2 * 8][t + i % 2] = from->d[i];
    }
    for (int m = 0; m < 16; m++) emulate_add_product(d[m], a[m], b[0], 8, 8);
    for (int lane = 0; lane < 32; lane++) {
        EmulateMma *to = (EmulateMma *)operands[lane];
        int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) to->d[i] = d[g + i / 2 * 8][t + i % 2];
    }
}
/* Pair::unpack(word, low, high) widens two elements. */
template <class Pair>
static inline void emulate_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                               EmulateSite site) {
    EmulateMma mma;
    memcpy(mma.d, d, sizeof d);
    memcpy(mma.a, a, sizeof a);
    memcpy(mma.b, b, sizeof b);
    emulate_wait_warp(0xffffffffu, &mma, emulate_multiply<Pair>, site);
    memcpy(d, mma.d, sizeof d);
}

#endif
