/* The gradient of attention on tensor cores: bf16 or f16 in and out, f32 in between.
 *
 *   P = 2^(scale_log2 q k^T - lse2),  dS = P (do v^T - delta),  delta = rowsum(o do)   (Dao 2023)
 *   dv = P^T do,  dk = scale dS^T q,  dq = scale dS k
 *
 * Three launches: attention_delta (rows' delta and lse2), attention_keys (dk and dv: a block owns
 * 128 keys and passes over the rows that see them, a group's heads included), attention_queries
 * (dq: a block owns 128 rows and passes over their keys). Both compute the scores: 7 products
 * where 5 would do if one kernel summed dq over blocks in memory. But such sums need either
 * floating-point atomics, whose order changes from run to run, or blocks that wait for each other
 * and twice q's memory in f32 (attention_wgmma_joint.cu); here every sum has one owner and one
 * order, and nothing waits.
 *
 * A warp of attention_keys computes scores transposed, [keys, rows], so that P^T and dS^T are A
 * operands as they stand in its registers.
 *
 * 14 rows seq head FLOPs per (batch, kv_head) are executed in full, 10 of them counted as useful;
 * half with a causal mask.
 */
#include "runtime/cuda/kernels/attention_drop.cuh"
#include "runtime/cuda/kernels/attention_gradient.cuh"
#include "runtime/cuda/kernels/vector.cuh"

enum { BACKWARD_TILE = ATTENTION_TILE };

/* sum + the products of 16 bytes of x and y, in order. */
template <typename T>
static __device__ __forceinline__ float add_products(uint4 x, uint4 y, float sum) {
    float xs[VectorOf<T>::N], ys[VectorOf<T>::N];
    take_apart<T>(x, xs);
    take_apart<T>(y, ys);
#pragma unroll
    for (int i = 0; i < VectorOf<T>::N; i++) sum = fmaf(xs[i], ys[i], sum);
    return sum;
}

/* delta, and lse in base 2: LANES threads per row, 256 threads, rows_padded LANES / 256 blocks per
 * (batch, kv_head). */
template <typename T, int LANES>
static __device__ __forceinline__ void compute_delta(const AttentionBackwardArgs &a) {
    const AttentionSizes &s = a.sizes;
    int lane = (int)threadIdx.x % LANES, blocks = s.rows_padded / (256 / LANES);
    int pair = (int)blockIdx.x / blocks;
    int row = (int)blockIdx.x % blocks * (256 / LANES) + (int)threadIdx.x / LANES;
    int64_t slot = (int64_t)pair * s.rows_padded + row;
    AttentionPlace place = {0, pair / s.kv_heads, pair % s.kv_heads, pair};
    float delta = 0;
    if (row < s.rows) {
        int64_t at = attention_first_out(s, place) + OutRows{s}(row);
        const T *o = (const T *)a.o + at, *d_o = (const T *)a.d_o + at;
        if (sizeof(T) == 2 && s.values % 8 == 0) {
            for (int i = lane * 8; i < s.values; i += LANES * 8)
                delta = add_products<T>(*(const uint4 *)(o + i), *(const uint4 *)(d_o + i), delta);
        } else {
            for (int i = lane; i < s.values; i += LANES)
                delta = fmaf(load(o + i), load(d_o + i), delta);
        }
    }
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, bits);
    if (lane) return;
    if (a.turns && slot % ATTENTION_WGMMA_KEYS_STEP == 0)
        a.turns[slot / ATTENTION_WGMMA_KEYS_STEP] = 0;
    if (a.turns && slot == 0) *a.taken = 0;
    a.delta[slot] = delta;
    a.lse2[slot] = row < s.rows ? a.lse[attention_lse_index(s, place, row)] * 1.4426950408889634f
                                : bits_to_float(0x7f800000u);
}

#define DELTA_KERNEL(T, suffix)                                                                    \
    KERNEL_FUNCTION __launch_bounds__(256) attention_delta_##suffix(AttentionBackwardArgs a) {     \
        compute_delta<T, ATTENTION_DELTA_LANES>(a);                                                \
    }
DELTA_KERNEL(float, f32)
DELTA_KERNEL(bf16_t, bf16)
DELTA_KERNEL(f16_t, f16)

