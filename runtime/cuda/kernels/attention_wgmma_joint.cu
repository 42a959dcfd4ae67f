/* The gradient of causal attention in one pass over the scores, for Hopper: 5 products.
 *
 *   P = 2^(scale_log2 q k^T - lse2),  dS = P (do v^T - delta)            (Dao 2023)
 *   dv = P^T do,  dk = scale dS^T q,  dq = scale dS k
 *
 * A block of two warpgroups owns 128 keys of one (batch, kv_head), each 64 of them, and passes over
 * the rows that see them, 64 at a time, from the last to those of its own positions. dS^T goes
 * through shared memory, [keys, rows], from where dq takes it transposed, for all 128 keys: each
 * warpgroup makes half of the columns. While a tile's dP and dV are computed the threads make dS,
 * and, while its dk and dq are and before them the next tile's scores, the next tile's weights.
 *
 * Rows are seen by the keys of several blocks. Their dq is added up in memory, in f32, in the order
 * of keys (turns.cuh): the first block's is stored, the others' are added, and the last block, of
 * the rows' own positions, fetches the sum and writes dq. So results have the same bits each time.
 * A block adds a tile's dq when it begins the next tile, and passes the turn on while that one's dk
 * and dq are computed: the blocks of a head that run together follow each other by a tile or two,
 * and wait for their first tile at most. Blocks of earlier keys, which have more rows, have the
 * lower index, and those of later keys of the head wait for them only.
 */
#include "runtime/cuda/kernels/attention_wgmma_gradient.cuh"
#include "runtime/cuda/kernels/turns.cuh"

/* Rows of queries from a column on. */
struct QueryColumns {
    const AttentionSizes &s;
    int column;
    __device__ __forceinline__ int operator()(int row) const {
        return QueryRows{s}(row) + column;
    }
    __device__ __forceinline__ int width(void) const {
        return s.head - column;
    }
};

