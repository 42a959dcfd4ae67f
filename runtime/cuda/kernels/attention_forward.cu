/* o = softmax(scale q k^T + mask) v on tensor cores, bf16 or f16 in and out, f32 in between.
 *
 *   Dao 2023 (FlashAttention-2): one pass over the keys with a running softmax;
 *   Ainslie et al. 2023 (grouped queries): a group's heads are rows of the same product.
 *
 * A block of four warps owns 128 query rows of one (batch, kv_head), each warp 32; it passes over
 * tiles of KEYS keys and values, double-buffered by cp.async. A warp's 32 rows share each fragment
 * of keys: with 16 the shared memory would be slower than the tensor cores. Keys come in ascending
 * order, so that every row sees one in the first tile.
 *
 * 4 rows seq head FLOPs per (batch, kv_head) in full, half of that with a causal mask (rows = seq
 * group): for Llama 8B at seq 8192 (32 query heads of 128), 0.55 TFLOP a layer and sequence.
 */
#include "runtime/cuda/kernels/attention.cuh"

enum { FORWARD_ROWS = ATTENTION_TILE, FORWARD_THREADS = 128, WARP_ROWS = 32 };

/* The running softmax of a thread's four rows: 8 m + 4 half + g in its warp's 32. `most` lags
 * behind the true maximum by up to 2^RESCALE_AT in weights: rescaling is then rare, and division by
 * the sum makes the result exact all the same. Sums are of this lane's columns until the end. */
struct RunningSoftmax {
    float most[2][2], sum[2][2];
};

static constexpr float RESCALE_AT = 8.0f;

/* Scores of 16 rows become weights; accumulators are rescaled where a maximum has grown. */
template <int KEYS, int HEAD>
static __device__ __forceinline__ void add_weights(float (&most)[2], float (&sum)[2],
                                                   float scale_log2, float (&scores)[KEYS / 8][4],
                                                   float (&acc)[HEAD / 8][4]) {
    float factor[2];
    bool grown = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = scores[0][2 * half], old = most[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        bool grows = (top - old) * scale_log2 > RESCALE_AT;
        most[half] = grows ? top : old;
        factor[half] = grows ? exp2_fast((old - top) * scale_log2) : 1.0f;
        grown |= grows;
    }
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) acc[n][i] *= factor[i / 2];
        }
        sum[0] *= factor[0];
        sum[1] *= factor[1];
    }
    float shift[2] = {most[0] * scale_log2, most[1] * scale_log2};
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float weight = exp2_fast(fmaf(scores[n][i], scale_log2, -shift[i / 2]));
            scores[n][i] = weight;
            sum[i / 2] += weight;
        }
    }
}

/* Divides by the sums, writes o through this warp's rows of the tile of queries, and lse. */
template <typename T, int HEAD>
static __device__ __forceinline__ void
finish_rows(const AttentionForwardArgs &a, const AttentionPlace &place, unsigned char *q_tile,
            const RunningSoftmax &run, const float (&acc)[2][HEAD / 8][4]) {
    const AttentionSizes &s = a.sizes;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int first_row = place.tile * FORWARD_ROWS + warp * WARP_ROWS;
    float factor[2][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = run.sum[m][half];
            int row = first_row + 16 * m + 8 * half + lane / 4;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            factor[m][half] = 1.0f / sum;
            if (lane % 4 == 0 && row < s.rows) {
                a.lse[attention_lse_index(s, place, row)] =
                    fmaf(run.most[m][half], s.scale, logf(sum));
            }
        }
    }
    __syncwarp();
    tile_put<T, HEAD>(q_tile, warp * WARP_ROWS, 0, acc, factor);
    __syncwarp();
    tile_copy_out<WARP_ROWS, HEAD>(q_tile, warp * WARP_ROWS,
                                   (T *)a.o + attention_first_query(s, place), QueryRows{s},
                                   first_row, s.rows);
}