/* P^T and dS^T of a warp's keys and N rows, as A operands; s and dp: [16 MT, N]. */
template <int MT, int N>
static __device__ __forceinline__ void
transposed_weights(const AttentionSizes &z, const float *lse2s, const float *deltas,
                   float (&s)[MT][N / 8][4], float (&dp)[MT][N / 8][4]) {
    int t = thread_anew() & 3;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float2 lse2 = *(const float2 *)(lse2s + n * 8 + t * 2);
        float2 delta = *(const float2 *)(deltas + n * 8 + t * 2);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = exp2_fast(fmaf(s[m][n][i], z.scale_log2, i % 2 ? -lse2.y : -lse2.x));
                s[m][n][i] = weight;
                dp[m][n][i] = weight * (dp[m][n][i] - (i % 2 ? delta.y : delta.x));
            }
        }
    }
}

/* With a soft cap: dp of a warp's keys and N rows, from scores as they are capped. */
template <int MT, int N>
static __device__ __forceinline__ void cap_transposed(const AttentionSizes &z, const float *deltas,
                                                      const float (&s)[MT][N / 8][4],
                                                      float (&dp)[MT][N / 8][4]) {
    if (z.cap_factor == 0) return;
    int t = thread_anew() & 3;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float2 delta = *(const float2 *)(deltas + n * 8 + t * 2);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = attention_capped(s[m][n][i], dp[m][n][i], i % 2 ? delta.y : delta.x);
        }
    }
}

/* DROP, here and below: some probabilities are dropped. Their P is 0 for dv, as is their dP; delta,
 * rowsum(o do), is that of what is kept. */