template <typename T, class Heads>
static __device__ __forceinline__ void joint_gradient(const AttentionBackwardArgs &a) {
    constexpr int HEAD = Heads::HEAD, COLUMNS = HEAD / 2, N8 = ROW_TILE / 8;
    typedef PanelTile<HEAD, ATTENTION_TILE> Keys; /* and values: heads are even */
    typedef PanelTile<HEAD, ROW_TILE> Queries;    /* and do */
    typedef PanelTile<ROW_TILE, ATTENTION_TILE> Scores;
    static_assert(Heads::EVEN && (int)ROW_TILE == (int)ATTENTION_WGMMA_KEYS_STEP, "as bound");
    constexpr int BUFFER_BYTES = 2 * Queries::BYTES, OWN_BYTES = 2 * Keys::BYTES;
    constexpr int BUFFERS = ATTENTION_JOINT_BUFFERS;
    constexpr int SCORES = OWN_BYTES + BUFFERS * BUFFER_BYTES, STATISTICS = SCORES + Scores::BYTES;
    /* k, v, BUFFERS of (q, do), dS^T, BUFFERS of (lse2, delta) */
    DYNAMIC_SHARED(unsigned char, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const SharedAddress k_tile = shared_address(shared), v_tile = k_tile + Keys::BYTES;
    const SharedAddress buffers = k_tile + OWN_BYTES, ds_tile = k_tile + SCORES;
    const AttentionBase base = attention_query_base<Heads>(s, place);
    const int tile_key = place.tile * ATTENTION_TILE, group_row = first_group_row();
    /* Rows before `later` are seen by no later keys: this block finishes their dq. */
    const int first = tile_key * s.group, later = first + ATTENTION_TILE * s.group;
    const int last = (s.rows - 1) / ROW_TILE * ROW_TILE;

    auto copy_rows = [&](int row, int buffer) {
        attention_copy_rows<Heads, ROW_TILE, ATTENTION_WGMMA_THREADS, PanelTile>(
            buffers + buffer * BUFFER_BYTES, s, a.q, a.d_o, base, row);
        copy_statistics<ROW_TILE>(k_tile + STATISTICS + buffer * 2 * ROW_TILE * 4, a, place, row);
        copy_async_commit();
    };
    /* A group of copies, whether or not there are such rows. */
    auto copy_rows_or_none = [&](int row, int buffer) {
        if (row >= first) {
            copy_rows(row, buffer);
        } else {
            copy_async_commit();
        }
    };
    attention_copy_keys<Heads, ATTENTION_TILE, ATTENTION_WGMMA_THREADS, PanelTile>(
        k_tile, s, a.k, a.v, attention_key_base<Heads>(s, place), tile_key);
    copy_rows(last, 0);
    copy_rows_or_none(last - ROW_TILE, 1);

    float dk[1][HEAD / 8][4], dv[1][HEAD / 8][4], dq[1][COLUMNS / 8][4];
    clear_fragments(dk);
    clear_fragments(dv);

    /* Where this thread's sums of dq of 64 rows lie, every 256th from there on. */
    auto sums_of = [&](int row) {
        const int slots = s.rows_padded / ROW_TILE - 2 * s.group;
        const int64_t slot = (int64_t)place.pair * slots + row / ROW_TILE - 2 * s.group;
        return (float4 *)a.dq_sums + slot * (ROW_TILE * HEAD / 4) + thread_anew();
    };
    auto hand_on = [&](int row) {
        float4 *sums = sums_of(row);
        if (place.tile) {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                turns_add(sums + n * ATTENTION_WGMMA_THREADS, dq[0][n]);
        } else {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                turns_put(sums + n * ATTENTION_WGMMA_THREADS, dq[0][n]);
        }
    };
    float4 earlier[COLUMNS / 8];
    auto fetch = [&](int row) {
        const float4 *sums = sums_of(row);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            earlier[n] =
                place.tile ? __ldcg(sums + n * ATTENTION_WGMMA_THREADS) : make_float4(0, 0, 0, 0);
        }
    };
    /* With what was fetched; out through this warp's own keys of dS^T, which nobody reads now. */
    auto finish = [&](int row) {
        const int in_tile = thread_anew() / 32 * 16, column = thread_anew() / 128 * COLUMNS;
        const float scale[1][2] = {{s.scale, s.scale}};
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            dq[0][n][0] += earlier[n].x;
            dq[0][n][1] += earlier[n].y;
            dq[0][n][2] += earlier[n].z;
            dq[0][n][3] += earlier[n].w;
        }
        tile_put<T, Scores>(shared + SCORES, in_tile, 0, dq, scale);
        __syncwarp();
        tile_copy_out<Scores, 16, COLUMNS>(shared + SCORES, in_tile, (T *)a.dq + base.head,
                                           QueryColumns{s, column}, row + in_tile % 64, s.rows);
        __syncwarp();
    };
    /* Long heads leave no registers for a sum beside the next tile's products. */
    constexpr bool FINISH_FIRST = HEAD > 64;

    /* Short heads leave registers for this warp's keys and values: shared memory, which would be
     * read for longer than is multiplied, is read less. */
    constexpr bool IN_REGISTERS = HEAD == 64;
    uint32_t own_keys[HEAD / 16][1][4], own_values[HEAD / 16][1][4];
    float p[1][N8][4];
    auto scores = [&](int buffer) {
        const SharedAddress q_rows = buffers + buffer * BUFFER_BYTES;
        if constexpr (IN_REGISTERS) {
            issue_scores_of<T, Queries>(p[0], own_keys, q_rows);
        } else {
            issue_scores<T, Keys, Queries>(p[0], k_tile, group_row, q_rows);
        }
    };
    auto weights_of = [&](int row, int buffer) {
        const int key = tile_key + thread_anew() / 32 * 16; /* this warp's first */
        if (attention_too_late(s, row, key + 15))
            mask_where<1, ROW_TILE>(row, key, p,
                                    [&](int r, int k) { return attention_too_late(s, r, k); });
        weigh(s, (const float *)(shared + STATISTICS) + buffer * 2 * ROW_TILE, p[0]);
    };
    copy_async_wait<1>();
    shared_to_wgmma();
    __syncthreads();
    if constexpr (IN_REGISTERS) {
        const int own = thread_anew() / 32 * 16;
        const TileLane<HEAD> keys = TileLane<HEAD>::by_rows(k_tile, own);
        const TileLane<HEAD> values = TileLane<HEAD>::by_rows(v_tile, own);
#pragma unroll
        for (int k = 0; k < HEAD / 16; k++) {
            ldmatrix_x4(own_keys[k][0], keys.at(k, 0));
            ldmatrix_x4(own_values[k][0], values.at(k, 0));
        }
    }
    scores(0);
    wgmma_wait<0>();
    wgmma_pin(p[0]);
    weights_of(last, 0);

