/* Messages among ranks that share one device: every member's part in one launch, all results
 * written by it. Reductions take the members in order, in f32, and round once. */
#include "runtime/cuda/kernels/vector.cuh"

#include "ir/reduce_kind.h"

/* Not a number wins. */
static __device__ __forceinline__ float max_or_nan(float top, float x) {
    return x > top || x != x ? x : top;
}

/* out[j] = reduction of all members' element i + j. */
template <typename T, int N>
static __device__ __forceinline__ void reduce_members(const void *const *in, int n_members,
                                                      int kind, int64_t i, float *out) {
    Elements<N>::get((const T *)in[0] + i, out);
#pragma unroll 4
    for (int m = 1; m < n_members; m++) {
        float x[N];
        Elements<N>::get((const T *)in[m] + i, x);
#pragma unroll
        for (int j = 0; j < N; j++)
            out[j] = kind == REDUCE_SUM ? out[j] + x[j] : max_or_nan(out[j], x[j]);
    }
    if (kind != REDUCE_LSE) return;
        /* log(sum_m exp(x_m)) = top + log(sum_m exp(x_m - top)), in f64: it serves rows, not
         * tensors. */
#pragma unroll
    for (int j = 0; j < N; j++) {
        double sum = 0;
        if (!(out[j] - out[j] == 0)) continue; /* all empty, infinite, or not a number */
        for (int m = 0; m < n_members; m++) {
            sum += exp((double)load((const T *)in[m] + i + j) - (double)out[j]);
        }
        out[j] = (float)((double)out[j] + log(sum));
    }
}

template <typename T, int N>
static __device__ __forceinline__ void all_reduce_at(const AllReduceArgs &a, int64_t i) {
    float sum[N];
    reduce_members<T, N>(a.in, a.n_members, a.kind, i, sum);
    for (int k = 0; k < a.n_outputs; k++) Elements<N>::put((T *)a.out[k] + i, sum);
}

/* One thread per vector, then one per element of the rest. */
template <typename T> static __device__ __forceinline__ void all_reduce(const AllReduceArgs &a) {
    enum { N = VectorOf<T>::N };
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t n_vectors = a.vector ? a.count / N : 0;
    const int64_t i = thread < n_vectors ? thread * N : n_vectors * N + (thread - n_vectors);
    if (thread < n_vectors) {
        all_reduce_at<T, N>(a, i);
    } else if (i < a.count) {
        all_reduce_at<T, 1>(a, i);
    }
}

KERNEL_FUNCTION all_reduce_f32(AllReduceArgs a) {
    all_reduce<float>(a);
}
KERNEL_FUNCTION all_reduce_bf16(AllReduceArgs a) {
    all_reduce<bf16_t>(a);
}
KERNEL_FUNCTION all_reduce_f16(AllReduceArgs a) {
    all_reduce<f16_t>(a);
}

/* Where unit i of a member's part lies in a row of the whole. */
static __device__ __forceinline__ int64_t whole_place(uint32_t member, int32_t n_members,
                                                      uint32_t part, uint32_t i, int32_t deals) {
    if (!deals) return (int64_t)member * part + i;
    const uint32_t chunk = part / 2;
    if (i < chunk) return (int64_t)member * chunk + i;
    return (int64_t)(2 * n_members - 1 - member) * chunk + (i - chunk);
}

template <typename T> static __device__ __forceinline__ void all_gather(const AllGatherArgs &a) {
    const uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= a.count) return;
    const uint32_t line = fast_divide(a.part, n), i = n - line * a.part.divisor;
    const uint32_t member = fast_divide(a.rows, line), row = line - member * a.rows.divisor;
    const int64_t at = whole_place(member, a.n_members, a.part.divisor, i, a.deals);
    if (at >= a.total) return;
    const T value = ((const T *)a.in[member])[(int64_t)row * a.part.divisor + i];
    for (int k = 0; k < a.n_members; k++) ((T *)a.out[k])[row * a.total + at] = value;
}