template <typename T, int HEAD, int KEYS>
static __device__ __forceinline__ void forward(const AttentionForwardArgs &a) {
    constexpr int Q_BYTES = FORWARD_ROWS * HEAD * 2, KEY_BYTES = KEYS * HEAD * 2;
    DYNAMIC_SHARED(unsigned char, shared); /* q, then two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), k_tile = q_tile + Q_BYTES;
    const int tile_row = place.tile * FORWARD_ROWS;
    const int visible = attention_visible(s, tile_row + FORWARD_ROWS);
    const int64_t base = attention_first_key(s, place);
    const void *const q[1] = {a.q}, *const kv[2] = {a.k, a.v};

    tile_copy_in<FORWARD_ROWS, HEAD, FORWARD_THREADS>(q_tile, q, attention_first_query(s, place),
                                                      QueryRows{s}, tile_row, s.rows);
    tile_copy_in<KEYS, HEAD, FORWARD_THREADS>(k_tile, kv, base, KeyRows{s}, 0, s.seq);
    copy_async_commit();

    RunningSoftmax run;
    float acc[2][HEAD / 8][4];
    clear_fragments(acc);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        run.most[m][0] = run.most[m][1] = bits_to_float(0xff800000u);
        run.sum[m][0] = run.sum[m][1] = 0;
    }
    for (int first_key = 0, buffer = 0; first_key < visible; first_key += KEYS, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_key + KEYS < visible) {
            tile_copy_in<KEYS, HEAD, FORWARD_THREADS>(k_tile + (buffer ^ 1) * 2 * KEY_BYTES, kv,
                                                      base, KeyRows{s}, first_key + KEYS, s.seq);
            copy_async_commit();
        }
        const int thread = thread_anew(), in_tile = thread / 32 * WARP_ROWS;
        const int row = tile_row + in_tile; /* this warp's first */
        if (row >= s.rows || (s.causal && first_key * s.group >= row + WARP_ROWS))
            continue; /* nothing here that this warp's rows see */

        const SharedAddress keys = k_tile + buffer * 2 * KEY_BYTES;
        float scores[2][KEYS / 8][4];
        uint32_t weights[KEYS / 16][2][4];
        clear_fragments(scores);
        multiply_rows<T, 2, KEYS>(scores, TileLane<HEAD>::by_rows(q_tile, in_tile),
                                  TileLane<HEAD>::by_columns(keys, 0));
        if (first_key + KEYS > s.seq || (s.causal && (first_key + KEYS - 1) * s.group > row))
            attention_mask_scores<KEYS>(s, row + thread % 32 / 4, first_key + thread % 4 * 2, scores);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            add_weights<KEYS, HEAD>(run.most[m], run.sum[m], s.scale_log2, scores[m], acc[m]);
        }
        pack_fragments<T, 2, KEYS>(weights, scores);
        multiply_fragments<T, 2, KEYS>(acc, weights, TileLane<HEAD>::by_rows(keys + KEY_BYTES, 0));
    }
    finish_rows<T, HEAD>(a, attention_place(s, renew((int)blockIdx.x), s.causal), shared, run, acc);
}

#define FORWARD_KERNELS(T, suffix)                                                                 \
    KERNEL_FUNCTION __launch_bounds__(128, 3)                                                      \
        attention_forward_32_##suffix(AttentionForwardArgs a) {                                    \
        forward<T, 32, ATTENTION_STEP>(a);                                                         \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(128, 3)                                                      \
        attention_forward_64_##suffix(AttentionForwardArgs a) {                                    \
        forward<T, 64, ATTENTION_STEP>(a);                                                         \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(128, 2)                                                      \
        attention_forward_128_##suffix(AttentionForwardArgs a) {                                   \
        forward<T, 128, ATTENTION_STEP>(a);                                                        \
    }
FORWARD_KERNELS(bf16_t, bf16)
FORWARD_KERNELS(f16_t, f16)
