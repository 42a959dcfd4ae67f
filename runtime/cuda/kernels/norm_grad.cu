/* Gradients of layernorm and rmsnorm. With n = (x - mean) inv and g = gain dy:
 *     dx = inv (g - mean(g) - n mean(g n)), dgain = sum over rows of dy n, dbias = of dy
 * and without mean(g) and dbias for rmsnorm. The gradient that came past the norm may be added.
 *
 * layernorm_grad_sum_* also make the sum of dx over rows: the gradient of a bias that was added
 * before the norm. Gain and bias gradients are summed by groups of rows, in ascending order in
 * each, then over the groups by norm_join. How rows are grouped follows from the sizes alone.
 */
#include "runtime/cuda/kernels/vector.cuh"

struct TwoSums {
    float g, gx;
};

/* Over the block of at most 16 warps, the same on every thread. Half of a warp's lanes add up g,
 * the others gx. scratch [16] is read until the next barrier: two in turn need one barrier per
 * call. */
static __device__ __forceinline__ TwoSums block_sums(TwoSums s, float2 *scratch) {
    const int lane = threadIdx.x % 32, in_half = lane % 16, warps = blockDim.x / 32;
    const bool of_gx = lane >= 16;
    float sum = of_gx ? s.gx : s.g;
    sum += __shfl_xor_sync(0xffffffffu, of_gx ? s.g : s.gx, 16);
#pragma unroll
    for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (warps > 1) {
        float *const sums = (float *)scratch + of_gx;
        if (in_half == 0) sums[2 * (threadIdx.x / 32)] = sum;
        __syncthreads();
        sum = in_half < warps ? sums[2 * in_half] : 0.0f;
#pragma unroll
        for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    }
    return {__shfl_sync(0xffffffffu, sum, 0), __shfl_sync(0xffffffffu, sum, 16)};
}

/* dx, or its sum with the addend: the f32 sum of two rounded numbers, as one launch after the other
 * makes it. */
static __device__ __forceinline__ float add_to_gradient(float addend, float dx) {
    return __fadd_rn(addend, dx);
}

/* What a thread needs of a row, `PACKS` of 16 bytes each: loaded while the row before is worked on,
 * since a block has few warps to wait with. The addend, too, where registers do. */
template <int PACKS> struct RowAhead {
    uint4 x[PACKS], dy[PACKS], addend[PACKS];
    float mean, inv;
};

/* Where a thread's pack p begins behind its first, and whether it is in a row. */
template <typename T> static __device__ __forceinline__ int pack_at(int p) {
    return p * (int)blockDim.x * VectorOf<T>::N;
}
template <typename T>
static __device__ __forceinline__ bool has_pack(const NormGradArgs &a, int p) {
    return pack_at<T>(p) + (int)threadIdx.x * VectorOf<T>::N < a.n;
}

/* at: of the thread's first number of the row. */
template <typename T, bool CENTERED, int PACKS>
static __device__ __forceinline__ void load_row(const NormGradArgs &a, int64_t row, int64_t at,
                                                RowAhead<PACKS> &out) {
    out.mean = CENTERED ? a.mean[row] : 0.0f;
    out.inv = a.inv[row];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (!has_pack<T>(a, p)) continue;
        out.x[p] = get_whole((const T *)a.x + at + pack_at<T>(p));
        out.dy[p] = get_whole((const T *)a.dy + at + pack_at<T>(p));
        if (PACKS == 1 && a.addend) out.addend[p] = get_whole((const T *)a.addend + at);
    }
}

/* A block walks its group's rows; each thread keeps the same columns of all of them. What is past a
 * row's end is zero: were it left undefined, loads would wait for the branches around them. With
 * c = x - mean and g' = inv g, of as few operations as there are: dx = g' - mean(g') - c inv^2
 * mean(g' c), dgain = sum of inv dy c. */
template <typename T, bool CENTERED, bool SUMMED, int PACKS>
static __device__ __forceinline__ void norm_grad_rows(const NormGradArgs &a) {
    enum { V = VectorOf<T>::N };
    __shared__ float2 scratch[2][16];
    const int threads = blockDim.x;
    const int64_t first = blockIdx.x * a.rows_per_group;
    const int64_t end = first + a.rows_per_group < a.rows ? first + a.rows_per_group : a.rows;
    const float share = 1.0f / a.n;
    float sum_gain[PACKS][V] = {}, sum_bias[PACKS][V] = {}, sum_dx[PACKS][V] = {};
    RowAhead<PACKS> ahead = {};
    /* The row itself, as the compiler need not know: it would keep what is the same for a block in
     * a uniform register, and wait for it at once. */
    int64_t row = first + (threadIdx.x >= blockDim.x);
    int64_t at = row * a.n + (int)threadIdx.x * V;
    int turn = 0;
    load_row<T, CENTERED>(a, row, at, ahead);
    for (int n_left = (int)(end - first); n_left > 0; n_left--) {
        const float mean = ahead.mean, inv = ahead.inv;
        const int64_t now = at;
        float c[PACKS][V], d[PACKS][V];
        uint4 addend[PACKS] = {};
        TwoSums sums = {0.0f, 0.0f};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (has_pack<T>(a, p)) {
                take_apart<T>(ahead.x[p], c[p]);
                take_apart<T>(ahead.dy[p], d[p]);
                if (a.addend)
                    addend[p] = PACKS == 1 ? ahead.addend[p]
                                           : get_whole((const T *)a.addend + now + pack_at<T>(p));
            } else {
#pragma unroll
                for (int j = 0; j < V; j++) c[p][j] = d[p][j] = 0.0f;
            }
        }
        row++;
        at += a.n;
        if (n_left > 1) load_row<T, CENTERED>(a, row, at, ahead);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (!has_pack<T>(a, p)) continue;
#pragma unroll
            for (int j = 0; j < V; j += 4) {
                float gain[4];
                Elements<4>::get(a.gain + pack_at<T>(p) + (int)threadIdx.x * V + j, gain);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float &x = c[p][j + k], &g = d[p][j + k];
                    if (CENTERED) x -= mean;
                    if (CENTERED) sum_bias[p][j + k] += g;
                    g *= inv;
                    sum_gain[p][j + k] += g * x;
                    g *= gain[k];
                    if (CENTERED) sums.g += g;
                    sums.gx += g * x;
                }
            }
        }
        sums = block_sums(sums, scratch[turn]);
        turn ^= 1;
        const float mean_g = CENTERED ? sums.g * share : 0.0f,
                    slope = inv * inv * (sums.gx * share);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (!has_pack<T>(a, p)) continue;
            float more[V];
            if (a.addend) take_apart<T>(addend[p], more);
#pragma unroll
            for (int j = 0; j < V; j++) {
                d[p][j] = d[p][j] - mean_g - c[p][j] * slope;
                if (a.addend) d[p][j] = add_to_gradient(more[j], d[p][j]);
                if (SUMMED) sum_dx[p][j] += d[p][j];
            }
            Elements<V>::put((T *)a.dx + now + pack_at<T>(p), d[p]);
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
    __shared__ float2 scratch[16];
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
