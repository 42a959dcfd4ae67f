/* o = softmax(scale q k^T + mask) v on tensor cores, bf16 or f16 in and out, f32 in between.
 *
 *   Dao 2023 (FlashAttention-2): one pass over the keys with a running softmax;
 *   Ainslie et al. 2023 (grouped queries): a group's heads are rows of the same product.
 *
 * A block of four warps owns 128 query rows of one (batch, kv_head), each warp 32; it passes over
 * tiles of KEYS keys and values, double-buffered by cp.async. A warp's 32 rows share each fragment
 * of keys: with 16 the shared memory would be slower than the tensor cores. Tiles of which none of
 * the block's rows sees anything are not there; a warp skips those of which its own see nothing.
 *
 * 4 rows seq head FLOPs per (batch, kv_head) in full, half of that with a causal mask (rows = seq
 * group), window / seq of it with a short window: for Llama 8B at seq 8192 (32 query heads of 128),
 * 0.55 TFLOP a layer and sequence.
 */
#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/attention_softmax.cuh"

enum { FORWARD_ROWS = ATTENTION_TILE, FORWARD_THREADS = 128, WARP_ROWS = 32 };

/* Divides by the sums, writes o through this warp's rows of the tile of queries, and lse. */
template <typename T, int HEAD>
static __device__ __forceinline__ void
finish_rows(const AttentionForwardArgs &a, const AttentionPlace &place, unsigned char *q_tile,
            RunningSoftmax (&run)[2], const float (&acc)[2][HEAD / 8][4]) {
    const AttentionSizes &s = a.sizes;
    int in_tile = (int)threadIdx.x / 32 * WARP_ROWS, row = place.tile * FORWARD_ROWS + in_tile;
    float factor[2][2];
    for (int m = 0; m < 2; m++) run[m].finish(a, place, row + 16 * m, factor[m]);
    __syncwarp();
    tile_put<T, RowTile<HEAD>>(q_tile, in_tile, 0, acc, factor);
    __syncwarp();
    tile_copy_out<RowTile<HEAD>, WARP_ROWS>(
        q_tile, in_tile, (T *)a.o + attention_first_query(s, place), QueryRows{s}, row, s.rows);
}

template <typename T, int HEAD, int KEYS>
static __device__ __forceinline__ void forward(const AttentionForwardArgs &a) {
    constexpr int Q_BYTES = FORWARD_ROWS * HEAD * 2, KEY_BYTES = KEYS * HEAD * 2;
    DYNAMIC_SHARED(unsigned char, shared); /* q, then two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), k_tile = q_tile + Q_BYTES;
    const int tile_row = place.tile * FORWARD_ROWS;
    const int end_key = attention_end_key(s, tile_row + FORWARD_ROWS);
    const int32_t *const starts = attention_starts(s, place);
    int first_key = attention_begin_key(s, starts, tile_row, KEYS);
    const int64_t base = attention_first_key(s, place);
    const void *const q[1] = {a.q}, *const kv[2] = {a.k, a.v};

    tile_copy_in<RowTile<HEAD>, FORWARD_ROWS, FORWARD_THREADS>(
        q_tile, q, attention_first_query(s, place), QueryRows{s}, tile_row, s.rows);
    tile_copy_in<RowTile<HEAD>, KEYS, FORWARD_THREADS>(k_tile, kv, base, KeyRows{s}, first_key,
                                                       s.keys);
    copy_async_commit();

    RunningSoftmax run[2];
    float acc[2][HEAD / 8][4];
    clear_fragments(acc);
    for (int m = 0; m < 2; m++) run[m].begin();
    for (int buffer = 0; first_key < end_key; first_key += KEYS, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_key + KEYS < end_key) {
            tile_copy_in<RowTile<HEAD>, KEYS, FORWARD_THREADS>(
                k_tile + (buffer ^ 1) * 2 * KEY_BYTES, kv, base, KeyRows{s}, first_key + KEYS,
                s.keys);
            copy_async_commit();
        }
        const int thread = thread_anew(), in_tile = thread / 32 * WARP_ROWS;
        const int row = tile_row + in_tile; /* this warp's first */
        if (row >= s.rows || attention_apart(s, starts, row, WARP_ROWS, first_key, KEYS))
            continue; /* nothing here that this warp's rows see */

        const SharedAddress keys = k_tile + buffer * 2 * KEY_BYTES;
        float scores[2][KEYS / 8][4];
        uint32_t weights[KEYS / 16][2][4];
        clear_fragments(scores);
        multiply_rows<T, 2, KEYS>(scores, TileLane<HEAD>::by_rows(q_tile, in_tile),
                                  TileLane<HEAD>::by_columns(keys, 0));
        attention_cap_scores(s, scores);
        attention_mask_scores(s, starts, row, first_key, scores);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            float factor[2];
            if (run[m].raise(s.scale_log2, scores[m], factor)) rescale(acc[m], factor);
            run[m].weigh(s.scale_log2, scores[m]);
        }
        pack_fragments<T>(weights, scores);
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