KERNEL_FUNCTION all_gather_2(AllGatherArgs a) {
    all_gather<uint16_t>(a);
}
KERNEL_FUNCTION all_gather_4(AllGatherArgs a) {
    all_gather<uint32_t>(a);
}
KERNEL_FUNCTION all_gather_8(AllGatherArgs a) {
    all_gather<uint64_t>(a);
}
KERNEL_FUNCTION all_gather_16(AllGatherArgs a) {
    all_gather<uint4>(a);
}

/* A thread moves one unit: of member j's to member k's. */
template <typename T> static __device__ __forceinline__ void all_to_all(const AllToAllArgs &a) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= a.count) return;
    const uint32_t n = a.members.divisor, rows = a.rows.divisor, width = a.width.divisor;
    uint32_t at = fast_divide(a.width, thread), next;
    const uint32_t i = thread - at * width;
    next = fast_divide(a.rows, at);
    const uint32_t row = at - next * rows;
    at = fast_divide(a.outer, next);
    const uint32_t outer = next - at * a.outer.divisor;
    const uint32_t k = fast_divide(a.members, at), j = at - k * n;
    const uint32_t to = a.to_strips ? k : j, from = a.to_strips ? j : k;
    uint32_t place = to * rows + row; /* of a block's row among those of all */
    if (a.deals) {
        const uint32_t half = rows / 2, first = row < half;
        place = first ? to * half + row : (2 * n - 1 - to) * half + row - half;
    }
    const int64_t block = ((int64_t)outer * n * rows + place) * width + i;
    const int64_t strip = (((int64_t)outer * rows + row) * n + from) * width + i;
    if (a.to_strips) {
        ((T *)a.out[k])[strip] = ((const T *)a.in[j])[block];
    } else {
        ((T *)a.out[k])[block] = ((const T *)a.in[j])[strip];
    }
}

KERNEL_FUNCTION all_to_all_2(AllToAllArgs a) {
    all_to_all<uint16_t>(a);
}
KERNEL_FUNCTION all_to_all_4(AllToAllArgs a) {
    all_to_all<uint32_t>(a);
}
KERNEL_FUNCTION all_to_all_8(AllToAllArgs a) {
    all_to_all<uint64_t>(a);
}
KERNEL_FUNCTION all_to_all_16(AllToAllArgs a) {
    all_to_all<uint4>(a);
}

template <typename T, int N>
static __device__ __forceinline__ void reduce_scatter(const ReduceScatterArgs &a) {
    const uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= a.count) return;
    const uint32_t line = fast_divide(a.part, n), i = n - line * a.part.divisor;
    const uint32_t k = fast_divide(a.rows, line), row = line - k * a.rows.divisor;
    const int64_t at = whole_place(a.first + k, a.n_members, a.part.divisor, i, a.deals);
    float sum[N] = {0};
    if (at < a.total) {
        reduce_members<T, N>(a.in, a.n_members, a.kind, (row * a.total + at) * N, sum);
    }
    Elements<N>::put((T *)a.out[k] + ((int64_t)row * a.part.divisor + i) * N, sum);
}

KERNEL_FUNCTION reduce_scatter_f32(ReduceScatterArgs a) {
    if (a.vector) {
        reduce_scatter<float, 4>(a);
    } else {
        reduce_scatter<float, 1>(a);
    }
}
KERNEL_FUNCTION reduce_scatter_bf16(ReduceScatterArgs a) {
    if (a.vector) {
        reduce_scatter<bf16_t, 8>(a);
    } else {
        reduce_scatter<bf16_t, 1>(a);
    }
}
KERNEL_FUNCTION reduce_scatter_f16(ReduceScatterArgs a) {
    if (a.vector) {
        reduce_scatter<f16_t, 8>(a);
    } else {
        reduce_scatter<f16_t, 1>(a);
    }
}
