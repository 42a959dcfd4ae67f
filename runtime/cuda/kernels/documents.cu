/* Where the documents of packed sequences begin and end (runtime/cpu/documents.h): a running
 * maximum of separators' places, and one from behind, of what lies behind them. A block per
 * sequence, which takes as long as a few of its rows' other work: 131,072 positions are 64 tiles.
 */
#include "ir/ngram.h"
#include "runtime/cuda/kernels/vector.cuh"

/* The greatest of the threads before this one, and of all. warps [32]; barriers are inside. */
static __device__ __forceinline__ int greatest_before(int x, int *warps, int *out_all) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int greatest = x;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, greatest, delta);
        if (lane >= delta && below > greatest) greatest = below;
    }
    int before = __shfl_up_sync(0xffffffffu, greatest, 1);
    if (lane == 0) before = 0;
    if (lane == 31) warps[warp] = greatest;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        if (w < warp && warps[w] > before) before = warps[w];
        if (warps[w] > all) all = warps[w];
    }
    __syncthreads();
    *out_all = all;
    return before;
}

/* The sum of the threads before this one, and of all. warps [32]; barriers are inside. */
static __device__ __forceinline__ int sum_before(int x, int *warps, int *out_all) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = x;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, sum, delta);
        if (lane >= delta) sum += below;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int before = sum - x, all = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    __syncthreads();
    *out_all = all;
    return before;
}

/* The number of a position among those that are kept, or -1. */
static __device__ __forceinline__ int64_t kept_as(const DocumentsArgs &a, int64_t position) {
    if (position >= a.first && position - a.first < a.split) return position - a.first;
    const int64_t i = position - a.second;
    return i >= a.split && i < a.kept ? i : -1;
}

KERNEL_FUNCTION __launch_bounds__(DOCUMENTS_THREADS) documents(DocumentsArgs a) {
    __shared__ int warps[DOCUMENTS_THREADS / 32];
    const int32_t *tokens = a.tokens + (int64_t)blockIdx.x * a.n;
    int32_t *starts = a.starts + (int64_t)blockIdx.x * a.kept;
    int32_t *places = a.places + (int64_t)blockIdx.x * a.kept;
    int start = 0; /* of the document that goes on into this tile */
    for (int64_t tile = 0; tile < a.n; tile += DOCUMENTS_THREADS * DOCUMENTS_EACH) {
        const int64_t first = tile + (int64_t)threadIdx.x * DOCUMENTS_EACH;
        bool ends[DOCUMENTS_EACH];
        int begun = 0, all;
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            ends[j] = first + j < a.n && tokens[first + j] == a.separator;
            if (ends[j]) begun = (int)(first + j) + 1;
        }
        int own = greatest_before(begun, warps, &all);
        if (own < start) own = start;
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            if (first + j >= a.n) break;
            const int64_t kept = kept_as(a, first + j);
            if (ends[j] && a.apart) own = (int)(first + j);
            if (kept >= 0) {
                starts[kept] = own;
                places[kept] = (int)(first + j) - own;
            }
            if (ends[j]) own = (int)(first + j) + 1;
        }
        if (all > start) start = all;
    }
}

/* Positions are counted from the last one on, and so is what lies behind a document. */
KERNEL_FUNCTION __launch_bounds__(DOCUMENTS_THREADS) document_ends(DocumentsArgs a) {
    __shared__ int warps[DOCUMENTS_THREADS / 32];
    const int32_t *last = a.tokens + (int64_t)blockIdx.x * a.n + a.n - 1;
    int32_t *ends = a.ends + (int64_t)blockIdx.x * a.kept;
    int behind = 0; /* the document that goes on into this tile */
    for (int64_t tile = 0; tile < a.n; tile += DOCUMENTS_THREADS * DOCUMENTS_EACH) {
        const int64_t first = tile + (int64_t)threadIdx.x * DOCUMENTS_EACH;
        bool is_end[DOCUMENTS_EACH];
        int ended = 0, all;
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            is_end[j] = first + j < a.n && *(last - (first + j)) == a.separator;
            if (is_end[j]) ended = (int)(first + j) + a.apart;
        }
        int own = greatest_before(ended, warps, &all);
        if (own < behind) own = behind;
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            if (first + j >= a.n) break;
            const int64_t kept = kept_as(a, a.n - 1 - (first + j));
            if (is_end[j]) own = (int)(first + j);
            if (kept >= 0) ends[kept] = a.n - own;
            if (is_end[j]) own = (int)(first + j) + a.apart;
        }
        if (all > behind) behind = all;
    }
}

/* A thread per position that is kept. */
KERNEL_FUNCTION __launch_bounds__(DOCUMENTS_THREADS) ngram(DocumentsArgs a) {
    const int64_t n = a.rows * a.kept, step = (int64_t)gridDim.x * DOCUMENTS_THREADS;
    for (int64_t at = (int64_t)blockIdx.x * DOCUMENTS_THREADS + threadIdx.x; at < n; at += step) {
        const int64_t row = at / a.kept, i = at % a.kept;
        const int64_t position = i < a.split ? a.first + i : a.second + i;
        a.hashes[at] =
            ngram_hash(a.tokens + row * a.n, position, a.by, a.separator, a.seed, a.count);
    }
}

/* Of a position that has the token, `separator` here, how many before it have it. */
KERNEL_FUNCTION __launch_bounds__(DOCUMENTS_THREADS) occurrence(DocumentsArgs a) {
    __shared__ int warps[DOCUMENTS_THREADS / 32];
    const int32_t *tokens = a.tokens + (int64_t)blockIdx.x * a.n;
    int32_t *numbers = a.numbers + (int64_t)blockIdx.x * a.kept;
    int before = 0; /* this tile */
    for (int64_t tile = 0; tile < a.n; tile += DOCUMENTS_THREADS * DOCUMENTS_EACH) {
        const int64_t first = tile + (int64_t)threadIdx.x * DOCUMENTS_EACH;
        bool is_one[DOCUMENTS_EACH];
        int count = 0, all;
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            is_one[j] = first + j < a.n && tokens[first + j] == a.separator;
            count += is_one[j];
        }
        int number = before + sum_before(count, warps, &all);
#pragma unroll
        for (int j = 0; j < DOCUMENTS_EACH; j++) {
            if (first + j >= a.n) break;
            const int64_t kept = kept_as(a, first + j);
            if (kept >= 0) numbers[kept] = is_one[j] ? number : -1;
            number += is_one[j];
        }
        before += all;
    }
}
