/* Attention of new positions to a cache without tensor cores: f32, and bf16 and f16 for what
 * cache_attention.cu does not do: heads over 256, such as latents, heads that are not a multiple of
 * 8, scales that are not positive. And what joins the runs of both.
 *
 * The same passes over 16 rows and 32 keys, as f32: a thread has the scores of a row and two keys,
 * then every 256th column of values for all rows. Keys and queries lie in shared memory, in rows of
 * an odd number of floats, so that 16 keys lie in different banks; values are read as they come.
 */
#include "runtime/cuda/kernels/cache_attention.cuh"

enum {
    ROWS = CACHE_ANY_ROWS,
    KEYS = CACHE_ANY_KEYS,
    THREADS = CACHE_ANY_THREADS,
    COLUMNS = (CACHE_ANY_HEAD + THREADS - 1) / THREADS,
    KEYS_EACH = KEYS * ROWS / THREADS
};

/* Less than any score, and finite: a row that sees nothing of a tile has weights of zero there. */
static constexpr float LOWEST = -1e38f;

static __device__ __forceinline__ int row_stride(const AttentionSizes &s) {
    return s.head | 1;
}

/* Rows `first`... of a head as f32; zero from `end` on. */
template <typename T, class Rows>
static __device__ __forceinline__ void copy_rows(float *to, const T *from, const Rows &rows,
                                                 int n_rows, int first, int end) {
    const int stride = row_stride(rows.s);
    for (int row = (int)threadIdx.x / 32; row < n_rows; row += THREADS / 32) {
        const bool there = first + row < end;
        const T *at = from + (there ? rows(first + row) : 0);
        for (int i = (int)threadIdx.x % 32; i < rows.s.head; i += 32)
            to[row * stride + i] = there ? load(at + i) : 0;
    }
}

/* In base 2, of this thread's row and keys; -inf where they are not seen. */
static __device__ __forceinline__ void score_keys(const AttentionSizes &s, const float *q,
                                                  const float *k, const CacheKeys &seen,
                                                  int first_key, float (&scores)[KEYS_EACH]) {
    const int key = (int)threadIdx.x % (KEYS / KEYS_EACH), stride = row_stride(s);
    const float *row = q + (int)threadIdx.x / (KEYS / KEYS_EACH) * stride;
#pragma unroll
    for (int j = 0; j < KEYS_EACH; j++) {
        const int at = key + j * (KEYS / KEYS_EACH);
        float sum = 0;
        for (int d = 0; d < s.head; d++) sum = fmaf(row[d], k[at * stride + d], sum);
        if (s.cap_factor != 0) sum = tanhf(sum * s.cap_factor);
        const bool there = first_key + at >= seen.first && first_key + at < seen.end;
        scores[j] = there ? sum * s.scale_log2 : bits_to_float(0xff800000u);
    }
}

/* The running softmax of a row, which 16 neighbours share: scores become weights in shared memory,
 * and what was added up before is to be multiplied by *factor. */
static __device__ __forceinline__ void weigh_keys(float (&scores)[KEYS_EACH], float &most,
                                                  float &sum, float *weights, float *factor) {
    float top = most;
#pragma unroll
    for (int j = 0; j < KEYS_EACH; j++) top = fmaxf(top, scores[j]);
#pragma unroll
    for (int lanes = KEYS / KEYS_EACH / 2; lanes > 0; lanes >>= 1)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
    const float less = exp2f(most - top);
    sum *= less;
#pragma unroll
    for (int j = 0; j < KEYS_EACH; j++) {
        const float weight = exp2f(scores[j] - top);
        weights[(int)threadIdx.x % (KEYS / KEYS_EACH) + j * (KEYS / KEYS_EACH)] = weight;
        sum += weight;
    }
    if (threadIdx.x % (KEYS / KEYS_EACH) == 0) *factor = less;
    most = top;
}

template <typename T>
static __device__ __forceinline__ void add_values(const AttentionSizes &s, const T *v, int n_keys,
                                                  const float *weights, const float *factors,
                                                  float (&acc)[COLUMNS][ROWS]) {
    const int64_t step = (int64_t)s.kv_heads * s.values;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const int column = (int)threadIdx.x + j * THREADS;
        if (column >= s.values) break;
#pragma unroll
        for (int r = 0; r < ROWS; r++) acc[j][r] *= factors[r];
        for (int k = 0; k < n_keys; k++) {
            const float value = load(v + k * step + column);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                acc[j][r] = fmaf(weights[r * KEYS + k], value, acc[j][r]);
        }
    }
}

static __device__ __forceinline__ void put_columns(const CacheAttentionArgs &a, const CachePlace &p,
                                                   const float (&acc)[COLUMNS][ROWS]) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const int column = (int)threadIdx.x + j * THREADS;
        if (column >= a.sizes.values) break;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int row = p.tile * ROWS + r;
            if (row >= a.sizes.rows) break;
            a.partial[cache_partial(a, p.pair, p.split, row) * a.sizes.values + column] = acc[j][r];
        }
    }
}

