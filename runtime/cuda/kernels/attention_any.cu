/* Attention and its gradient without tensor cores: f32, and bf16 and f16 for what
 * attention_forward.cu and attention_backward.cu do not do: heads that are not a multiple of 8 or
 * longer than 128, values' heads of another size, scales that are not positive. Any heads up to
 * ATTENTION_ANY_HEAD.
 *
 * The same passes over 32 x 32 tiles in shared memory, as f32. 256 threads: ty, tx of 16 each; a
 * thread has rows ty and ty + 16 of a product and every 16th column from tx on.
 */
#include "runtime/cuda/kernels/attention_drop.cuh"

enum { SIDE = ATTENTION_ANY_TILE, THREADS = 256, COLUMNS = ATTENTION_ANY_HEAD / 16 };

/* Less than any score, and finite: a row that sees nothing of a tile has weights of zero there. */
static constexpr float LOWEST = -1e38f;

/* Floats from row to row of a tile: 16-byte aligned, and rows begin 4 banks apart. */
static __device__ __forceinline__ int row_stride(const AttentionSizes &s) {
    return ((s.head > s.values ? s.head : s.values) + 3) / 4 * 4 + 4;
}

/* Rows `first`... of `width` numbers as f32; zero from row `end` and from column `width` on. */
template <typename T, class Rows>
static __device__ __forceinline__ void copy_rows(float *tile, const T *from, const Rows &rows,
                                                 int width, int first, int end) {
    int stride = row_stride(rows.s);
    for (int row = (int)threadIdx.x / 32; row < SIDE; row += THREADS / 32) {
        bool there = first + row < end;
        const T *at = from + (there ? rows(first + row) : 0);
        for (int i = (int)threadIdx.x % 32; i < stride; i += 32)
            tile[row * stride + i] = there && i < width ? load(at + i) : 0;
    }
}

/* out[a][b] = row ty + 16 a of x times row tx + 16 b of y, of `width` numbers. */
static __device__ __forceinline__ void multiply_tiles(float (&out)[2][2], const AttentionSizes &s,
                                                      int width, const float *x, const float *y) {
    int stride = row_stride(s), ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) out[i / 2][i % 2] = 0;
    for (int d = 0; d < width; d += 4) {
        float4 xs[2], ys[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            xs[i] = *(const float4 *)(x + (ty + 16 * i) * stride + d);
            ys[i] = *(const float4 *)(y + (tx + 16 * i) * stride + d);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 p = xs[i / 2], q = ys[i % 2];
            float &sum = out[i / 2][i % 2];
            sum = fmaf(p.w, q.w, fmaf(p.z, q.z, fmaf(p.y, q.y, fmaf(p.x, q.x, sum))));
        }
    }
}

/* acc[a][j] += sum over k of weight(ty + 16 a, k) tile[k][tx + 16 j]; the weight of (row, k) is
 * weights[row * row_step + k * k_step]. */
static __device__ __forceinline__ void add_product(float (&acc)[2][COLUMNS],
                                                   const AttentionSizes &s, int width,
                                                   const float *weights, int row_step, int k_step,
                                                   const float *tile) {
    int stride = row_stride(s), ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    for (int k = 0; k < SIDE; k++) {
        float w0 = weights[ty * row_step + k * k_step];
        float w1 = weights[(ty + 16) * row_step + k * k_step];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            if (16 * j >= width) break;
            /* Past the row and its padding lies the next row: not stored. */
            float x = tx + 16 * j < stride ? tile[k * stride + tx + 16 * j] : 0;
            acc[0][j] = fmaf(w0, x, acc[0][j]);
            acc[1][j] = fmaf(w1, x, acc[1][j]);
        }
    }
}

template <typename T, class Rows>
static __device__ __forceinline__ void store_rows(T *to, const Rows &rows, int width, int first,
                                                  int end, const float (&acc)[2][COLUMNS],
                                                  const float (&factor)[2]) {
    int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = first + ty + 16 * i;
        if (row >= end) continue;
        T *at = to + rows(row);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            if (tx + 16 * j < width) store(at + tx + 16 * j, acc[i][j] * factor[i]);
        }
    }
}

/* tanh with a soft cap, else the product itself. */
static __device__ __forceinline__ float cap_score(const AttentionSizes &s, float product) {
    return s.cap_factor == 0 ? product : tanhf(product * s.cap_factor);
}

/* What the probabilities of a row and of keys tx and tx + 16 from `key` on are times. */
static __device__ __forceinline__ void draw_kept(const AttentionSizes &s,
                                                 const AttentionPlace &place, int row, int key,
                                                 float (&kept)[2]) {
    const int tx = (int)threadIdx.x % 16;
    kept[0] = kept[1] = 1;
    if (!attention_drops_now(s)) return;
    uint32_t words[4];
    attention_draw(s,
                   attention_drop_row(s, attention_drop_head(s, place), row) +
                       (uint32_t)(key / 8 + tx / 2 % 4),
                   words);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t word = tx < 8 ? words[2 * j] : words[2 * j + 1];
        kept[j] = attention_keeps(s, word, tx % 2) ? s.drop.factor : 0;
    }
}

