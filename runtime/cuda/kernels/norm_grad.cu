/* Gradients of layernorm and rmsnorm. With n = (x - mean) inv and g = gain dy:
 *     dx = inv (g - mean(g) - n mean(g n)), dgain = sum over rows of dy n, dbias = of dy
 * and without mean(g) and dbias for rmsnorm. The gradient that came past the norm may be added.
 *
 * layernorm_grad_sum_* also make the sum of dx over rows: the gradient of a bias that was added
 * before the norm. Gain and bias gradients are summed by groups of rows, in ascending order in
 * each, then over the groups by norm_join. How rows are grouped follows from the sizes alone.
 */
#include "runtime/cuda/kernels/tensor.cuh"
#include "runtime/cuda/kernels/vector.cuh"

struct TwoSums {
    float g, gx;
};

/* Over the block, the same on every thread. scratch [32] is read until the next barrier: two in
 * turn need one barrier per call. */
static __device__ __forceinline__ TwoSums block_sums(TwoSums s, float2 *scratch) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
        s.g += __shfl_xor_sync(0xffffffffu, s.g, bits);
        s.gx += __shfl_xor_sync(0xffffffffu, s.gx, bits);
    }
    if (warps == 1) return s;
    if (lane == 0) scratch[threadIdx.x / 32] = make_float2(s.g, s.gx);
    __syncthreads();
    s = {0.0f, 0.0f};
    for (int w = 0; w < warps; w++) {
        s.g += scratch[w].x;
        s.gx += scratch[w].y;
    }
    return s;
}

/* dx, or its sum with the addend: the f32 sum of two rounded numbers, as one launch after the other
 * makes it. */
static __device__ __forceinline__ float add_to_gradient(float addend, float dx) {
    return __fadd_rn(addend, dx);
}

/* The rows of a group on their way: x, dy and the addend of AHEAD rows are copied to shared memory
 * while the ones before are worked on, since a block has few warps to wait with. A thread copies
 * and takes its own columns, PACKS of 16 bytes each, and so waits for nobody. */
template <typename T, bool CENTERED, int PACKS> struct RowsAhead {
    enum { V = VectorOf<T>::N, AHEAD = PACKS == 1 ? NORM_GRAD_NARROW_AHEAD : NORM_GRAD_AHEAD };
    enum { PARTS = NORM_GRAD_PARTS, PACK_BYTES = NORM_GRAD_PACK_BYTES };
    const NormGradArgs &a;
    const int64_t first, end;
    unsigned char *const own; /* this thread's first pack */
    int slot;
    /* A lane's are those of a row of 32, and of the 32 after those. */
    float mean, inv, next_mean, next_inv;

    __device__ __forceinline__ RowsAhead(const NormGradArgs &args, int64_t first_row,
                                         int64_t end_row, unsigned char *shared)
        : a(args), first(first_row), end(end_row), own(shared + threadIdx.x * PACK_BYTES), slot(0),
          mean(0), inv(0) {
        load_statistics(first);
        for (int i = 0; i < AHEAD; i++) copy(first + i, i);
    }
    __device__ __forceinline__ void load_statistics(int64_t row) {
        const int64_t at = row + threadIdx.x % 32;
        next_mean = CENTERED && at < end ? a.mean[at] : 0.0f;
        next_inv = at < end ? a.inv[at] : 0.0f;
    }
    __device__ __forceinline__ unsigned char *pack(int at_slot, int part, int p) const {
        return own + ((at_slot * PARTS + part) * PACKS + p) * (int)blockDim.x * PACK_BYTES;
    }
    __device__ __forceinline__ int column(int p) const {
        return (p * (int)blockDim.x + (int)threadIdx.x) * V;
    }
    __device__ __forceinline__ void copy(int64_t row, int to) {
        const void *const parts[PARTS] = {a.x, a.dy, a.addend};
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
#pragma unroll
            for (int p = 0; p < PACKS; p++) {
                if (row < end && parts[i] && column(p) < a.n)
                    copy_async_16(shared_address(pack(to, i, p)),
                                  (const T *)parts[i] + row * a.n + column(p), PACK_BYTES);
            }
        }
        copy_async_commit();
    }
    /* The rows one after the other. What is past a row's end stays as it is. */
    __device__ __forceinline__ void take(int64_t row, uint4 (&x)[PACKS], uint4 (&dy)[PACKS],
                                         uint4 (&addend)[PACKS], float *out_mean, float *out_inv) {
        const int lane = (int)(row - first) % 32;
        if (lane == 0) {
            mean = next_mean;
            inv = next_inv;
            load_statistics(row + 32);
        }
        *out_mean = __shfl_sync(0xffffffffu, mean, lane);
        *out_inv = __shfl_sync(0xffffffffu, inv, lane);
        copy_async_wait<AHEAD - 1>();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (column(p) >= a.n) continue;
            x[p] = *(const uint4 *)pack(slot, 0, p);
            dy[p] = *(const uint4 *)pack(slot, 1, p);
            if (a.addend) addend[p] = *(const uint4 *)pack(slot, 2, p);
        }
        copy(row + AHEAD, slot);
        slot = slot == AHEAD - 1 ? 0 : slot + 1;
    }
};

