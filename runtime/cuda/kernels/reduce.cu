/* Sums over any dimensions. AHEAD terms are loaded before any is added; their sums are added up, so
 * that chains of additions stay short. The order of all sums follows from the shape alone. */
#include "runtime/cuda/kernels/vector.cuh"

enum { AHEAD = 8 };

static __device__ __forceinline__ void store_sum(void *out, int64_t at, float sum, int dtype,
                                                 int add) {
    if (add) sum = __fadd_rn(((const float *)out)[at], sum);
    store_as(dtype, out, at, sum);
}

/* This block's part [begin, end) of n, when blockIdx.y counts the parts. */
static __device__ __forceinline__ uint32_t part_begin(uint32_t n, uint32_t n_parts, uint32_t part) {
    return (uint32_t)((uint64_t)n * part / n_parts);
}

/* total += COUNT terms, step apart from number i on, added in pairs; place(i) is where one lies.
 * All places first: they take branches, and a load before one may be waited for there. */
template <int COUNT, int N, class Place>
static __device__ __forceinline__ void add_terms(const Place &place, uint32_t i, uint32_t step,
                                                 float *total) {
    decltype(place(i)) places[COUNT];
    float terms[COUNT][N];
#pragma unroll
    for (int k = 0; k < COUNT; k++) places[k] = place(i + k * step);
#pragma unroll
    for (int k = 0; k < COUNT; k++) Elements<N>::get(places[k], terms[k]);
#pragma unroll
    for (int half = COUNT / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < half; k++) {
#pragma unroll
            for (int j = 0; j < N; j++) terms[k][j] += terms[k + half][j];
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) total[j] += terms[0][j];
}

/* total += all terms i, i + step, ... before `end`. The rest goes in halves: one after the other,
 * each would wait for memory. */
template <int N, class Place>
static __device__ __forceinline__ void add_all_terms(const Place &place, uint32_t i, uint32_t end,
                                                     uint32_t step, float *total) {
    static_assert(AHEAD == 8, "rests of 4, 2 and 1");
    for (; i + (AHEAD - 1) * step < end; i += AHEAD * step) {
        add_terms<AHEAD, N>(place, i, step, total);
    }
    if (i + 3 * step < end) {
        add_terms<4, N>(place, i, step, total);
        i += 4 * step;
    }
    if (i + step < end) {
        add_terms<2, N>(place, i, step, total);
        i += 2 * step;
    }
    if (i < end) add_terms<1, N>(place, i, step, total);
}