#pragma unroll 1
    for (int row = last, buffer = 0; row >= first; row -= ROW_TILE) {
        const SharedAddress q_rows = buffers + buffer * BUFFER_BYTES;
        const SharedAddress do_rows = q_rows + Queries::BYTES;
        const int before = row + ROW_TILE, after = row - ROW_TILE; /* tiles */
        const int next = buffer == BUFFERS - 1 ? 0 : buffer + 1;
        uint32_t *const turn = a.turns + ((int64_t)place.pair * s.rows_padded + row) / ROW_TILE;
        float ds[1][N8][4];
        uint32_t weights[N8 / 2][1][4], gradients[N8 / 2][1][4], now = 0;

        __syncthreads(); /* all are done with the tile before, its turn has come */
        if (before <= last) {
            if (before >= later) {
                hand_on(before);
            } else {
                fetch(before);
                if (FINISH_FIRST) finish(before);
            }
        }
        if constexpr (IN_REGISTERS) {
            issue_scores_of<T, Queries>(ds[0], own_values, do_rows);
        } else {
            issue_scores<T, Keys, Queries>(ds[0], v_tile, group_row, do_rows);
        }
        pack_fragments<T>(weights, p);
        issue_weighted<T, Queries>(dv[0], weights, do_rows);
        copy_rows_or_none(after - ROW_TILE, next == BUFFERS - 1 ? 0 : next + 1);
        if (threadIdx.x == 0 && place.tile) now = turns_look(turn);
        if (!FINISH_FIRST && before <= last && before < later) {
            wgmma_wait<0>();
            wgmma_pin(ds[0]);
            wgmma_pin(dv[0]);
            finish(before);
        }
        wgmma_wait<1>();
        wgmma_pin(ds[0]);
        weights_gradient((const float *)(shared + STATISTICS) + (buffer * 2 + 1) * ROW_TILE, p[0],
                         ds[0]);
        pack_fragments<T>(gradients, ds);
        const TileLane<ROW_TILE> to = TileLane<ROW_TILE>::by_rows(ds_tile, thread_anew() / 32 * 16);
#pragma unroll
        for (int k = 0; k < N8 / 2; k++) stmatrix_x4(to.at(k, 0), gradients[k][0]);
        copy_async_wait<1>();
        shared_to_wgmma();
        __syncthreads();
        scores(after >= first ? next : buffer); /* behind the last tile for nothing */
        issue_weighted<T, Queries>(dk[0], gradients, q_rows);
        issue_transposed<T, Scores, Keys>(dq[0], ds_tile, k_tile, group_row / 64 * COLUMNS);
        /* The tile before is passed on, and this one's turn has come. */
        if (threadIdx.x == 0) {
            turns_fence();
            if (before <= last && before >= later) turns_pass(turn + 1, (uint32_t)place.tile + 1);
            if (now < (uint32_t)place.tile) turns_wait(turn, (uint32_t)place.tile);
        }
        wgmma_wait<2>();
        wgmma_pin(p[0]);
        if (after >= first) weights_of(after, next);
        wgmma_wait<0>();
        wgmma_pin(dv[0]);
        wgmma_pin(dk[0]);
        wgmma_pin(dq[0]);
        wgmma_pin(weights);
        wgmma_pin(gradients);
        buffer = next;
    }
    __syncthreads();
    fetch(first);
    finish(first);
    put_key_gradients<T, Heads>(a, shared, dk, dv);
}

#define JOINT_KERNEL(head, T, suffix)                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)                                  \
        attention_joint_##head##_wgmma_##suffix(AttentionBackwardArgs a) {                         \
        WGMMA_KERNEL((joint_gradient<T, AttentionHeads<head, head>>(a)));                          \
    }
#define JOINT_KERNELS(T, suffix)                                                                   \
    JOINT_KERNEL(64, T, suffix)                                                                    \
    JOINT_KERNEL(128, T, suffix)
JOINT_KERNELS(bf16_t, bf16)
JOINT_KERNELS(f16_t, f16)