/* A block walks its group's rows; each thread keeps the same columns of all of them. */
template <typename T, bool CENTERED, bool SUMMED, int PACKS>
static __device__ __forceinline__ void norm_grad_rows(const NormGradArgs &a) {
    enum { V = VectorOf<T>::N };
    __shared__ float2 scratch[2][32];
    const int threads = blockDim.x;
    const int64_t first = blockIdx.x * a.rows_per_group;
    const int64_t end = first + a.rows_per_group < a.rows ? first + a.rows_per_group : a.rows;
    float sum_gain[PACKS][V] = {}, sum_bias[PACKS][V] = {}, sum_dx[PACKS][V] = {};
    DYNAMIC_SHARED(unsigned char, shared);
    RowsAhead<T, CENTERED, PACKS> ahead(a, first, end, shared);
    int turn = 0;
    for (int64_t row = first; row < end; row++) {
        uint4 x[PACKS] = {}, dy[PACKS] = {}, addend[PACKS] = {};
        float mean, inv, normal[PACKS][V], d[PACKS][V];
        TwoSums sums = {0.0f, 0.0f};
        ahead.take(row, x, dy, addend, &mean, &inv);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            take_apart<T>(x[p], normal[p]);
            take_apart<T>(dy[p], d[p]);
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int at = (p * threads + threadIdx.x) * V;
            if (at < a.n) {
#pragma unroll
                for (int j = 0; j < V; j += 4) {
                    float gain[4];
                    Elements<4>::get(a.gain + at + j, gain);
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        normal[p][j + k] = (normal[p][j + k] - mean) * inv;
                        sum_gain[p][j + k] += d[p][j + k] * normal[p][j + k];
                        if (CENTERED) sum_bias[p][j + k] += d[p][j + k];
                        d[p][j + k] *= gain[k];
                        sums.g += d[p][j + k];
                        sums.gx += d[p][j + k] * normal[p][j + k];
                    }
                }
            }
        }
        sums = block_sums(sums, scratch[turn]);
        turn ^= 1;
        const float mean_g = CENTERED ? sums.g / a.n : 0.0f, mean_gx = sums.gx / a.n;
        T *dx = (T *)a.dx + row * a.n;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int at = (p * threads + threadIdx.x) * V;
            if (at < a.n) {
                float more[V];
                if (a.addend) take_apart<T>(addend[p], more);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    d[p][j] = inv * (d[p][j] - mean_g - normal[p][j] * mean_gx);
                    if (a.addend) d[p][j] = add_to_gradient(more[j], d[p][j]);
                    if (SUMMED) sum_dx[p][j] += d[p][j];
                }
                Elements<V>::put(dx + at, d[p]);
            }
        }
    }
    float *partial = a.partial + (int64_t)blockIdx.x * a.n * (1 + CENTERED + SUMMED);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int at = (p * threads + threadIdx.x) * V;
        if (at < a.n) {
#pragma unroll
            for (int j = 0; j < V; j += 4) {
                Elements<4>::put(partial + at + j, &sum_gain[p][j]);
                if (CENTERED) Elements<4>::put(partial + a.n + at + j, &sum_bias[p][j]);
                if (SUMMED) Elements<4>::put(partial + 2 * a.n + at + j, &sum_dx[p][j]);
            }
        }
    }
}

/* The same sums for any width: a thread per column, a row of blocks per group. Before dx is made,
 * which may take dy's place. */
template <typename T, bool CENTERED>
static __device__ __forceinline__ void norm_grad_columns(const NormGradArgs &a) {
    const int64_t first = blockIdx.y * a.rows_per_group;
    const int64_t end = first + a.rows_per_group < a.rows ? first + a.rows_per_group : a.rows;
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum_gain = 0, sum_bias = 0;
    if (at >= a.n) return;
    for (int64_t row = first; row < end; row++) {
        const float mean = CENTERED ? a.mean[row] : 0.0f;
        const float d = load((const T *)a.dy + row * a.n + at);
        sum_gain += d * (load((const T *)a.x + row * a.n + at) - mean) * a.inv[row];
        sum_bias += d;
    }
    float *partial = a.partial + (int64_t)blockIdx.y * a.n * (CENTERED ? 2 : 1);
    partial[at] = sum_gain;
    if (CENTERED) partial[a.n + at] = sum_bias;
}

