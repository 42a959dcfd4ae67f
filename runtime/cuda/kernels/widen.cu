/* Weights in blocks of 4 or 8 bits (ir/blocks.h) as f32, bf16 or f16: the CPU's bits.
 *
 * A thread has 8 numbers of a block, which it writes as 16 bytes, or twice 16. A block's 34 or 66
 * bytes are read two at a time, as no block but each 8th begins at more: a warp's lie together, and
 * what is written is four times as much. The 16 numbers of nf4 lie in shared memory, each in a bank
 * of its own, so that any codes are looked up at once. */
#include "ir/blocks.h"
#include "runtime/cuda/kernels/vector.cuh"

enum { EACH = 8, PARTS = WEIGHT_BLOCK / EACH }; /* numbers of a thread, threads of a block */

template <typename T>
static __device__ __forceinline__ void put_numbers(void *out, int64_t at, const float (&x)[EACH]) {
    if constexpr (sizeof(T) == 4) {
        Elements<4>::put((float *)out + at, x);
        Elements<4>::put((float *)out + at + 4, x + 4);
    } else {
        Elements<8>::put((T *)out + at, x);
    }
}

static __device__ __forceinline__ float scale_at(const uint16_t *block, int n_codes) {
    return bits_to_float((uint32_t)block[n_codes] << 16);
}

template <typename T> static __device__ __forceinline__ void widen_nf4(const WidenArgs &a) {
    static constexpr float NUMBERS[16] = NF4_NUMBERS;
    enum { PAIRS = NF4_BLOCK_BYTES / 2 - 1 }; /* of bytes with codes */
    __shared__ float numbers[16];
    const int64_t i = (int64_t)blockIdx.x * WIDEN_THREADS + threadIdx.x;
    if (threadIdx.x < 16) {
#pragma unroll
        for (int k = 0; k < 16; k++) {
            if (threadIdx.x == (unsigned)k) numbers[k] = NUMBERS[k];
        }
    }
    __syncthreads();
    if (i * EACH >= a.n) return;
    const uint16_t *block = (const uint16_t *)a.from + i / PARTS * (PAIRS + 1);
    const uint16_t *codes = block + i % PARTS * (PAIRS / PARTS);
    const uint32_t word = codes[0] | (uint32_t)codes[1] << 16;
    const float scale = scale_at(block, PAIRS);
    float x[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) x[j] = numbers[word >> (4 * j) & 15u] * scale;
    put_numbers<T>(a.to, i * EACH, x);
}

template <typename T> static __device__ __forceinline__ void widen_int8(const WidenArgs &a) {
    enum { PAIRS = INT8_BLOCK_BYTES / 2 - 1 };
    const int64_t i = (int64_t)blockIdx.x * WIDEN_THREADS + threadIdx.x;
    if (i * EACH >= a.n) return;
    const uint16_t *block = (const uint16_t *)a.from + i / PARTS * (PAIRS + 1);
    const uint16_t *codes = block + i % PARTS * (PAIRS / PARTS);
    const float scale = scale_at(block, PAIRS);
    float x[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        x[j] = (float)(int)(signed char)(codes[j / 2] >> (8 * (j % 2))) * scale;
    }
    put_numbers<T>(a.to, i * EACH, x);
}

#define WIDEN_KERNEL(dtype, suffix, T)                                                             \
    KERNEL_FUNCTION __launch_bounds__(WIDEN_THREADS) widen_##dtype##_##suffix(WidenArgs a) {       \
        widen_##dtype<T>(a);                                                                       \
    }
WIDEN_KERNEL(nf4, f32, float)
WIDEN_KERNEL(nf4, bf16, bf16_t)
WIDEN_KERNEL(nf4, f16, f16_t)
WIDEN_KERNEL(int8, f32, float)
WIDEN_KERNEL(int8, bf16, bf16_t)
WIDEN_KERNEL(int8, f16, f16_t)