/* A block: 32 N columns of one row, its runs dealt to the warps. */
template <typename T, int N>
static __device__ __forceinline__ void reduce_columns(const ReduceArgs &a) {
    /* Column by column of the lanes', so that neither writing nor reading finds a bank taken. */
    enum { WARPS = REDUCE_THREADS / 32, STRIDE = 32 + 32 / N };
    __shared__ float sums[WARPS][N * STRIDE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t row = fast_divide(a.divisor, blockIdx.x);
    const uint32_t first = (blockIdx.x - row * a.divisor.divisor) * 32 * N;
    const uint32_t column = first + lane * N;
    const uint32_t end = part_begin(a.n_runs, a.n_chunks, blockIdx.y + 1);
    const uint32_t run = part_begin(a.n_runs, a.n_chunks, blockIdx.y) + warp;
    float total[N] = {0};
    if (column < a.width) {
        const T *all = (const T *)((const char *)a.x + blockIdx.z * a.x_apart);
        const T *x = all + index_map(a.row_at, row) + column;
        auto place = [&](uint32_t i) { return x + index_map(a.run_at, i); };
        add_all_terms<N>(place, run, end, WARPS, total);
    }
#pragma unroll
    for (int j = 0; j < N; j++) sums[warp][j * STRIDE + lane] = total[j];
    __syncthreads();
    const uint32_t at = first + threadIdx.x;
    if (threadIdx.x < 32 * N && at < a.width) {
        float sum = 0;
        const int from = threadIdx.x % N * STRIDE + threadIdx.x / N;
        for (int w = 0; w < WARPS; w++) sum += sums[w][from];
        store_sum((char *)a.out + blockIdx.z * a.out_apart,
                  blockIdx.y * a.n_outputs + (int64_t)row * a.width + at, sum, a.out_dtype, a.add);
    }
}

KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_columns_f32(ReduceArgs a) {
    if (a.vector) {
        reduce_columns<float, 4>(a);
    } else {
        reduce_columns<float, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_columns_bf16(ReduceArgs a) {
    if (a.vector) {
        reduce_columns<bf16_t, 8>(a);
    } else {
        reduce_columns<bf16_t, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_columns_f16(ReduceArgs a) {
    if (a.vector) {
        reduce_columns<f16_t, 8>(a);
    } else {
        reduce_columns<f16_t, 1>(a);
    }
}

/* Where vector i of an output's runs lies. */
template <typename T, int N>
static __device__ __forceinline__ const T *vector_at(const ReduceArgs &a, const T *x, uint32_t i) {
    const uint32_t run = fast_divide(a.divisor, i), at = i - run * a.divisor.divisor;
    return x + index_map(a.run_at, run) + (int64_t)at * N;
}

/* This thread's share of one output's sum over vectors [i, end), every `step`-th. */
template <typename T, int N>
static __device__ __forceinline__ float sum_vectors(const ReduceArgs &a, const T *x, uint32_t i,
                                                    uint32_t end, uint32_t step) {
    float total[N] = {0}, sum = 0;
    auto place = [&](uint32_t at) { return vector_at<T, N>(a, x, at); };
    add_all_terms<N>(place, i, end, step, total);
#pragma unroll
    for (int j = 0; j < N; j++) sum += total[j];
    return sum;
}

template <typename T, int N>
static __device__ __forceinline__ void reduce_rows(const ReduceArgs &a) {
    const uint32_t n = a.n_runs * a.divisor.divisor;
    const uint32_t begin = part_begin(n, a.n_chunks, blockIdx.y);
    const uint32_t end = part_begin(n, a.n_chunks, blockIdx.y + 1);
    const int64_t place = blockIdx.y * a.n_outputs;
    if (a.block_each) {
        const T *x = (const T *)a.x + index_map(a.row_at, blockIdx.x);
        const double sum = block_total<REDUCE_THREADS>(
            sum_vectors<T, N>(a, x, begin + threadIdx.x, end, REDUCE_THREADS));
        if (threadIdx.x == 0) store_sum(a.out, place + blockIdx.x, (float)sum, a.out_dtype, a.add);
        return;
    }
    const uint32_t row = blockIdx.x * (REDUCE_THREADS / 32) + threadIdx.x / 32;
    if (row >= a.n_outputs) return; /* all of a warp */
    const T *x = (const T *)a.x + index_map(a.row_at, row);
    const float sum = warp_total(sum_vectors<T, N>(a, x, begin + threadIdx.x % 32, end, 32));
    if (threadIdx.x % 32 == 0) store_sum(a.out, place + row, sum, a.out_dtype, a.add);
}

KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_rows_f32(ReduceArgs a) {
    if (a.vector) {
        reduce_rows<float, 4>(a);
    } else {
        reduce_rows<float, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_rows_bf16(ReduceArgs a) {
    if (a.vector) {
        reduce_rows<bf16_t, 8>(a);
    } else {
        reduce_rows<bf16_t, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_rows_f16(ReduceArgs a) {
    if (a.vector) {
        reduce_rows<f16_t, 8>(a);
    } else {
        reduce_rows<f16_t, 1>(a);
    }
}

/* A block: 32 outputs, their chunks dealt to the warps. */
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) reduce_finish(ReduceFinishArgs a) {
    enum { WARPS = REDUCE_THREADS / 32 };
    __shared__ double sums[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t i = (int64_t)blockIdx.x * 32 + lane;
    const float *partial = a.partial + (int64_t)blockIdx.z * a.n_chunks * a.n_outputs;
    double sum = 0;
    if (i < a.n_outputs) {
        for (uint32_t c = warp; c < a.n_chunks; c += AHEAD * WARPS) {
            float terms[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const uint32_t at = c + k * WARPS;
                terms[k] = at < a.n_chunks ? partial[at * a.n_outputs + i] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) sum += (double)terms[k];
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || i >= a.n_outputs) return;
    for (int w = 1; w < WARPS; w++) sum += sums[w][lane];
    store_sum((char *)a.out + blockIdx.z * a.out_apart, i, (float)sum, a.out_dtype, a.add);
}

template <typename T, int N> static __device__ __forceinline__ void dot_rows(const DotsArgs &a) {
    const int64_t row = (int64_t)blockIdx.x * (REDUCE_THREADS / 32) + threadIdx.x / 32;
    if (row >= a.n) return; /* all of a warp */
    const T *x = (const T *)a.a + row * a.k, *y = (const T *)a.b + row * a.k;
    float total[N] = {0}, sum = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x % 32 * N; i < a.k; i += 32 * N) {
        float u[N], v[N];
        Elements<N>::get(x + i, u);
        Elements<N>::get(y + i, v);
#pragma unroll
        for (int j = 0; j < N; j++) total[j] += u[j] * v[j];
    }
#pragma unroll
    for (int j = 0; j < N; j++) sum += total[j];
    sum = warp_total(sum);
    if (threadIdx.x % 32 == 0) store_sum(a.out, row, sum, a.out_dtype, a.add);
}

KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) dots_f32(DotsArgs a) {
    if (a.vector) {
        dot_rows<float, 4>(a);
    } else {
        dot_rows<float, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) dots_bf16(DotsArgs a) {
    if (a.vector) {
        dot_rows<bf16_t, 8>(a);
    } else {
        dot_rows<bf16_t, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(REDUCE_THREADS) dots_f16(DotsArgs a) {
    if (a.vector) {
        dot_rows<f16_t, 8>(a);
    } else {
        dot_rows<f16_t, 1>(a);
    }
}
