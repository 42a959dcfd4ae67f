/* o = softmax(scale q k^T + mask) v on tensor cores, bf16 or f16 in and out, f32 in between.
 *
 *   Dao 2023 (FlashAttention-2): one pass over the keys with a running softmax;
 *   Ainslie et al. 2023 (grouped queries): a group's heads are rows of the same product.
 *
 * A block owns 128 query rows of one (batch, kv_head), each of its four warps 32; it passes over
 * tiles of KEYS keys and values, double-buffered by cp.async. A warp's 32 rows share each fragment
 * of keys: with 16 the shared memory would be slower than the tensor cores, but only so have the
 * registers room for outputs of 256, whose blocks have eight warps. Tiles of which none of the
 * block's rows sees anything are not there; a warp skips those of which its own see nothing.
 *
 * 2 rows seq (head + value) FLOPs per (batch, kv_head) in full, half of that with a causal mask (rows = seq
 * group), window / seq of it with a short window: for Llama 8B at seq 8192 (32 query heads of 128),
 * 0.55 TFLOP a layer and sequence.
 */
#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/attention_drop.cuh"
#include "runtime/cuda/kernels/attention_softmax.cuh"

enum { FORWARD_ROWS = ATTENTION_TILE };

/* Divides by the sums, writes o through this warp's rows of the tile of queries, and lse. */
template <typename T, class Heads, int MT, bool DROP>
static __device__ __forceinline__ void
finish_rows(const AttentionForwardArgs &a, const AttentionPlace &place, unsigned char *q_tile,
            RunningSoftmax (&run)[MT], const float (&acc)[MT][Heads::VALUE / 8][4]) {
    typedef RowTile<Heads::HEAD> Queries;
    const AttentionSizes &s = a.sizes;
    int in_tile = (int)threadIdx.x / 32 * 16 * MT, row = place.tile * FORWARD_ROWS + in_tile;
    float factor[MT][2];
    for (int m = 0; m < MT; m++) run[m].finish(a, place, row + 16 * m, factor[m]);
    if constexpr (DROP) {
        const float kept = attention_drops_now(s) ? s.drop.factor : 1.0f;
        for (int i = 0; i < 2 * MT; i++) factor[i / 2][i % 2] *= kept;
    }
    __syncwarp();
    tile_put<T, Queries>(q_tile, in_tile, 0, acc, factor);
    __syncwarp();
    T *to = (T *)a.o + attention_query_base<Heads>(s, place).value;
    if constexpr (Heads::EVEN) {
        tile_copy_out<Queries, 16 * MT>(q_tile, in_tile, to, QueryRows{s}, row, s.rows);
    } else {
        tile_copy_out<Queries, 16 * MT, Heads::VALUE>(q_tile, in_tile, to, OutRows{s}, row, s.rows);
    }
}

