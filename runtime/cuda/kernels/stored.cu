/* How far the softmax of s is from probabilities that are stored of some words (ir/ops/stored.c;
 * runtime/cpu/stored.h says how they lie). A block per row, element by element, in tiles of columns
 * for which shared memory says which of them are stored. */
#include "runtime/cuda/kernels/vector.cuh"

#define LOG2_E 1.44269504088896340736f

static __device__ __forceinline__ float exponential(float x) {
    return exp2_fast(x * LOG2_E);
}

/* The first of the row's words that is each column of the tile, or n_words. All threads come. */
static __device__ __forceinline__ void mark_tile(const StoredArgs &a, const int32_t *words,
                                                 int first, int *marks) {
    for (int i = threadIdx.x; i < STORED_TILE; i += blockDim.x) marks[i] = a.n_words;
    __syncthreads();
    for (int k = threadIdx.x; k < a.n_words; k += blockDim.x) {
        const int64_t at = words[k] - a.offset - first;
        if (at >= 0 && at < STORED_TILE) atomicMin(marks + at, k);
    }
    __syncthreads();
}

struct Sums {
    float sum, tail, known;
};

static __device__ __forceinline__ void add(Sums &to, const Sums &x) {
    to.sum += x.sum;
    to.tail += x.tail;
    to.known += x.known;
}

template <typename T> static __device__ __forceinline__ void stored_row(const StoredArgs &a) {
    __shared__ int marks[STORED_TILE];
    __shared__ Sums parts[32];
    const T *s = (const T *)a.s + (int64_t)blockIdx.x * a.n_local;
    const int32_t *words = a.words + (int64_t)blockIdx.x * a.n_words;
    const float *logprobs = a.logprobs + (int64_t)blockIdx.x * a.n_words;
    const float lse = a.lse[blockIdx.x];
    Sums sums = {0.0f, 0.0f, 0.0f};
    for (int k = threadIdx.x; k < a.n_words; k += blockDim.x) {
        const int64_t at = words[k] - a.offset;
        if (at < 0 || at >= a.n_valid) continue;
        const float q = exponential(logprobs[k]);
        if (q > 0.0f) sums.sum += q * (logprobs[k] - (load(s + at) - lse));
        sums.known += q;
    }
    for (int first = 0; first < a.n_valid; first += STORED_TILE) {
        __syncthreads(); /* the tile before has been read */
        mark_tile(a, words, first, marks);
        const int end = first + STORED_TILE < a.n_valid ? first + STORED_TILE : a.n_valid;
        for (int i = first + threadIdx.x; i < end; i += blockDim.x) {
            if (marks[i - first] == a.n_words) sums.tail += exponential(load(s + i) - lse);
        }
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
        sums.sum += __shfl_xor_sync(0xffffffffu, sums.sum, bits);
        sums.tail += __shfl_xor_sync(0xffffffffu, sums.tail, bits);
        sums.known += __shfl_xor_sync(0xffffffffu, sums.known, bits);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sums;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < blockDim.x / 32; w++) add(sums, parts[w]);
    a.sum[blockIdx.x] = sums.sum;
    a.tail[blockIdx.x] = sums.tail;
    a.known[blockIdx.x] = sums.known;
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_rows_f32(StoredArgs a) {
    stored_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_rows_bf16(StoredArgs a) {
    stored_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_rows_f16(StoredArgs a) {
    stored_row<f16_t>(a);
}

/* What is stored of a word whose first mention is k. */
static __device__ __forceinline__ float stored_of(const StoredArgs &a, const int32_t *words,
                                                  const float *logprobs, int k) {
    const int32_t word = words[k];
    float q = 0.0f;
    for (; k < a.n_words; k++) {
        if (words[k] == word) q += exponential(logprobs[k]);
    }
    return q;
}

/* out may be s: an element is read before it is written. Padding columns are zero. */
template <typename T> static __device__ __forceinline__ void stored_grad_row(const StoredArgs &a) {
    __shared__ int marks[STORED_TILE];
    const int64_t at = (int64_t)blockIdx.x * a.n_local;
    const T *s = (const T *)a.s + at;
    T *out = (T *)a.out + at;
    const int32_t *words = a.words + (int64_t)blockIdx.x * a.n_words;
    const float *logprobs = a.logprobs + (int64_t)blockIdx.x * a.n_words;
    const float lse = a.lse[blockIdx.x], g = a.dvalue[blockIdx.x];
    const float on = a.on[blockIdx.x], off = a.off[blockIdx.x];
    for (int first = 0; first < a.n_local; first += STORED_TILE) {
        __syncthreads(); /* the tile before has been read */
        mark_tile(a, words, first, marks);
        const int end = first + STORED_TILE < a.n_local ? first + STORED_TILE : a.n_local;
        for (int i = first + threadIdx.x; i < end; i += blockDim.x) {
            const int k = marks[i - first];
            float x = 0.0f;
            if (i < a.n_valid) {
                const float p = exponential(load(s + i) - lse);
                x = k == a.n_words ? p * off : p * on - stored_of(a, words, logprobs, k);
            }
            store(out + i, x * g);
        }
    }
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_grad_f32(StoredArgs a) {
    stored_grad_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_grad_bf16(StoredArgs a) {
    stored_grad_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) stored_grad_f16(StoredArgs a) {
    stored_grad_row<f16_t>(a);
}