/* dx for any width, a block per row. */
template <typename T, bool CENTERED>
static __device__ __forceinline__ void norm_grad_any(const NormGradArgs &a) {
    __shared__ float2 scratch[32];
    const int64_t row = blockIdx.x;
    const T *x = (const T *)a.x + row * a.n, *dy = (const T *)a.dy + row * a.n;
    T *dx = (T *)a.dx + row * a.n;
    const float mean = CENTERED ? a.mean[row] : 0.0f, inv = a.inv[row];
    TwoSums sums = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float g = load(dy + i) * a.gain[i];
        sums.g += g;
        sums.gx += g * ((load(x + i) - mean) * inv);
    }
    sums = block_sums(sums, scratch);
    const float mean_g = CENTERED ? sums.g / a.n : 0.0f, mean_gx = sums.gx / a.n;
    for (int i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float g = load(dy + i) * a.gain[i];
        float d = inv * (g - mean_g - (load(x + i) - mean) * inv * mean_gx);
        if (a.addend) d = add_to_gradient(load((const T *)a.addend + row * a.n + i), d);
        store(dx + i, d);
    }
}

/* Two packs a thread where one would take more than NORM_GRAD_NARROW_THREADS. */
#define NORM_GRAD_ROWS(name, T, CENTERED, SUMMED, suffix)                                          \
    KERNEL_FUNCTION __launch_bounds__(NORM_GRAD_NARROW_THREADS, 3)                                 \
        name##_narrow_##suffix(NormGradArgs a) {                                                   \
        norm_grad_rows<T, CENTERED, SUMMED, 1>(a);                                                 \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(512) name##_rows_##suffix(NormGradArgs a) {                  \
        norm_grad_rows<T, CENTERED, SUMMED, 2>(a);                                                 \
    }
#define NORM_GRAD_KERNELS(name, T, CENTERED, suffix)                                               \
    NORM_GRAD_ROWS(name##_grad, T, CENTERED, false, suffix)                                        \
    KERNEL_FUNCTION __launch_bounds__(128) name##_grad_columns_##suffix(NormGradArgs a) {          \
        norm_grad_columns<T, CENTERED>(a);                                                         \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(256) name##_grad_any_##suffix(NormGradArgs a) {              \
        norm_grad_any<T, CENTERED>(a);                                                             \
    }
#define NORMS_GRAD_KERNELS(T, suffix)                                                              \
    NORM_GRAD_KERNELS(layernorm, T, true, suffix)                                                  \
    NORM_GRAD_KERNELS(rmsnorm, T, false, suffix)                                                   \
    NORM_GRAD_ROWS(layernorm_grad_sum, T, true, true, suffix)
NORMS_GRAD_KERNELS(float, f32)
NORMS_GRAD_KERNELS(bf16_t, bf16)
NORMS_GRAD_KERNELS(f16_t, f16)

/* NORM_JOIN_COLUMNS per block, one a lane; its warps share the groups of each. */
KERNEL_FUNCTION __launch_bounds__(1024) norm_join(NormJoinArgs a) {
    enum { AHEAD = 8 }; /* loads under way */
    __shared__ float part[32][33];
    const int lane = threadIdx.x % 32, share = threadIdx.x / 32, shares = blockDim.x / 32;
    const int64_t at = (int64_t)blockIdx.x * NORM_JOIN_COLUMNS + lane;
    float sum = 0;
    if (at < a.width) {
        for (int64_t g = share; g < a.groups; g += AHEAD * shares) {
            float terms[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int64_t group = g + k * shares;
                terms[k] = group < a.groups ? a.partial[group * a.width + at] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) sum += terms[k];
        }
    }
    part[share][lane] = sum;
    __syncthreads();
    if (share != 0 || at >= a.width) return;
    sum = 0;
    for (int i = 0; i < shares; i++) sum += part[i][lane];
    const int which = at < a.n ? 0 : at < 2 * (int64_t)a.n ? 1 : 2;
    float *to = (which == 0 ? a.dgain : which == 1 ? a.dbias : a.dsum) + (at - which * a.n);
    *to = (which == 0   ? a.add_gain
           : which == 1 ? a.add_bias
                        : a.add_sum)
              ? __fadd_rn(*to, sum)
              : sum;
}