template <typename T, int HEAD, bool DROP>
static __device__ __forceinline__ void keys_gradient(const AttentionBackwardArgs &a) {
    constexpr int THREADS = 128, WARP_KEYS = BACKWARD_TILE / 4, MT = WARP_KEYS / 16;
    constexpr int N = ROW_TILE / 2; /* rows at a time: registers */
    constexpr int KEY_BYTES = BACKWARD_TILE * HEAD * 2, ROW_BYTES = ROW_TILE * HEAD * 2;
    constexpr int BUFFER_BYTES = 2 * ROW_BYTES + 2 * ROW_TILE * 4;
    /* k, v, then two of (q, do, lse2 and delta) */
    DYNAMIC_SHARED(unsigned char, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const SharedAddress k_tile = shared_address(shared), v_tile = k_tile + KEY_BYTES;
    const SharedAddress buffers = v_tile + KEY_BYTES;
    const int tile_key = place.tile * BACKWARD_TILE;
    const int64_t base = attention_first_query(s, place);
    const void *const kv[2] = {a.k, a.v}, *const rows[2] = {a.q, a.d_o};
    float dk[MT][HEAD / 8][4], dv[MT][HEAD / 8][4];

    auto copy_rows = [&](int first_row, int buffer) {
        SharedAddress to = buffers + buffer * BUFFER_BYTES;
        tile_copy_in<RowTile<HEAD>, ROW_TILE, THREADS>(to, rows, base, QueryRows{s}, first_row,
                                                       s.rows);
        copy_statistics<ROW_TILE>(to + 2 * ROW_BYTES, a, place, first_row);
        copy_async_commit();
    };
    const int32_t *const starts = attention_starts(s, place);
    int first_row = attention_begin_document_row(s, starts, tile_key, ROW_TILE);
    const int end_row = attention_end_row(s, starts, tile_key + BACKWARD_TILE);
    if (first_row < end_row) { /* of part of the queries none may see these keys */
        tile_copy_in<RowTile<HEAD>, BACKWARD_TILE, THREADS>(
            k_tile, kv, attention_first_key(s, place), KeyRows{s}, tile_key, s.keys);
        copy_rows(first_row, 0);
    }
    clear_fragments(dk);
    clear_fragments(dv);
    for (int buffer = 0; first_row < end_row; first_row += ROW_TILE, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_row + ROW_TILE < end_row) copy_rows(first_row + ROW_TILE, buffer ^ 1);
        const int in_tile = thread_anew() / 32 * WARP_KEYS, key = tile_key + in_tile;
        const SharedAddress q_tile = buffers + buffer * BUFFER_BYTES, do_tile = q_tile + ROW_BYTES;
        const float *statistics =
            (const float *)(shared + 2 * KEY_BYTES + buffer * BUFFER_BYTES + 2 * ROW_BYTES);
#pragma unroll 1
        for (int part = 0; part < ROW_TILE; part += N) {
            const int row = first_row + part;
            if (key >= s.keys || attention_apart(s, starts, row, N, key, WARP_KEYS)) continue;
            float p[MT][N / 8][4], ds[MT][N / 8][4];
            uint32_t packed[N / 16][MT][4];
            clear_fragments(p);
            clear_fragments(ds);
            multiply_rows<T, MT, N>(p, TileLane<HEAD>::by_rows(k_tile, in_tile),
                                    TileLane<HEAD>::by_columns(q_tile, part));
            attention_cap_scores(s, p);
            mask_transposed<MT, N>(s, starts, row, key, p);
            mask_transposed_later<MT, N>(s, starts, row, key, p);
            multiply_rows<T, MT, N>(ds, TileLane<HEAD>::by_rows(v_tile, in_tile),
                                    TileLane<HEAD>::by_columns(do_tile, part));
            const float *lse2 = statistics + part, *delta = lse2 + ROW_TILE;
            [[maybe_unused]] uint32_t kept = ~0u;
            if constexpr (DROP) {
                if (attention_drops_now(s)) {
                    kept = attention_kept_transposed<MT, N>(s, attention_drop_head(s, place), row,
                                                            key);
                    attention_keep(kept, s.drop.factor, ds);
                }
            }
            cap_transposed<MT, N>(s, delta, p, ds);
            transposed_weights<MT, N>(s, lse2, delta, p, ds);
            if constexpr (DROP) attention_keep(kept, 1.0f, p);
            pack_fragments<T>(packed, p);
            multiply_fragments<T, MT, N>(dv, packed, TileLane<HEAD>::by_rows(do_tile, part));
            pack_fragments<T>(packed, ds);
            multiply_fragments<T, MT, N>(dk, packed, TileLane<HEAD>::by_rows(q_tile, part));
        }
    }
    /* Out through this warp's rows of k and v, which no other warp reads. */
    __syncwarp();
    const AttentionPlace last = attention_place(s, renew((int)blockIdx.x), false);
    const int in_tile = thread_anew() / 32 * WARP_KEYS, key = last.tile * BACKWARD_TILE + in_tile;
    const KeyGradients dk_rows = {s, a.dk_row, s.head}, dv_rows = {s, a.dv_row, s.head};
    float factors[MT][2];
    for (int m = 0; m < MT; m++) factors[m][0] = factors[m][1] = s.scale;
    tile_put<T, RowTile<HEAD>>(shared, in_tile, 0, dk, factors);
    const float kept = DROP && attention_drops_now(s) ? s.drop.factor : 1;
    for (int m = 0; m < MT; m++) factors[m][0] = factors[m][1] = kept;
    tile_put<T, RowTile<HEAD>>(shared + KEY_BYTES, in_tile, 0, dv, factors);
    __syncwarp();
    tile_copy_out<RowTile<HEAD>, WARP_KEYS>(shared, in_tile, (T *)a.dk + dk_rows.first(last),
                                            dk_rows, key, s.keys);
    tile_copy_out<RowTile<HEAD>, WARP_KEYS>(shared + KEY_BYTES, in_tile,
                                            (T *)a.dv + dv_rows.first(last), dv_rows, key, s.keys);
}

/* Heads over 64: eight warps, two of them for 16 MT keys. Each of the two computes the weights of
 * half of the ROWS rows that are there at a time, and then dk and dv of half of the columns, every
 * second 16; they exchange weights, as the fragments that they are, through shared memory. With 16
 * keys of its own and no partner, a warp would read a fragment of q and do for every product
 * instead of every second one, and wait for shared memory half of the time. */