/* MT: rows of a warp in units of 16. DROP: some probabilities are dropped, behind their sums. */
template <typename T, class Heads, int MT, int KEYS, bool DROP>
static __device__ __forceinline__ void forward(const AttentionForwardArgs &a) {
    constexpr int HEAD = Heads::HEAD, VALUE = Heads::VALUE;
    constexpr int WARP_ROWS = 16 * MT, THREADS = FORWARD_ROWS / WARP_ROWS * 32;
    constexpr int Q_BYTES = FORWARD_ROWS * HEAD * 2, K_BYTES = KEYS * HEAD * 2;
    constexpr int KEY_BYTES = K_BYTES + KEYS * VALUE * 2;
    DYNAMIC_SHARED(unsigned char, shared); /* q, then two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), k_tile = q_tile + Q_BYTES;
    const int tile_row = place.tile * FORWARD_ROWS;
    const int32_t *const starts = attention_starts(s, place);
    const int end_key = attention_end_document_key(s, starts, tile_row + FORWARD_ROWS);
    int first_key = attention_begin_key(s, starts, tile_row, KEYS);
    const AttentionBase base = attention_key_base<Heads>(s, place);
    const void *const q[1] = {a.q};

    tile_copy_in<RowTile<HEAD>, FORWARD_ROWS, THREADS>(
        q_tile, q, attention_first_query(s, place), QueryRows{s}, tile_row, s.rows);
    attention_copy_keys<Heads, KEYS, THREADS>(k_tile, s, a.k, a.v, base, first_key);
    copy_async_commit();

    RunningSoftmax run[MT];
    float acc[MT][VALUE / 8][4];
    clear_fragments(acc);
    for (int m = 0; m < MT; m++) run[m].begin();
    for (int buffer = 0; first_key < end_key; first_key += KEYS, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_key + KEYS < end_key) {
            attention_copy_keys<Heads, KEYS, THREADS>(k_tile + (buffer ^ 1) * KEY_BYTES, s, a.k,
                                                      a.v, base, first_key + KEYS);
            copy_async_commit();
        }
        const int thread = thread_anew(), in_tile = thread / 32 * WARP_ROWS;
        const int row = tile_row + in_tile; /* this warp's first */
        if (row >= s.rows || attention_apart(s, starts, row, WARP_ROWS, first_key, KEYS))
            continue; /* nothing here that this warp's rows see */

        const SharedAddress keys = k_tile + buffer * KEY_BYTES;
        float scores[MT][KEYS / 8][4];
        uint32_t weights[KEYS / 16][MT][4];
        clear_fragments(scores);
        multiply_rows<T, MT, KEYS>(scores, TileLane<HEAD>::by_rows(q_tile, in_tile),
                                   TileLane<HEAD>::by_columns(keys, 0));
        attention_cap_scores(s, scores);
        attention_mask_scores(s, starts, row, first_key, scores);
        attention_mask_later_documents(s, starts, row, first_key, scores);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float factor[2];
            if (run[m].raise(s.scale_log2, a.raise_at, scores[m], factor)) rescale(acc[m], factor);
            run[m].weigh(s.scale_log2, scores[m]);
        }
        if constexpr (DROP) {
            if (attention_drops_now(s))
                attention_drop(s, attention_drop_head(s, place), row, first_key, 1.0f, scores);
        }
        pack_fragments<T>(weights, scores);
        multiply_fragments<T, MT, KEYS>(acc, weights, TileLane<VALUE>::by_rows(keys + K_BYTES, 0));
    }
    finish_rows<T, Heads, MT, DROP>(a, attention_place(s, renew((int)blockIdx.x), s.causal), shared, run,
                              acc);
}

#define FORWARD_KERNEL(name, T, head, value, mt, keys, threads, blocks, drop)                      \
    KERNEL_FUNCTION __launch_bounds__(threads, blocks)                                             \
        attention_forward_##name(AttentionForwardArgs a) {                                         \
        forward<T, AttentionHeads<head, value>, mt, keys, drop>(a);                                \
    }
#define FORWARD_KERNELS(T, suffix)                                                                 \
    FORWARD_KERNEL(32_##suffix, T, 32, 32, 2, ATTENTION_STEP, 128, 3, false)                       \
    FORWARD_KERNEL(64_##suffix, T, 64, 64, 2, ATTENTION_STEP, 128, 3, false)                       \
    FORWARD_KERNEL(128_##suffix, T, 128, 128, 2, ATTENTION_STEP, 128, 2, false)                    \
    FORWARD_KERNEL(192_##suffix, T, 192, 128, 2, ATTENTION_WIDE_STEP, 128, 2, false)               \
    FORWARD_KERNEL(256_##suffix, T, 256, 256, 1, ATTENTION_WIDE_STEP, 256, 1, false)               \
    FORWARD_KERNEL(64_drop_##suffix, T, 64, 64, 2, ATTENTION_STEP, 128, 3, true)                   \
    FORWARD_KERNEL(128_drop_##suffix, T, 128, 128, 2, ATTENTION_STEP, 128, 2, true)
FORWARD_KERNELS(bf16_t, bf16)
FORWARD_KERNELS(f16_t, f16)
