/* The global norm, clipping and the optimizers; the forms for many tensors run the same code on the
 * tensor that a block belongs to. Where products are fused with sums is written out, so that all
 * forms give the same bits. */
#include "runtime/cuda/kernels/update.cuh"

/* The sum of squares of chunk number `number`, in thread 0. */
template <typename G>
static __device__ __forceinline__ float chunk_sumsq(const G *x, int64_t n, int64_t chunk,
                                                    uint32_t number) {
    enum { AHEAD = 8 };
    const int64_t begin = number * chunk;
    const int64_t end = n - begin < chunk ? n : begin + chunk;
    const int64_t n_vectors = (end - begin) / 4, step = UPDATE_THREADS;
    float sum[4] = {0};
    int64_t i = threadIdx.x;
    for (; i + (AHEAD - 1) * step < n_vectors; i += AHEAD * step) {
        float terms[AHEAD][4];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            Elements<4>::get(x + begin + 4 * (i + k * step), terms[k]);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sum[j] = fmaf(terms[k][j], terms[k][j], sum[j]);
        }
    }
    for (; i < n_vectors; i += step) {
        float terms[4];
        Elements<4>::get(x + begin + 4 * i, terms);
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] = fmaf(terms[j], terms[j], sum[j]);
    }
    const int64_t rest = begin + 4 * n_vectors + threadIdx.x;
    if (rest < end) sum[0] = fmaf(load(x + rest), load(x + rest), sum[0]);
    return (float)block_total<UPDATE_THREADS>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <typename G> static __device__ __forceinline__ void sumsq_one(const SumsqArgs &a) {
    const float sum = chunk_sumsq((const G *)a.x, a.n, a.chunk, blockIdx.x);
    if (threadIdx.x > 0) return;
    if (a.n_blocks == 1) {
        *a.out = sum;
    } else {
        a.partial[blockIdx.x] = sum;
    }
}

template <typename G> static __device__ __forceinline__ void sumsq_of_many(const SumsqManyArgs &a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    const uint32_t first = a.first_block[t];
    const float sum = chunk_sumsq((const G *)a.x[t], a.n[t], a.chunk, blockIdx.x - first);
    if (threadIdx.x > 0) return;
    if (a.first_block[t + 1] - first == 1) {
        *a.out[t] = sum;
    } else {
        a.partial[blockIdx.x] = sum;
    }
}