template <typename T, class Heads, int MT, int ROWS, bool DROP>
static __device__ __forceinline__ void keys_gradient_by_two(const AttentionBackwardArgs &a) {
    constexpr int HEAD = Heads::HEAD, VALUE = Heads::VALUE, THREADS = 256, N = ROWS / 2;
    constexpr int KEYS = 16 * MT, TILE = 4 * KEYS, OUT_KEYS = TILE / 8;
    constexpr int K_BYTES = TILE * HEAD * 2, KEY_BYTES = K_BYTES + TILE * VALUE * 2;
    constexpr int Q_BYTES = ROWS * HEAD * 2, ROW_BYTES = Q_BYTES + ROWS * VALUE * 2;
    constexpr int BUFFER_BYTES = ROW_BYTES + 2 * ROWS * 4;
    constexpr int FRAGMENTS = N / 16 * MT; /* of weights; as many of their gradients */
    typedef uint32_t Fragments[N / 16][MT][4];
    /* k, v, two of (q, do, lse2 and delta), weights to exchange: fragments of 32 uint4 */
    DYNAMIC_SHARED(unsigned char, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const SharedAddress k_tile = shared_address(shared), v_tile = k_tile + K_BYTES;
    const SharedAddress buffers = k_tile + KEY_BYTES;
    const int tile_key = place.tile * TILE;
    const AttentionBase base = attention_query_base<Heads>(s, place);
    float dk[MT][HEAD / 16][4], dv[MT][VALUE / 16][4];

    auto copy_rows = [&](int first_row, int buffer) {
        SharedAddress to = buffers + buffer * BUFFER_BYTES;
        attention_copy_rows<Heads, ROWS, THREADS>(to, s, a.q, a.d_o, base, first_row);
        copy_statistics<ROWS>(to + ROW_BYTES, a, place, first_row);
        copy_async_commit();
    };
    const int32_t *const starts = attention_starts(s, place);
    int first_row = attention_begin_document_row(s, starts, tile_key, ROWS);
    const int end_row = attention_end_row(s, starts, tile_key + TILE);
    if (first_row < end_row) { /* of part of the queries none may see these keys */
        attention_copy_keys<Heads, TILE, THREADS>(k_tile, s, a.k, a.v,
                                                  attention_key_base<Heads>(s, place), tile_key);
        copy_rows(first_row, 0);
    }
    clear_fragments(dk);
    clear_fragments(dv);
    for (int buffer = 0; first_row < end_row; first_row += ROWS, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_row + ROWS < end_row) copy_rows(first_row + ROWS, buffer ^ 1);
        const int thread = thread_anew(), warp = thread / 32, lane = thread % 32, half = warp % 2;
        const int in_tile = warp / 2 * KEYS, key = tile_key + in_tile, row = first_row + half * N;
        const SharedAddress q_tile = buffers + buffer * BUFFER_BYTES, do_tile = q_tile + Q_BYTES;
        uint4 *exchange = (uint4 *)(shared + KEY_BYTES + 2 * BUFFER_BYTES) + lane;
        Fragments p, ds;
        if (key >= s.keys || attention_apart(s, starts, row, N, key, KEYS)) {
#pragma unroll
            for (int i = 0; i < FRAGMENTS * 4; i++)
                p[i / 4 / MT][i / 4 % MT][i % 4] = ds[i / 4 / MT][i / 4 % MT][i % 4] = 0;
        } else {
            const float *lse2 =
                (const float *)(shared + KEY_BYTES + buffer * BUFFER_BYTES + ROW_BYTES) + half * N;
            float scores[MT][N / 8][4], dp[MT][N / 8][4];
            clear_fragments(scores);
            clear_fragments(dp);
            multiply_rows<T, MT, N>(scores, TileLane<HEAD>::by_rows(k_tile, in_tile),
                                    TileLane<HEAD>::by_columns(q_tile, half * N));
            attention_cap_scores(s, scores);
            mask_transposed<MT, N>(s, starts, row, key, scores);
            mask_transposed_later<MT, N>(s, starts, row, key, scores);
            multiply_rows<T, MT, N>(dp, TileLane<VALUE>::by_rows(v_tile, in_tile),
                                    TileLane<VALUE>::by_columns(do_tile, half * N));
            [[maybe_unused]] uint32_t kept = ~0u;
            if constexpr (DROP) {
                if (attention_drops_now(s)) {
                    kept = attention_kept_transposed<MT, N>(s, attention_drop_head(s, place), row,
                                                            key);
                    attention_keep(kept, s.drop.factor, dp);
                }
            }
            cap_transposed<MT, N>(s, lse2 + ROWS, scores, dp);
            transposed_weights<MT, N>(s, lse2, lse2 + ROWS, scores, dp);
            if constexpr (DROP) attention_keep(kept, 1.0f, scores);
            pack_fragments<T>(p, scores);
            pack_fragments<T>(ds, dp);
        }
#pragma unroll
        for (int i = 0; i < FRAGMENTS; i++) {
            const uint32_t *w = p[i / MT][i % MT], *x = ds[i / MT][i % MT];
            uint4 *to = exchange + (warp * 2 * FRAGMENTS + i) * 32;
            to[0] = make_uint4(w[0], w[1], w[2], w[3]);
            to[FRAGMENTS * 32] = make_uint4(x[0], x[1], x[2], x[3]);
        }
        __syncthreads();
        if (key >= s.keys || attention_apart(s, starts, first_row, ROWS, key, KEYS)) continue;
#pragma unroll
        for (int turn = 0; turn < 2; turn++) { /* own rows, then the other warp's */
            const int from = (turn ? half ^ 1 : half) * N;
            multiply_fragments<T, MT, N, 2>(
                dv, p, TileLane<VALUE>::by_rows(do_tile, from).among_pairs(half));
            multiply_fragments<T, MT, N, 2>(
                dk, ds, TileLane<HEAD>::by_rows(q_tile, from).among_pairs(half));
            if (turn) break;
#pragma unroll
            for (int i = 0; i < FRAGMENTS; i++) {
                uint32_t *w = p[i / MT][i % MT], *x = ds[i / MT][i % MT];
                const uint4 *at = exchange + ((warp ^ 1) * 2 * FRAGMENTS + i) * 32;
                uint4 y = at[0], z = at[FRAGMENTS * 32];
                w[0] = y.x, w[1] = y.y, w[2] = y.z, w[3] = y.w;
                x[0] = z.x, x[1] = z.y, x[2] = z.z, x[3] = z.w;
            }
        }
    }
    /* Out through k and v, which nobody has read since the last barrier. */
    const AttentionPlace last = attention_place(s, renew((int)blockIdx.x), false);
    const int warp = thread_anew() / 32, key = last.tile * TILE + warp * OUT_KEYS;
    const KeyGradients dk_rows = {s, a.dk_row, s.head},
                       dv_rows = {s, a.dv_row, Heads::EVEN ? s.head : s.values};
    float factors[MT][2];
    for (int m = 0; m < MT; m++) factors[m][0] = factors[m][1] = s.scale;
    tile_put<T, RowTile<HEAD>, 2>(shared, warp / 2 * KEYS, warp % 2 * 2, dk, factors);
    const float kept = DROP && attention_drops_now(s) ? s.drop.factor : 1;
    for (int m = 0; m < MT; m++) factors[m][0] = factors[m][1] = kept;
    tile_put<T, RowTile<VALUE>, 2>(shared + K_BYTES, warp / 2 * KEYS, warp % 2 * 2, dv, factors);
    __syncthreads();
    tile_copy_out<RowTile<HEAD>, OUT_KEYS>(shared, warp * OUT_KEYS, (T *)a.dk + dk_rows.first(last),
                                           dk_rows, key, s.keys);
    tile_copy_out<RowTile<VALUE>, OUT_KEYS>(shared + K_BYTES, warp * OUT_KEYS,
                                            (T *)a.dv + dv_rows.first(last), dv_rows, key, s.keys);
}