template <typename T>
static __device__ __forceinline__ void forward(const AttentionForwardArgs &a) {
    DYNAMIC_SHARED(float, shared); /* q, then k and v in turn, weights [SIDE][SIDE + 1] */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const int32_t *const starts = attention_starts(s, place);
    float *q = shared, *kv = q + SIDE * row_stride(s), *weights = kv + SIDE * row_stride(s);
    const int first_row = place.tile * SIDE;
    const int end_key = attention_end_document_key(s, starts, first_row + SIDE);
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    const int64_t at = attention_first_query(s, place), key_at = attention_first_key(s, place);
    const int64_t out_at = attention_first_out(s, place),
                  value_at = attention_first_value(s, place);
    float acc[2][COLUMNS] = {}, most[2], sum[2] = {0, 0};

    most[0] = most[1] = LOWEST;
    copy_rows(q, (const T *)a.q + at, QueryRows{s}, s.head, first_row, s.rows);
    for (int first_key = attention_begin_key(s, starts, first_row, SIDE); first_key < end_key;
         first_key += SIDE) {
        float scores[2][2];
        __syncthreads();
        copy_rows(kv, (const T *)a.k + key_at, KeyRows{s}, s.head, first_key, s.keys);
        __syncthreads();
        multiply_tiles(scores, s, s.head, q, kv);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = most[i];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                bool hidden =
                    attention_hidden(s, starts, first_row + ty + 16 * i, first_key + tx + 16 * j);
                scores[i][j] =
                    hidden ? bits_to_float(0xff800000u) : cap_score(s, scores[i][j]) * s.scale_log2;
                top = fmaxf(top, scores[i][j]);
            }
            for (int bits = 8; bits > 0; bits /= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, bits));
            float factor = exp2f(most[i] - top);
            sum[i] *= factor;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) acc[i][j] *= factor;
            float kept[2];
            draw_kept(s, place, first_row + ty + 16 * i, first_key, kept);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float weight = exp2f(scores[i][j] - top);
                weights[(ty + 16 * i) * (SIDE + 1) + tx + 16 * j] = weight * kept[j];
                sum[i] += weight;
            }
            most[i] = top;
        }
        __syncthreads();
        copy_rows(kv, (const T *)a.v + value_at, ValueRows{s}, s.values, first_key, s.keys);
        __syncthreads();
        add_product(acc, s, s.values, weights, SIDE + 1, 1, kv);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = first_row + ty + 16 * i;
        for (int bits = 8; bits > 0; bits /= 2)
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], bits);
        if (tx == 0 && row < s.rows)
            a.lse[attention_lse_index(s, place, row)] =
                fmaf(most[i], 0.6931471805599453f, logf(sum[i]));
        if (a.largest && tx == 0 && row < s.rows)
            a.largest[attention_lse_index(s, place, row)] = most[i] * 0.6931471805599453f;
        sum[i] = 1.0f / sum[i];
    }
    store_rows((T *)a.o + out_at, OutRows{s}, s.values, first_row, s.rows, acc, sum);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_f32(AttentionForwardArgs a) {
    forward<float>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_bf16(AttentionForwardArgs a) {
    forward<bf16_t>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_f16(AttentionForwardArgs a) {
    forward<f16_t>(a);
}

/* The tiles of both passes of the gradient. */
struct GradientTiles {
    float *q, *d_o, *k, *v, *p, *ds; /* p and ds: [row][key], SIDE + 1 apart */
};

static __device__ __forceinline__ GradientTiles gradient_tiles(const AttentionSizes &s,
                                                               float *shared) {
    int tile = SIDE * row_stride(s);
    float *p = shared + 4 * tile;
    return {shared, shared + tile, shared + 2 * tile, shared + 3 * tile, p, p + SIDE * (SIDE + 1)};
}

/* P and dS of a tile of rows and a tile of keys. */
static __device__ __forceinline__ void weigh_tile(const AttentionBackwardArgs &a,
                                                  const AttentionPlace &place,
                                                  const GradientTiles &t, int first_row,
                                                  int first_key) {
    const AttentionSizes &s = a.sizes;
    const int32_t *const starts = attention_starts(s, place);
    int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    float scores[2][2], dp[2][2];
    multiply_tiles(scores, s, s.head, t.q, t.k);
    multiply_tiles(dp, s, s.values, t.d_o, t.v);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = first_row + ty + 16 * i;
        int64_t slot = (int64_t)place.pair * s.rows_padded + row;
        float lse2 = a.lse2[slot], delta = a.delta[slot], kept[2];
        draw_kept(s, place, row, first_key, kept);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            bool hidden = attention_hidden(s, starts, row, first_key + tx + 16 * j);
            float score = cap_score(s, scores[i][j]);
            float left = s.cap_factor == 0 ? 1 : fmaf(-score, score, 1.0f);
            float p = hidden ? 0 : exp2f(fmaf(score, s.scale_log2, -lse2));
            int at = (ty + 16 * i) * (SIDE + 1) + tx + 16 * j;
            t.p[at] = p * kept[j];
            t.ds[at] = p * left * fmaf(dp[i][j], kept[j], -delta);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void keys_gradient(const AttentionBackwardArgs &a) {
    DYNAMIC_SHARED(float, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const int32_t *const starts = attention_starts(s, place);
    const GradientTiles t = gradient_tiles(s, shared);
    const int64_t at = attention_first_query(s, place), key_at = attention_first_key(s, place);
    const int64_t out_at = attention_first_out(s, place),
                  value_at = attention_first_value(s, place);
    const int first_key = place.tile * SIDE;
    float dk[2][COLUMNS] = {}, dv[2][COLUMNS] = {};
    const float scale[2] = {s.scale, s.scale}, one[2] = {1, 1};

    copy_rows(t.k, (const T *)a.k + key_at, KeyRows{s}, s.head, first_key, s.keys);
    copy_rows(t.v, (const T *)a.v + value_at, ValueRows{s}, s.values, first_key, s.keys);
    const int end_row = attention_end_row(s, starts, first_key + SIDE);
    const int begin_row = attention_begin_document_row(s, starts, first_key, SIDE);
    for (int row = begin_row; row < end_row; row += SIDE) {
        __syncthreads();
        copy_rows(t.q, (const T *)a.q + at, QueryRows{s}, s.head, row, s.rows);
        copy_rows(t.d_o, (const T *)a.d_o + out_at, OutRows{s}, s.values, row, s.rows);
        __syncthreads();
        weigh_tile(a, place, t, row, first_key);
        __syncthreads();
        add_product(dv, s, s.values, t.p, 1, SIDE + 1, t.d_o);
        add_product(dk, s, s.head, t.ds, 1, SIDE + 1, t.q);
    }
    const KeyGradients dk_rows = {s, a.dk_row, s.head}, dv_rows = {s, a.dv_row, s.values};
    store_rows((T *)a.dk + dk_rows.first(place), dk_rows, s.head, first_key, s.keys, dk, scale);
    store_rows((T *)a.dv + dv_rows.first(place), dv_rows, s.values, first_key, s.keys, dv, one);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_keys_f32(AttentionBackwardArgs a) {
    keys_gradient<float>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_keys_bf16(AttentionBackwardArgs a) {
    keys_gradient<bf16_t>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_keys_f16(AttentionBackwardArgs a) {
    keys_gradient<f16_t>(a);
}

template <typename T>
static __device__ __forceinline__ void queries_gradient(const AttentionBackwardArgs &a) {
    DYNAMIC_SHARED(float, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const int32_t *const starts = attention_starts(s, place);
    const GradientTiles t = gradient_tiles(s, shared);
    const int64_t at = attention_first_query(s, place), key_at = attention_first_key(s, place);
    const int64_t out_at = attention_first_out(s, place),
                  value_at = attention_first_value(s, place);
    const int first_row = place.tile * SIDE;
    const int end_key = attention_end_document_key(s, starts, first_row + SIDE);
    float dq[2][COLUMNS] = {};
    const float scale[2] = {s.scale, s.scale};

    copy_rows(t.q, (const T *)a.q + at, QueryRows{s}, s.head, first_row, s.rows);
    copy_rows(t.d_o, (const T *)a.d_o + out_at, OutRows{s}, s.values, first_row, s.rows);
    for (int key = attention_begin_key(s, starts, first_row, SIDE); key < end_key; key += SIDE) {
        __syncthreads();
        copy_rows(t.k, (const T *)a.k + key_at, KeyRows{s}, s.head, key, s.keys);
        copy_rows(t.v, (const T *)a.v + value_at, ValueRows{s}, s.values, key, s.keys);
        __syncthreads();
        weigh_tile(a, place, t, first_row, key);
        __syncthreads();
        add_product(dq, s, s.head, t.ds, SIDE + 1, 1, t.k);
    }
    const QueryGradients dq_rows = {s, a.dq_row};
    store_rows((T *)a.dq + dq_rows.first(place), dq_rows, s.head, first_row, s.rows, dq, scale);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_queries_f32(AttentionBackwardArgs a) {
    queries_gradient<float>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_queries_bf16(AttentionBackwardArgs a) {
    queries_gradient<bf16_t>(a);
}

KERNEL_FUNCTION __launch_bounds__(256, 1) attention_any_queries_f16(AttentionBackwardArgs a) {
    queries_gradient<f16_t>(a);
}