/* Kernels of their own for bf16: both in one have fewer loads under way. */
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq(SumsqArgs a) {
    sumsq_one<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq_low(SumsqArgs a) {
    sumsq_one<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq_many(SumsqManyArgs a) {
    sumsq_of_many<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq_low_many(SumsqManyArgs a) {
    sumsq_of_many<bf16_t>(a);
}

static __device__ __forceinline__ void finish_sumsq(const float *partial, uint32_t n, float *out) {
    double sum = 0;
    if (n == 1) return; /* already there */
    for (uint32_t i = threadIdx.x; i < n; i += UPDATE_THREADS) sum += (double)partial[i];
    sum = block_total_f64<UPDATE_THREADS>(sum);
    if (threadIdx.x == 0) *out = (float)sum;
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq_finish(SumsqArgs a) {
    finish_sumsq(a.partial, a.n_blocks, a.out);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sumsq_finish_many(SumsqManyArgs a) {
    const int t = blockIdx.x;
    const uint32_t first = a.first_block[t];
    finish_sumsq(a.partial + first, a.first_block[t + 1] - first, a.out[t]);
}

KERNEL_FUNCTION clip_scale(ClipScaleArgs a) {
    const float loss_scale = a.loss_scale ? *a.loss_scale : 1.0f;
    const float norm = sqrtf(*a.sumsq) / loss_scale;
    float factor = a.max_norm > 0 ? a.max_norm / (norm + 1e-6f) : 1.0f;
    if (factor > 1) factor = 1;
    *a.factor = is_finite(norm) ? factor / loss_scale : bits_to_float(0x7fc00000u);
    if (a.norm_squared) *a.norm_squared = norm * norm;
}

KERNEL_FUNCTION skip_spike(SkipSpikeArgs a) {
    const bool is_above = is_finite(*a.norm_squared) && *a.norm_squared > *a.most;
    const bool spike = *a.most < 0 || is_above;
    *a.out = spike ? bits_to_float(0x7f800000u) : *a.factor;
}

KERNEL_FUNCTION loss_scale(LossScaleArgs a) {
    const bool finite = is_finite(*a.factor);
    if (__float_as_uint(*a.factor) == 0x7f800000u) return; /* skip_spike's */
    const float steps = finite ? *a.finite_steps + 1 : 0.0f, scale = *a.scale;
    const bool grows = a.interval > 0 && steps >= (float)a.interval;
    if (a.interval > 0 && !finite) *a.scale = scale > 2 ? scale * 0.5f : 1;
    if (grows) *a.scale = scale * 2 < a.most ? scale * 2 : a.most;
    *a.finite_steps = grows ? 0.0f : steps;
    if (finite) *a.updates += 1;
}

/* N elements of all that an update reads. */
template <bool HALVES, typename S, typename G, int N> struct AdamwPart {
    float g[N];
    Kept<S, N> m, v;
    Parameter<HALVES, N> p;
};

template <bool HALVES, typename S, typename G, int N>
static __device__ __forceinline__ void adamw_load(const AdamwTensor &t, int64_t i,
                                                  AdamwPart<HALVES, S, G, N> &out) {
    Elements<N>::get((const G *)t.g + i, out.g);
    out.m.load(t.m, i);
    out.v.load(t.v, i);
    out.p.load(t.p, t.copy, t.n, i);
}

/* What the part becomes, from the i-th element on. */
template <bool HALVES, typename S, typename G, int N>
static __device__ __forceinline__ void adamw_update(const AdamwTensor &t, const AdamwFactors &f,
                                                    int copy_dtype, int64_t i,
                                                    const AdamwPart<HALVES, S, G, N> &x) {
    float m[N], v[N], p[N];
    x.m.widen(m);
    x.v.widen(v);
    x.p.widen(p);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float gj = __fmul_rn(x.g[j], f.clip);
        m[j] = fmaf(f.take1, gj - m[j], m[j]);
        v[j] = fmaf(f.beta2, v[j], __fmul_rn(__fmul_rn(f.take2, gj), gj));
        const float step = m[j] / fmaf(sqrtf(v[j]), f.unscale, f.eps);
        p[j] = fmaf(-f.size, step, __fmul_rn(p[j], f.keep));
    }
    round_squares<S, N>(v, f.threshold);
    put_state<S, N>(t.m, i, m);
    put_state<S, N>(t.v, i, v);
    Parameter<HALVES, N>::put(t.p, t.copy, copy_dtype, t.n, i, p);
}

/* The next elements are under way while some are updated, and the first while factors are made. */
template <bool HALVES, typename S, typename G>
static __device__ __forceinline__ void adamw_chunk_of(const AdamwTensor &t, const AdamwScalars &s,
                                                      uint32_t number) {
    enum { STEP = 4 * UPDATE_THREADS };
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    const int64_t end = t.n - begin < UPDATE_CHUNK ? t.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    int64_t i = begin + 4 * (int64_t)threadIdx.x;
    AdamwPart<HALVES, S, G, 4> ahead = {};
    if (!is_finite(*s.clip)) return; /* all of the grid */
    if (i < whole) adamw_load(t, i, ahead);
    const AdamwFactors f = adamw_factors(s, t.weight_decay);
#pragma unroll
    for (int k = 0; k < UPDATE_CHUNK / STEP; k++, i += STEP) {
        const AdamwPart<HALVES, S, G, 4> part = ahead;
        if (i + STEP < whole) adamw_load(t, i + STEP, ahead);
        if (i < whole) adamw_update(t, f, s.copy_dtype, i, part);
    }
    if (whole + threadIdx.x < end) {
        AdamwPart<HALVES, S, G, 1> one;
        adamw_load(t, whole + threadIdx.x, one);
        adamw_update(t, f, s.copy_dtype, whole + threadIdx.x, one);
    }
}

template <typename S, typename G>
static __device__ __forceinline__ void adamw_whole_of(const AdamwTensor &t, const AdamwScalars &s,
                                                      uint32_t number) {
    adamw_chunk_of<false, S, G>(t, s, number);
}

template <typename S, typename G>
static __device__ __forceinline__ void adamw_halves_of(const AdamwTensor &t, const AdamwScalars &s,
                                                       uint32_t number) {
    adamw_chunk_of<true, S, G>(t, s, number);
}

static __device__ __forceinline__ void adamw_chunk(const AdamwTensor &t, const AdamwScalars &s,
                                                   int at, uint32_t number) {
    BY_DTYPES(s.state_dtype, s.low_gradients >> at & 1, adamw_whole_of, t, s, number);
}

static __device__ __forceinline__ void
adamw_halves_chunk(const AdamwTensor &t, const AdamwScalars &s, int at, uint32_t number) {
    BY_DTYPES(s.state_dtype, s.low_gradients >> at & 1, adamw_halves_of, t, s, number);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) adamw(AdamwArgs a) {
    adamw_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) adamw_many(AdamwManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    adamw_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

/* Kernels of their own, as both in one take more registers than either. */
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) adamw_halves(AdamwArgs a) {
    adamw_halves_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS, 4) adamw_halves_many(AdamwManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    adamw_halves_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

template <typename S, typename G, int N>
static __device__ __forceinline__ void sgd_elements(const SgdTensor &t, const SgdScalars &s,
                                                    float clip, float rate, int64_t i) {
    const float momentum = s.momentum;
    float g[N], p[N], buf[N];
    Elements<N>::get((const G *)t.g + i, g);
    get_parameter<N>(t, i, p);
    if (momentum != 0) get_state<S, N>(t.buf, i, buf);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float gj = fmaf(t.weight_decay, p[j], __fmul_rn(g[j], clip));
        buf[j] = momentum != 0 ? fmaf(momentum, buf[j], gj) : gj;
        p[j] = fmaf(-rate, buf[j], p[j]);
    }
    if (momentum != 0) put_state<S, N>(t.buf, i, buf);
    put_parameter<N>(t, s.copy_dtype, i, p);
}

template <typename S, typename G>
static __device__ __forceinline__ void sgd_chunk_of(const SgdTensor &t, const SgdScalars &s,
                                                    uint32_t number) {
    const float clip = *s.clip, rate = (float)((double)*s.lr * s.lr_scale);
    if (!is_finite(clip)) return;
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    const int64_t end = t.n - begin < UPDATE_CHUNK ? t.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        sgd_elements<S, G, 4>(t, s, clip, rate, i);
    }
    if (whole + threadIdx.x < end) {
        sgd_elements<S, G, 1>(t, s, clip, rate, whole + threadIdx.x);
    }
}

static __device__ __forceinline__ void sgd_chunk(const SgdTensor &t, const SgdScalars &s, int at,
                                                 uint32_t number) {
    BY_DTYPES(s.state_dtype, s.low_gradients >> at & 1, sgd_chunk_of, t, s, number);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sgd(SgdArgs a) {
    sgd_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sgd_many(SgdManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    sgd_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

/* What one element's update needs, in f32. */
typedef struct LionFactors {
    float clip, take1, take2, keep, size;
} LionFactors;

template <typename S, typename G, int N>
static __device__ __forceinline__ void lion_elements(const LionTensor &t, const LionFactors &f,
                                                     int copy_dtype, int64_t i) {
    float g[N], p[N], m[N];
    Elements<N>::get((const G *)t.g + i, g);
    get_state<S, N>(t.m, i, m);
    get_parameter<N>(t, i, p);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float change = __fmul_rn(g[j], f.clip) - m[j];
        const float x = fmaf(f.take1, change, m[j]);
        const float sign = x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
        p[j] = fmaf(-f.size, sign, __fmul_rn(p[j], f.keep));
        m[j] = fmaf(f.take2, change, m[j]);
    }
    put_state<S, N>(t.m, i, m);
    put_parameter<N>(t, copy_dtype, i, p);
}

template <typename S, typename G>
static __device__ __forceinline__ void lion_chunk_of(const LionTensor &t, const LionScalars &s,
                                                     uint32_t number) {
    const double rate = (double)*s.lr * s.lr_scale;
    LionFactors f;
    f.clip = *s.clip;
    if (!is_finite(f.clip)) return;
    f.take1 = (float)(1.0 - s.beta1);
    f.take2 = (float)(1.0 - s.beta2);
    f.keep = (float)fma(-rate, t.weight_decay, 1.0);
    f.size = (float)rate;
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    const int64_t end = t.n - begin < UPDATE_CHUNK ? t.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        lion_elements<S, G, 4>(t, f, s.copy_dtype, i);
    }
    if (whole + threadIdx.x < end) {
        lion_elements<S, G, 1>(t, f, s.copy_dtype, whole + threadIdx.x);
    }
}

static __device__ __forceinline__ void lion_chunk(const LionTensor &t, const LionScalars &s, int at,
                                                  uint32_t number) {
    BY_DTYPES(s.state_dtype, s.low_gradients >> at & 1, lion_chunk_of, t, s, number);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lion(LionArgs a) {
    lion_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lion_many(LionManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    lion_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

/* What one element's direction needs, in f32. */
typedef struct LambFactors {
    float size, unscale, eps, decay;
} LambFactors;

/* The powers in f64 by two threads, for all of the block. */
static __device__ __forceinline__ LambFactors lamb_factors(const LambScalars &s, float decay) {
    __shared__ double power[2];
    if (threadIdx.x < 2) power[threadIdx.x] = pow(threadIdx.x ? s.beta2 : s.beta1, (double)*s.step);
    __syncthreads();
    LambFactors f;
    f.size = (float)(1.0 / (1.0 - power[0]));
    f.unscale = (float)(1.0 / sqrt(1.0 - power[1]));
    f.eps = s.eps;
    f.decay = decay;
    return f;
}

static __device__ __forceinline__ float lamb_direction(const LambFactors &f, float p, float m,
                                                       float v) {
    return fmaf(f.size, m / fmaf(sqrtf(v), f.unscale, f.eps), __fmul_rn(f.decay, p));
}

/* N elements from the i-th on; adds their squares to *p2 and *r2. */
template <typename S, typename G, int N>
static __device__ __forceinline__ void
lamb_moments_elements(const LambTensor &t, const LambScalars &s, const LambFactors &f, int64_t i,
                      float clip, float *p2, float *r2) {
    const float take1 = (float)(1.0 - s.beta1), take2 = (float)(1.0 - s.beta2);
    const float beta2 = (float)s.beta2;
    float g[N], p[N], m[N], v[N];
    Elements<N>::get((const G *)t.g + i, g);
    get_state<S, N>(t.m, i, m);
    get_state<S, N>(t.v, i, v);
    Elements<N>::get(t.p + i, p);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float gj = __fmul_rn(g[j], clip);
        m[j] = fmaf(take1, gj - m[j], m[j]);
        v[j] = fmaf(beta2, v[j], __fmul_rn(__fmul_rn(take2, gj), gj));
    }
    round_moments<S, N>(m);
    round_squares<S, N>(v, threshold_of(*s.step));
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float r = lamb_direction(f, p[j], m[j], v[j]);
        *p2 = fmaf(p[j], p[j], *p2);
        *r2 = fmaf(r, r, *r2);
    }
    put_state<S, N>(t.m, i, m);
    put_state<S, N>(t.v, i, v);
}

/* Chunk number `number`; the sums of its squares go to out[0] and out[1]. */
template <typename S, typename G>
static __device__ __forceinline__ void
lamb_moments_chunk_of(const LambTensor &t, const LambScalars &s, int64_t chunk, uint32_t number,
                      float *p_out, float *r_out) {
    const float clip = *s.clip;
    const int64_t begin = number * chunk;
    const int64_t end = t.n - begin < chunk ? t.n : begin + chunk;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    float p2 = 0, r2 = 0;
    if (is_finite(clip)) { /* or not, for all of the grid */
        const LambFactors f = lamb_factors(s, t.weight_decay);
        for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
            lamb_moments_elements<S, G, 4>(t, s, f, i, clip, &p2, &r2);
        }
        if (whole + threadIdx.x < end) {
            lamb_moments_elements<S, G, 1>(t, s, f, whole + threadIdx.x, clip, &p2, &r2);
        }
    }
    const float p_sum = (float)block_total<UPDATE_THREADS>(p2);
    __syncthreads(); /* both totals are made in the same memory */
    const float r_sum = (float)block_total<UPDATE_THREADS>(r2);
    if (threadIdx.x > 0) return;
    *p_out = p_sum;
    *r_out = r_sum;
}

static __device__ __forceinline__ void lamb_moments_chunk(const LambTensor &t, const LambScalars &s,
                                                          int at, int64_t chunk, uint32_t number,
                                                          float *p_out, float *r_out) {
    BY_DTYPES(s.state_dtype, s.low_gradients >> at & 1, lamb_moments_chunk_of, t, s, chunk, number,
              p_out, r_out);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb_moments(LambArgs a) {
    const bool one = a.n_blocks == 1;
    float *partial = a.partial + 2 * (int64_t)blockIdx.x;
    lamb_moments_chunk(a.tensor, a.scalars, 0, a.chunk, blockIdx.x,
                       one ? a.tensor.p_squared : partial, one ? a.tensor.r_squared : partial + 1);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb_moments_many(LambManyArgs a) {
    const int k = find_tensor(a.first_block, a.n_tensors);
    const uint32_t first = a.first_block[k];
    const LambTensor &t = a.tensor[k];
    const bool one = a.first_block[k + 1] - first == 1;
    float *partial = a.partial + 2 * (int64_t)blockIdx.x;
    lamb_moments_chunk(t, a.scalars, k, a.chunk, blockIdx.x - first, one ? t.p_squared : partial,
                       one ? t.r_squared : partial + 1);
}

static __device__ __forceinline__ void finish_lamb_norms(const float *partial, uint32_t n,
                                                         float *p_out, float *r_out) {
    double p2 = 0, r2 = 0;
    if (n == 1) return; /* already there */
    for (uint32_t i = threadIdx.x; i < n; i += UPDATE_THREADS) {
        p2 += (double)partial[2 * (int64_t)i];
        r2 += (double)partial[2 * (int64_t)i + 1];
    }
    p2 = block_total_f64<UPDATE_THREADS>(p2);
    __syncthreads(); /* both totals are made in the same memory */
    r2 = block_total_f64<UPDATE_THREADS>(r2);
    if (threadIdx.x > 0) return;
    *p_out = (float)p2;
    *r_out = (float)r2;
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb_norms_finish(LambArgs a) {
    finish_lamb_norms(a.partial, a.n_blocks, a.tensor.p_squared, a.tensor.r_squared);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb_norms_finish_many(LambManyArgs a) {
    const int t = blockIdx.x;
    const uint32_t first = a.first_block[t];
    finish_lamb_norms(a.partial + 2 * (int64_t)first, a.first_block[t + 1] - first,
                      a.tensor[t].p_squared, a.tensor[t].r_squared);
}

/* |p| / |r|, bounded; 1 where either is 0. */
static __device__ __forceinline__ double lamb_trust(const LambTensor &t, double most) {
    const double p2 = (double)*t.p_squared, r2 = (double)*t.r_squared;
    const double trust = p2 > 0 && r2 > 0 ? sqrt(p2) / sqrt(r2) : 1.0;
    return most > 0 && trust > most ? most : trust;
}

template <typename S, int N>
static __device__ __forceinline__ void lamb_elements(const LambTensor &t, const LambFactors &f,
                                                     float size, int copy_dtype, int64_t i) {
    float p[N], m[N], v[N];
    get_state<S, N>(t.m, i, m);
    get_state<S, N>(t.v, i, v);
    Elements<N>::get(t.p + i, p);
#pragma unroll
    for (int j = 0; j < N; j++) {
        p[j] = fmaf(-size, lamb_direction(f, p[j], m[j], v[j]), p[j]);
    }
    Elements<N>::put(t.p + i, p);
    if (t.copy) put_copy<N>(copy_dtype, t.copy + i, p);
}

template <typename S>
static __device__ __forceinline__ void lamb_chunk_of(const LambTensor &t, const LambScalars &s,
                                                     uint32_t number) {
    if (!is_finite(*s.clip)) return; /* all of the grid */
    const LambFactors f = lamb_factors(s, t.weight_decay);
    const float size = (float)((double)*s.lr * s.lr_scale * lamb_trust(t, s.trust_max));
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    const int64_t end = t.n - begin < UPDATE_CHUNK ? t.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        lamb_elements<S, 4>(t, f, size, s.copy_dtype, i);
    }
    if (whole + threadIdx.x < end) {
        lamb_elements<S, 1>(t, f, size, s.copy_dtype, whole + threadIdx.x);
    }
}

static __device__ __forceinline__ void lamb_chunk(const LambTensor &t, const LambScalars &s,
                                                  uint32_t number) {
    if (s.state_dtype == DTYPE_BF16) {
        lamb_chunk_of<bf16_t>(t, s, number);
    } else {
        lamb_chunk_of<float>(t, s, number);
    }
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb(LambArgs a) {
    lamb_chunk(a.tensor, a.scalars, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lamb_many(LambManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    lamb_chunk(a.tensor[t], a.scalars, blockIdx.x - a.first_block[t]);
}

template <typename S, typename G, int N>
static __device__ __forceinline__ void momentum_elements(const MuonMomentumArgs &a, float clip,
                                                         int64_t i) {
    float g[N], m[N], direction[N];
    Elements<N>::get((const G *)a.g + i, g);
    get_state<S, N>(a.m, i, m);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float gj = __fmul_rn(g[j], clip);
        m[j] = fmaf(a.momentum, m[j], gj);
        direction[j] = fmaf(a.momentum, m[j], gj);
    }
    put_state<S, N>(a.m, i, m);
    Elements<N>::put(a.direction + i, direction);
}

template <typename S, typename G>
static __device__ __forceinline__ void momentum_chunk(const MuonMomentumArgs &a) {
    const float clip = *a.clip;
    const int64_t begin = (int64_t)blockIdx.x * UPDATE_CHUNK;
    const int64_t end = a.n - begin < UPDATE_CHUNK ? a.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    if (!is_finite(clip)) {
        for (int64_t i = begin + threadIdx.x; i < end; i += UPDATE_THREADS) a.direction[i] = 0;
        return;
    }
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        momentum_elements<S, G, 4>(a, clip, i);
    }
    if (whole + threadIdx.x < end) momentum_elements<S, G, 1>(a, clip, whole + threadIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) muon_momentum(MuonMomentumArgs a) {
    BY_DTYPES(a.state_dtype, a.gradient_dtype == DTYPE_BF16, momentum_chunk, a);
}

/* N elements of the direction, whatever it is kept in. */
template <int N>
static __device__ __forceinline__ void get_direction(const MuonArgs &a, int64_t i, float *x) {
    if (a.direction_dtype == DTYPE_BF16) {
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = load((const bf16_t *)a.direction + i + j);
    } else if (a.direction_dtype == DTYPE_F16) {
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = load((const f16_t *)a.direction + i + j);
    } else {
        Elements<N>::get((const float *)a.direction + i, x);
    }
}

template <int N>
static __device__ __forceinline__ void muon_elements(const MuonArgs &a, float keep, float size,
                                                     int64_t i) {
    float p[N], x[N];
    get_parameter<N>(a, i, p);
    get_direction<N>(a, i, x);
#pragma unroll
    for (int j = 0; j < N; j++) p[j] = fmaf(-size, x[j], __fmul_rn(p[j], keep));
    put_parameter<N>(a, a.copy_dtype, i, p);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) muon(MuonArgs a) {
    const double rate = (double)*a.lr * a.lr_scale;
    const float keep = (float)fma(-rate, a.weight_decay, 1.0), size = (float)(rate * a.scale);
    if (!is_finite(*a.clip)) return;
    const int64_t begin = (int64_t)blockIdx.x * UPDATE_CHUNK;
    const int64_t end = a.n - begin < UPDATE_CHUNK ? a.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        muon_elements<4>(a, keep, size, i);
    }
    if (whole + threadIdx.x < end) muon_elements<1>(a, keep, size, whole + threadIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) balance(BalanceArgs a) {
    __shared__ double sums[UPDATE_THREADS];
    double sum = 0;
    if (!is_finite(*a.clip)) return;
    for (int64_t i = threadIdx.x; i < a.n; i += UPDATE_THREADS) sum += (double)a.tally[i];
    sums[threadIdx.x] = sum;
    for (int half = UPDATE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.n; i += UPDATE_THREADS) {
        const double over = sums[0] - (double)a.tally[i] * (double)a.n;
        a.p[i] += over > 0 ? a.step : over < 0 ? -a.step : 0.0f;
    }
}

template <int N>
static __device__ __forceinline__ void ema_elements(const EmaTensor &t, float take, int64_t i) {
    float average[N], p[N];
    Elements<N>::get(t.average + i, average);
    Elements<N>::get(t.p + i, p);
#pragma unroll
    for (int j = 0; j < N; j++) average[j] = fmaf(take, p[j] - average[j], average[j]);
    Elements<N>::put(t.average + i, average);
}

/* take: optimizer_ema_take. */
static __device__ __forceinline__ void ema_chunk(const EmaTensor &t, const EmaScalars &s,
                                                 uint32_t number) {
    if (!is_finite(*s.clip)) return;
    const double update = (double)*s.step, warm = update > 1 ? (update - 1) / (update + 8) : 0;
    const float take = (float)(1.0 - (warm < s.decay ? warm : s.decay));
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    const int64_t end = t.n - begin < UPDATE_CHUNK ? t.n : begin + UPDATE_CHUNK;
    const int64_t whole = begin + (end - begin) / 4 * 4;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * UPDATE_THREADS) {
        ema_elements<4>(t, take, i);
    }
    if (whole + threadIdx.x < end) ema_elements<1>(t, take, whole + threadIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) ema(EmaArgs a) {
    ema_chunk(a.tensor, a.scalars, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) ema_many(EmaManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    ema_chunk(a.tensor[t], a.scalars, blockIdx.x - a.first_block[t]);
}

template <int N>
static __device__ __forceinline__ void rescale_elements(const RescaleArgs &a, float factor,
                                                        int64_t i) {
    float p[N];
    get_parameter<N>(a, i, p);
#pragma unroll
    for (int j = 0; j < N; j++) p[j] = __fmul_rn(p[j], factor);
    put_parameter<N>(a, a.copy_dtype, i, p);
}

/* Most heads have a factor of 1, in most steps: then nothing but factors is read. */
KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) rescale(RescaleArgs a) {
    if (!is_finite(*a.clip)) return;
    const int64_t begin = (int64_t)blockIdx.x * UPDATE_CHUNK;
    const int64_t end = a.n - begin < UPDATE_CHUNK ? a.n : begin + UPDATE_CHUNK;
    const int64_t width = a.inner % 4 == 0 ? 4 : 1; /* n is a multiple of inner */
    for (int64_t i = begin + width * threadIdx.x; i < end; i += width * UPDATE_THREADS) {
        const float factor = a.factors[i / a.inner % a.count];
        if (factor == 1.0f) continue;
        if (width == 4) {
            rescale_elements<4>(a, factor, i);
        } else {
            rescale_elements<1>(a, factor, i);
        }
    }
}

/* Not-a-number is larger than any number. */
static __device__ __forceinline__ float larger(float a, float b) {
    return b <= a || a != a ? a : b;
}

KERNEL_FUNCTION __launch_bounds__(LARGEST_THREADS) largest(LargestArgs a) {
    enum { ROWS = LARGEST_THREADS / LARGEST_COLUMNS };
    __shared__ float most[LARGEST_THREADS];
    const int64_t column =
        (int64_t)blockIdx.x * LARGEST_COLUMNS + (int)threadIdx.x % LARGEST_COLUMNS;
    const int first = (int)threadIdx.x / LARGEST_COLUMNS;
    float top = bits_to_float(0xff800000u);
    for (int64_t row = first; column < a.width && row < a.n_rows; row += ROWS) {
        top = larger(top, a.x[row * a.width + column]);
    }
    most[threadIdx.x] = top;
    for (int half = LARGEST_THREADS / 2; half >= LARGEST_COLUMNS; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            most[threadIdx.x] = larger(most[threadIdx.x], most[threadIdx.x + half]);
    }
    if (first > 0 || column >= a.width) return;
    top = most[threadIdx.x];
    a.out[column] = a.accumulate ? larger(a.out[column], top) : top;
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) max_n(MaxNArgs a) {
    __shared__ float most[UPDATE_THREADS];
    float top = a.accumulate ? *a.out : bits_to_float(0xff800000u);
    for (int k = 0; k < a.n_operands; k++) {
        for (int64_t i = threadIdx.x; i < a.count[k]; i += UPDATE_THREADS) {
            top = larger(top, a.in[k][i]);
        }
    }
    most[threadIdx.x] = top;
    for (int half = UPDATE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            most[threadIdx.x] = larger(most[threadIdx.x], most[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) *a.out = most[0];
}
