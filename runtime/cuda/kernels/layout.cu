/* Rows moved from one pitch to another (slices, packing for messages), scalars, and sums of many
 * operands. */
#include "runtime/cuda/kernels/vector.cuh"

template <typename T>
static __device__ __forceinline__ void copy_rows(const CopyRowsArgs &a, T fill) {
    const uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= a.count) return;
    const uint32_t line = fast_divide(a.width, n), i = n - line * a.width.divisor;
    const uint32_t part = fast_divide(a.rows, line), row = line - part * a.rows.divisor;
    const bool exists = (int64_t)part * a.width.divisor + i < a.limit;
    if (!exists && a.cut) return;
    const T *in = (const T *)a.in + part * a.in_part + row * a.in_row + i;
    T *out = (T *)a.out + part * a.out_part + row * a.out_row + i;
    if (exists) {
        *out = *in;
    } else {
        *out = fill;
    }
}

KERNEL_FUNCTION copy_rows_2(CopyRowsArgs a) {
    copy_rows<uint16_t>(a, (uint16_t)a.fill);
}
KERNEL_FUNCTION copy_rows_4(CopyRowsArgs a) {
    copy_rows<uint32_t>(a, a.fill);
}
KERNEL_FUNCTION copy_rows_8(CopyRowsArgs a) {
    copy_rows<uint64_t>(a, (uint64_t)a.fill << 32 | a.fill);
}
KERNEL_FUNCTION copy_rows_16(CopyRowsArgs a) {
    copy_rows<uint4>(a, make_uint4(a.fill, a.fill, a.fill, a.fill));
}

KERNEL_FUNCTION set_scalar(SetScalarArgs a) {
    store_as(a.dtype, a.out, 0, a.value);
}

/* N elements from the i-th on. */
template <typename T, int N>
static __device__ __forceinline__ void add_operands(const AddNArgs &a, int64_t i) {
    double sum[N] = {0};
#pragma unroll 4
    for (int k = 0; k < a.n_operands; k++) {
        float terms[N];
        Elements<N>::get((const T *)a.in[k] + i, terms);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += (double)terms[j];
    }
    float rounded[N];
#pragma unroll
    for (int j = 0; j < N; j++) rounded[j] = (float)sum[j];
    Elements<N>::put((T *)a.out + i, rounded);
}

template <typename T> static __device__ __forceinline__ void add_n(const AddNArgs &a) {
    enum { N = VectorOf<T>::N };
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t n_vectors = a.vector ? a.n / N : 0;
    const int64_t i = thread < n_vectors ? thread * N : n_vectors * N + (thread - n_vectors);
    if (thread < n_vectors) {
        add_operands<T, N>(a, i);
    } else if (i < a.n) {
        add_operands<T, 1>(a, i);
    }
}

KERNEL_FUNCTION add_n_f32(AddNArgs a) {
    add_n<float>(a);
}
KERNEL_FUNCTION add_n_bf16(AddNArgs a) {
    add_n<bf16_t>(a);
}
KERNEL_FUNCTION add_n_f16(AddNArgs a) {
    add_n<f16_t>(a);
}

/* A block per element, for many operands of few elements: each thread reads a few operands. */
template <typename T> static __device__ __forceinline__ void add_scalars(const AddNArgs &a) {
    const int64_t i = blockIdx.x;
    double sum = 0;
    for (int k = threadIdx.x; k < a.n_operands; k += COPY_THREADS) {
        sum += (double)load((const T *)a.in[k] + i);
    }
    sum = block_total_f64<COPY_THREADS>(sum);
    if (threadIdx.x == 0) store((T *)a.out + i, (float)sum);
}

KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) add_n_scalars_f32(AddNArgs a) {
    add_scalars<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) add_n_scalars_bf16(AddNArgs a) {
    add_scalars<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) add_n_scalars_f16(AddNArgs a) {
    add_scalars<f16_t>(a);
}

/* A row of blocks per element of the new axis. */
template <typename T> static __device__ __forceinline__ void stack(const StackArgs &a) {
    const int64_t i = (int64_t)blockIdx.x * COPY_THREADS + threadIdx.x;
    const int32_t k = blockIdx.y;
    if (i >= a.n) return;
    ((T *)a.out)[k * a.n + i] = k < a.n_operands ? ((const T *)a.in[k])[i] : T();
}

KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) stack_2(StackArgs a) {
    stack<uint16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) stack_4(StackArgs a) {
    stack<uint32_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(COPY_THREADS) stack_16(StackArgs a) {
    stack<uint4>(a);
}
