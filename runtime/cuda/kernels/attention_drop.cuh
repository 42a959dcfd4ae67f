/* Dropout of attention's probabilities on the device: which ones (runtime/attention_drop.h). */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_DROP_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_DROP_CUH

#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/philox.cuh"

/* Only while it trains: the same launches evaluate. */
static __device__ __forceinline__ bool attention_drops_now(const AttentionSizes &s) {
    return s.drop.threshold && s.state->train;
}

/* Block of a head's position 0 and key 0. */
static __device__ __forceinline__ uint64_t attention_drop_head(const AttentionSizes &s,
                                                               const AttentionPlace &p) {
    return s.drop.first + (uint64_t)p.batch * s.drop.batch + (uint64_t)p.head * s.drop.head;
}

/* Block of a row of it and key 0. */
static __device__ __forceinline__ uint64_t attention_drop_row(const AttentionSizes &s,
                                                              uint64_t head, int row) {
    const int position = attention_position(s, row);
    return head + (uint64_t)(position + attention_offset(s, row)) * s.drop.position +
           (uint64_t)(row - position * s.group) * s.drop.member;
}

static __device__ __forceinline__ void attention_draw(const AttentionSizes &s, uint64_t block,
                                                      uint32_t (&words)[4]) {
    words[0] = (uint32_t)block;
    words[1] = (uint32_t)(block >> 32);
    words[2] = s.drop.stream;
    words[3] = (uint32_t)s.state->step;
    philox(words, s.state->seed);
}

static __device__ __forceinline__ bool attention_keeps(const AttentionSizes &s, uint32_t word,
                                                       int half) {
    return (word >> (16 * half) & 0xffffu) >= s.drop.threshold;
}

/* Numbers of a warp's 16 MT rows and 8 N8 keys from `row` and `key` on, a multiple of 32, become 0
 * where they are dropped; others are times `factor`. */
template <int MT, int N8>
static __device__ __forceinline__ void attention_drop(const AttentionSizes &s, uint64_t head,
                                                      int row, int key, float factor,
                                                      float (&x)[MT][N8][4]) {
    static_assert(N8 % 4 == 0, "a lane has all keys of a block");
    const int lane = thread_anew() & 31;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int own = row + lane / 4 + 16 * m + 8 * half;
            const uint64_t block = attention_drop_row(s, head, own) + (uint32_t)(key / 8 + lane % 4);
#pragma unroll
            for (int n = 0; n < N8; n += 4) {
                uint32_t words[4];
                attention_draw(s, block + (uint32_t)n, words);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float &at = x[m][n + i / 2][2 * half + i % 2];
                    at = attention_keeps(s, words[i / 2], i % 2) ? at * factor : 0.0f;
                }
            }
        }
    }
}

/* Of numbers of 32 keys and 32 rows, [MT][N / 8][4], which are kept: a bit for each. Two lanes draw
 * the same block, each for half of its keys. */
template <int MT, int N>
static __device__ __forceinline__ uint32_t attention_kept_transposed(const AttentionSizes &s,
                                                                     uint64_t head, int row,
                                                                     int key) {
    static_assert(MT == 2 && N == 32, "a bit for each number");
    const int lane = thread_anew() & 31;
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < 2 * (N / 8); n++) {
        const int own = row + n / 2 * 8 + lane % 4 * 2 + n % 2;
        const uint64_t block = attention_drop_row(s, head, own) + (uint32_t)(key / 8 + lane / 8);
        uint32_t words[4];
        attention_draw(s, block, words);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* keys 8 i on: i = 2 m + half */
            const uint32_t bit = attention_keeps(s, words[i], lane / 4 & 1);
            kept |= bit << ((i / 2 * (N / 8) + n / 2) * 4 + i % 2 * 2 + n % 2);
        }
    }
    return kept;
}

/* What is kept by these bits is times `factor`, all else 0. */
template <int MT, int N8>
static __device__ __forceinline__ void attention_keep(uint32_t kept, float factor,
                                                      float (&x)[MT][N8][4]) {
#pragma unroll
    for (int i = 0; i < MT * N8 * 4; i++) {
        float &at = x[i / (N8 * 4)][i / 4 % N8][i % 4];
        at = kept >> i & 1u ? at * factor : 0.0f;
    }
}

#endif