template <typename T> static __device__ __forceinline__ void attend(const CacheAttentionArgs &a) {
    DYNAMIC_SHARED(float, shared); /* q, k, weights [ROWS][KEYS], factors [ROWS] */
    const AttentionSizes &s = a.sizes;
    const CachePlace place = cache_place(a);
    const int own = (int)threadIdx.x / (KEYS / KEYS_EACH), row = place.tile * ROWS + own;
    float *q = shared, *k = q + ROWS * row_stride(s), *weights = k + KEYS * row_stride(s);
    float *factors = weights + ROWS * KEYS;
    const CacheKeys keys = cache_share<KEYS>(
        cache_seen_by_rows(a, place.batch, place.tile * ROWS, ROWS), place.split, a.splits);
    const CacheKeys seen = cache_seen_by_row(a, place.batch, row);
    float acc[COLUMNS][ROWS] = {}, most = LOWEST, sum = 0;
    if (keys.first < keys.end) {
        const T *from = (const T *)a.q + cache_first_query(a, place);
        copy_rows(q, from, QueryRows{s}, ROWS, place.tile * ROWS, s.rows);
    }
    for (int first_key = keys.first; first_key < keys.end; first_key += KEYS) {
        const int64_t first_value = (int64_t)first_key * s.kv_heads * s.values;
        float scores[KEYS_EACH];
        __syncthreads();
        copy_rows(k, (const T *)a.k + cache_first_key(a, place, s.head), KeyRows{s}, KEYS,
                  first_key, keys.end);
        __syncthreads();
        score_keys(s, q, k, seen, first_key, scores);
        weigh_keys(scores, most, sum, weights + own * KEYS, factors + own);
        __syncthreads();
        add_values(s, (const T *)a.v + cache_first_key(a, place, s.values) + first_value,
                   min((int)KEYS, keys.end - first_key), weights, factors, acc);
    }
#pragma unroll
    for (int lanes = KEYS / KEYS_EACH / 2; lanes > 0; lanes >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % (KEYS / KEYS_EACH) == 0 && row < s.rows)
        ((float2 *)a.statistics)[cache_partial(a, place.pair, place.split, row)] =
            make_float2(most, sum);
    if (keys.first < keys.end) put_columns(a, place, acc);
}

/* A block for each row: the runs' softmaxes as one, in the runs' order. */
template <typename T> static __device__ __forceinline__ void join(const CacheAttentionArgs &a) {
    const AttentionSizes &s = a.sizes;
    const int64_t pair = blockIdx.x / (unsigned)s.rows;
    const int row = (int)(blockIdx.x % (unsigned)s.rows);
    const int position = attention_position(s, row);
    const int64_t batch = pair / s.kv_heads;
    const int64_t to = ((batch * s.seq + position) * s.kv_heads + pair % s.kv_heads) * s.group +
                       row - position * s.group;
    const float2 *statistics = (const float2 *)a.statistics + cache_partial(a, pair, 0, row);
    float most = LOWEST, total = 0;
    for (int i = 0; i < a.splits; i++) most = fmaxf(most, statistics[(int64_t)i * s.rows].x);
    for (int i = 0; i < a.splits; i++) {
        const float2 of = statistics[(int64_t)i * s.rows];
        if (of.y != 0) total = fmaf(of.y, exp2f(of.x - most), total);
    }
    for (int column = (int)threadIdx.x; column < s.values; column += (int)blockDim.x) {
        float sum = 0;
        for (int i = 0; i < a.splits; i++) {
            const float2 of = statistics[(int64_t)i * s.rows];
            const int64_t at = cache_partial(a, pair, i, row) * s.values + column;
            if (of.y != 0) sum = fmaf(a.partial[at], exp2f(of.x - most), sum);
        }
        store((T *)a.o + to * s.values + column, total != 0 ? sum / total : 0.0f);
    }
    if (threadIdx.x == 0)
        a.lse[to] = total != 0 ? 0.6931471805599453f * (most + log2f(total)) : 0.0f;
}

#define ANY_KERNELS(T, suffix)                                                                     \
    KERNEL_FUNCTION __launch_bounds__(THREADS)                                                     \
        cache_attention_any_##suffix(CacheAttentionArgs a) {                                       \
        attend<T>(a);                                                                              \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(THREADS)                                                     \
        cache_attention_join_##suffix(CacheAttentionArgs a) {                                      \
        join<T>(a);                                                                                \
    }
ANY_KERNELS(float, f32)
ANY_KERNELS(bf16_t, bf16)
ANY_KERNELS(f16_t, f16)
