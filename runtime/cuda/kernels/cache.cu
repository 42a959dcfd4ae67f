/* Caches of keys and values: rows go in, and the row of a position comes out. */
#include "runtime/cuda/kernels/device.cuh"

template <typename T> static __device__ __forceinline__ void append(const CacheAppendArgs &a) {
    const int64_t at = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x, i = at / a.width;
    if (i >= a.n) return;
    const int64_t row = a.rows[i / a.seq], place = a.places[i];
    if (row < 0 || row >= a.sequences || place < 0 || place >= a.context) return;
    ((T *)a.cache)[(row * a.context + place) * a.width + at % a.width] = ((const T *)a.x)[at];
}

KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_append_2(CacheAppendArgs a) {
    append<uint16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_append_4(CacheAppendArgs a) {
    append<uint32_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_append_16(CacheAppendArgs a) {
    append<uint4>(a);
}

template <typename T> static __device__ __forceinline__ void read(const CacheReadArgs &a) {
    const int64_t at = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x, i = at / a.width;
    if (i >= a.n) return;
    const int64_t row = a.rows[i / a.seq], place = a.places[i];
    const bool there = row >= 0 && row < a.sequences && place >= 0 && place < a.context;
    const int64_t from = (row * a.context + place) * a.width + at % a.width;
    ((T *)a.out)[at] = there ? ((const T *)a.cache)[from] : T();
}

KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_read_2(CacheReadArgs a) {
    read<uint16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_read_4(CacheReadArgs a) {
    read<uint32_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_read_16(CacheReadArgs a) {
    read<uint4>(a);
}

template <typename T> static __device__ __forceinline__ void select_row(const SelectRowArgs &a) {
    const int64_t at = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x, b = at / a.width;
    if (b >= a.batch) return;
    const int64_t i = a.numbers[b];
    const bool there = i >= 0 && i < a.seq;
    ((T *)a.out)[at] = there ? ((const T *)a.x)[(b * a.seq + i) * a.width + at % a.width] : T();
}

KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) select_row_2(SelectRowArgs a) {
    select_row<uint16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) select_row_4(SelectRowArgs a) {
    select_row<uint32_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) select_row_16(SelectRowArgs a) {
    select_row<uint4>(a);
}