/* dS of a warp's 16 MT rows and KEYS keys, from scores and products with do. */
template <int MT, int KEYS>
static __device__ __forceinline__ void
weights_gradient(const AttentionSizes &z, const float (&lse2)[MT][2], const float (&delta)[MT][2],
                 float (&s)[MT][KEYS / 8][4], const float (&dp)[MT][KEYS / 8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = exp2_fast(fmaf(s[m][n][i], z.scale_log2, -lse2[m][i / 2]));
                s[m][n][i] = weight * (dp[m][n][i] - delta[m][i / 2]);
            }
        }
    }
}

/* With a soft cap: their dp, from scores as they are capped. */
template <int MT, int KEYS>
static __device__ __forceinline__ void
cap_gradient(const AttentionSizes &z, const float (&delta)[MT][2],
             const float (&s)[MT][KEYS / 8][4], float (&dp)[MT][KEYS / 8][4]) {
    if (z.cap_factor == 0) return;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = attention_capped(s[m][n][i], dp[m][n][i], delta[m][i / 2]);
        }
    }
}

/* MT: rows of a warp in units of 16. */
template <typename T, class Heads, int MT, int KEYS, bool DROP>
static __device__ __forceinline__ void queries_gradient(const AttentionBackwardArgs &a) {
    constexpr int HEAD = Heads::HEAD, VALUE = Heads::VALUE;
    constexpr int WARP_ROWS = 16 * MT, THREADS = BACKWARD_TILE / WARP_ROWS * 32;
    constexpr int Q_BYTES = BACKWARD_TILE * HEAD * 2, K_BYTES = KEYS * HEAD * 2;
    constexpr int KEY_BYTES = K_BYTES + KEYS * VALUE * 2;
    DYNAMIC_SHARED(unsigned char, shared); /* q, do, then two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), do_tile = q_tile + Q_BYTES;
    const SharedAddress k_tile = do_tile + BACKWARD_TILE * VALUE * 2;
    const int tile_row = place.tile * BACKWARD_TILE;
    const int32_t *const starts = attention_starts(s, place);
    const int end_key = attention_end_document_key(s, starts, tile_row + BACKWARD_TILE);
    int first_key = attention_begin_key(s, starts, tile_row, KEYS);
    const AttentionBase base = attention_key_base<Heads>(s, place);
    float acc[MT][HEAD / 8][4], lse2[MT][2], delta[MT][2];

    attention_copy_rows<Heads, BACKWARD_TILE, THREADS>(
        q_tile, s, a.q, a.d_o, attention_query_base<Heads>(s, place), tile_row);
    attention_copy_keys<Heads, KEYS, THREADS>(k_tile + (first_key / KEYS & 1) * KEY_BYTES, s, a.k,
                                              a.v, base, first_key);
    copy_async_commit();
    clear_fragments(acc);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        int row = tile_row + (int)threadIdx.x / 32 * WARP_ROWS + i * 8 + (int)threadIdx.x % 32 / 4;
        int64_t slot = (int64_t)place.pair * s.rows_padded + row;
        lse2[i / 2][i % 2] = a.lse2[slot];
        delta[i / 2][i % 2] = a.delta[slot];
    }
    for (; first_key < end_key; first_key += KEYS) {
        const int buffer = first_key / KEYS & 1;
        copy_async_wait<0>();
        __syncthreads();
        if (first_key + KEYS < end_key) {
            attention_copy_keys<Heads, KEYS, THREADS>(k_tile + (buffer ^ 1) * KEY_BYTES, s, a.k,
                                                      a.v, base, first_key + KEYS);
            copy_async_commit();
        }
        const int thread = thread_anew(), in_tile = thread / 32 * WARP_ROWS;
        const int row = tile_row + in_tile;
        if (row >= s.rows || attention_apart(s, starts, row, WARP_ROWS, first_key, KEYS)) continue;
        const SharedAddress keys = k_tile + buffer * KEY_BYTES;
        float ds[MT][KEYS / 8][4], dp[MT][KEYS / 8][4];
        uint32_t packed[KEYS / 16][MT][4];
        clear_fragments(ds);
        clear_fragments(dp);
        multiply_rows<T, MT, KEYS>(ds, TileLane<HEAD>::by_rows(q_tile, in_tile),
                                   TileLane<HEAD>::by_columns(keys, 0));
        attention_cap_scores(s, ds);
        attention_mask_scores(s, starts, row, first_key, ds);
        attention_mask_later_documents(s, starts, row, first_key, ds);
        multiply_rows<T, MT, KEYS>(dp, TileLane<VALUE>::by_rows(do_tile, in_tile),
                                   TileLane<VALUE>::by_columns(keys + K_BYTES, 0));
        if constexpr (DROP) {
            if (attention_drops_now(s))
                attention_drop(s, attention_drop_head(s, place), row, first_key, s.drop.factor, dp);
        }
        cap_gradient<MT, KEYS>(s, delta, ds, dp);
        weights_gradient<MT, KEYS>(s, lse2, delta, ds, dp);
        pack_fragments<T>(packed, ds);
        multiply_fragments<T, MT, KEYS>(acc, packed, TileLane<HEAD>::by_rows(keys, 0));
    }
    const AttentionPlace last = attention_place(s, renew((int)blockIdx.x), s.causal);
    const int in_tile = thread_anew() / 32 * WARP_ROWS;
    float factors[MT][2];
    for (int m = 0; m < MT; m++) factors[m][0] = factors[m][1] = s.scale;
    __syncwarp();
    tile_put<T, RowTile<HEAD>>(shared, in_tile, 0, acc, factors);
    __syncwarp();
    const QueryGradients dq_rows = {s, a.dq_row};
    tile_copy_out<RowTile<HEAD>, WARP_ROWS>(shared, in_tile, (T *)a.dq + dq_rows.first(last),
                                            dq_rows, last.tile * BACKWARD_TILE + in_tile, s.rows);
}

#define KEYS_KERNEL(name, threads, blocks, body)                                                   \
    KERNEL_FUNCTION __launch_bounds__(threads, blocks)                                             \
        attention_keys_##name(AttentionBackwardArgs a) {                                           \
        body(a);                                                                                   \
    }
#define QUERIES_KERNEL(name, T, head, value, mt, keys, threads, blocks, drop)                      \
    KERNEL_FUNCTION __launch_bounds__(threads, blocks)                                             \
        attention_queries_##name(AttentionBackwardArgs a) {                                        \
        queries_gradient<T, AttentionHeads<head, value>, mt, keys, drop>(a);                       \
    }
#define BACKWARD_KERNELS(T, suffix)                                                                \
    KEYS_KERNEL(32_##suffix, 128, 2, (keys_gradient<T, 32, false>))                                \
    KEYS_KERNEL(64_##suffix, 128, 2, (keys_gradient<T, 64, false>))                                \
    KEYS_KERNEL(128_##suffix, 256, 1,                                                              \
                (keys_gradient_by_two<T, AttentionHeads<128, 128>, 2, ROW_TILE, false>))           \
    KEYS_KERNEL(192_##suffix, 256, 1,                                                              \
                (keys_gradient_by_two<T, AttentionHeads<192, 128>, 2, ATTENTION_WIDE_STEP,         \
                                      false>))                                                     \
    KEYS_KERNEL(256_##suffix, 256, 1,                                                              \
                (keys_gradient_by_two<T, AttentionHeads<256, 256>, 1, ATTENTION_WIDE_STEP,         \
                                      false>))                                                     \
    KEYS_KERNEL(64_drop_##suffix, 128, 2, (keys_gradient<T, 64, true>))                            \
    KEYS_KERNEL(128_drop_##suffix, 256, 1,                                                         \
                (keys_gradient_by_two<T, AttentionHeads<128, 128>, 2, ROW_TILE, true>))            \
    QUERIES_KERNEL(32_##suffix, T, 32, 32, 2, ATTENTION_QUERIES_STEP, 128, 2, false)               \
    QUERIES_KERNEL(64_##suffix, T, 64, 64, 2, ATTENTION_QUERIES_STEP, 128, 3, false)               \
    QUERIES_KERNEL(128_##suffix, T, 128, 128, 2, ATTENTION_QUERIES_STEP, 128, 2, false)            \
    QUERIES_KERNEL(192_##suffix, T, 192, 128, 1, ATTENTION_QUERIES_STEP_192, 256, 1, false)        \
    QUERIES_KERNEL(256_##suffix, T, 256, 256, 1, ATTENTION_QUERIES_STEP_256, 256, 1, false)        \
    QUERIES_KERNEL(64_drop_##suffix, T, 64, 64, 2, ATTENTION_QUERIES_STEP, 128, 3, true)           \
    QUERIES_KERNEL(128_drop_##suffix, T, 128, 128, 2, ATTENTION_QUERIES_STEP, 128, 2, true)
BACKWARD_KERNELS(bf16_t, bf16)
BACKWARD_KERNELS(f16_t, f16)
