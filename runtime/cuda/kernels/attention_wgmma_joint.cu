/* The gradient of causal attention in one pass over the scores, for Hopper: 5 products.
 *
 *   P = 2^(scale_log2 q k^T - lse2),  dS = P (do v^T - delta)            (Dao 2023)
 *   dv = P^T do,  dk = scale dS^T q,  dq = scale dS k
 *
 * A block takes 128 keys of one (batch, kv_head) and passes over the rows that see them, 64 at a
 * time, from the last to those of its own positions; then it takes the next keys. Two warpgroups
 * multiply, each with 64 of the keys. dS^T goes through shared memory, [keys, rows], from where dq
 * takes it transposed, for all 128 keys: each makes half of the columns.
 *
 * A thread that issues products waits until most of them are done. So the two take turns, as
 * FlashAttention-3's do forward (Shah 2024): dV and dP of one, of the other, then the next tile's
 * scores, dk and dq of the first, of the other. Between, each makes dS, and the next weights, while
 * the other one's products run.
 *
 * Rows are seen by several tiles of keys. Their dq is added up in memory, in f32, in the order of
 * keys (turns.cuh): the first tile's is stored, the others' are added, and the last one, of the
 * rows' own positions, fetches the sum and writes dq. So results have the same bits each time. The
 * blocks at a head's tiles of keys follow each other by a tile of rows or two, and wait at their
 * first one at most. Tiles of keys are taken by a counter, those of earlier keys of a head first:
 * what others wait for is under way.
 *
 * A third warpgroup helps: it takes tiles of keys, copies the rows after next, of this one or
 * already of the next, and one of its warps sees to turns. Until what was added is there for other
 * blocks takes about as long as half of a tile, and those that multiply do not wait for it.
 *
 * Sums of dq leave registers as stores and additions of each thread; with long heads (BULK), whose
 * tiles leave room for that, they are put into shared memory, from where the engine that copies
 * adds them up. Those that multiply then wait neither for the way to L2 nor, but for rows that they
 * finish, for the tile's turn. Same bits.
 */
#include "runtime/cuda/kernels/attention_wgmma_gradient.cuh"
#include "runtime/cuda/kernels/turns.cuh"
#include "runtime/cuda/kernels/warp_roles.cuh"

/* Rows of dq from a column on. */
struct GradientColumns {
    const QueryGradients &rows;
    int column;
    __device__ __forceinline__ int operator()(int row) const {
        return rows(row) + column;
    }
    __device__ __forceinline__ int width(void) const {
        return rows.width() - column;
    }
};

/* Two warpgroups multiply; of the third one two warps copy, one sees to turns, and one has nothing
 * to do. */
enum { GROUP = 128, MULTIPLIERS = ATTENTION_WGMMA_THREADS, COPIERS = 64 };
enum { TURNS_THREAD = MULTIPLIERS + COPIERS };
static_assert(MULTIPLIERS == 2 * GROUP && (int)ATTENTION_JOINT_THREADS == 3 * GROUP, "warpgroups");

/* Barriers, and who comes to them. */
enum {
    KEYS_TAKEN = 1,  /* which ones are next: by those that copy, for the warp of turns */
    KEYS_FREE = 2,   /* gradients are out, where there is no room for two: for those that copy */
    TAKEN = 3,       /* those that copy: which tile of keys is next */
    TILE_DONE = 4,   /* a tile of rows may be overwritten: for those that copy */
    SUMS_ISSUED = 5, /* what a tile gives is on its way: for the warp of turns */
    /* Of each warpgroup that multiplies, the second one's one further: */
    ROWS_COPIED = 6,   /* keys and two tiles of rows are there, then one more: by those that copy */
    SCORES_SHARED = 8, /* its dS^T is there: for the other one, */
    SCORES_READ = 10,  /* and need not be any longer: by the other one */
    PRODUCTS_ISSUED = 12, /* the other one's: it is this one's turn */
    /* A tile's, to add to dq; BULK: there is room for its sums in shared memory; by the warp of
     * turns. */
    TURN_COMES = 14,
};

/* Of a thread. A launch of 384 threads has 168 for each. */
enum { MULTIPLIER_REGISTERS = 240, HELPER_REGISTERS = 24 };
static_assert(2 * MULTIPLIER_REGISTERS + HELPER_REGISTERS <= 3 * 168, "of all warpgroups");

/* What a block has in shared memory: KEYS of (k, v), BUFFERS of (q, do), dS^T, BUFFERS of (lse2,
 * delta), and the numbers of the tiles of keys that it took last; BULK: a tile's sums of dq, as
 * threads have them. */
template <class Heads> struct JointTiles {
    static constexpr int HEAD = Heads::HEAD;
    typedef PanelTile<HEAD, ATTENTION_TILE> Keys; /* and values: heads are even */
    typedef PanelTile<HEAD, ROW_TILE> Queries;    /* and do */
    typedef PanelTile<ROW_TILE, ATTENTION_TILE> Scores;
    static_assert(Heads::EVEN && (int)ROW_TILE == (int)ATTENTION_WGMMA_KEYS_STEP, "as bound");
    static constexpr int KEYS = HEAD > 64 ? 1 : 2, VALUES = Keys::BYTES;
    static constexpr int KEYS_BYTES = 2 * Keys::BYTES, ROWS = KEYS * KEYS_BYTES;
    static constexpr int BUFFERS = ATTENTION_JOINT_BUFFERS, BUFFER_BYTES = 2 * Queries::BYTES;
    static constexpr int SCORES = ROWS + BUFFERS * BUFFER_BYTES;
    static constexpr int STATISTICS = SCORES + Scores::BYTES, STATISTICS_BYTES = 2 * ROW_TILE * 4;
    static constexpr int TAKEN_TILES = STATISTICS + BUFFERS * STATISTICS_BYTES;
    static constexpr int SUMS = (TAKEN_TILES + ATTENTION_JOINT_TAKEN * 4 + 127) / 128 * 128;
    static constexpr int SUMS_BYTES = ROW_TILE * HEAD * 4;
    static constexpr bool BULK = HEAD > 64;

    /* Where the tile of keys that was taken as the nth is, and its number: past the last, none. */
    static __device__ __forceinline__ int keys_at(int n) {
        return n % KEYS * KEYS_BYTES;
    }
    static __device__ __forceinline__ volatile int *number(unsigned char *shared, int n) {
        return (volatile int *)(shared + TAKEN_TILES) + n % ATTENTION_JOINT_TAKEN;
    }
    static __device__ __forceinline__ int after(int buffer) {
        return buffer == BUFFERS - 1 ? 0 : buffer + 1;
    }
};

[[maybe_unused]] static __device__ __forceinline__ int count_tiles(const AttentionSizes &s) {
    return s.tiles * s.batch * s.kv_heads;
}

/* The rows that see a tile of keys, from `key` on. */
struct JointRows {
    int first, later, last; /* tiles of them; those before `later` are seen by no later keys */

    __device__ __forceinline__ JointRows(const AttentionSizes &s, int key)
        : first(key * s.group), later(first + ATTENTION_TILE * s.group),
          last((s.rows - 1) / ROW_TILE * ROW_TILE) {
    }
};

/* Takes tiles of keys, and copies. */
template <class Heads>
static __device__ __forceinline__ void copy(const AttentionBackwardArgs &a, unsigned char *shared) {
    typedef JointTiles<Heads> Tiles;
    const AttentionSizes &s = a.sizes;
    const SharedAddress tiles = shared_address(shared);
    int taken = -1, to_copy = -1, end = 0; /* of the tile taken last, rows to be copied */
    bool more = true;

    /* Which one is next, in the order of numbers: those that others wait for are all under way. */
    auto take = [&]() {
        taken++;
        if ((int)threadIdx.x == MULTIPLIERS)
            *Tiles::number(shared, taken) = (int)atomicAdd(a.taken, 1u);
        named_sync<COPIERS>(TAKEN);
        const int number = *Tiles::number(shared, taken);
        more = number < count_tiles(s);
        if (!more) return;
        const JointRows rows(s, attention_place(s, number, false).tile * ATTENTION_TILE);
        to_copy = rows.last;
        end = rows.first;
    };
    auto copy_keys = [&](int n) {
        const int number = *Tiles::number(shared, n);
        if (number >= count_tiles(s)) return;
        const AttentionPlace place = attention_place(s, number, false);
        attention_copy_keys<Heads, ATTENTION_TILE, COPIERS, PanelTile>(
            tiles + Tiles::keys_at(n), s, a.k, a.v, attention_key_base<Heads>(s, place),
            place.tile * ATTENTION_TILE);
    };
    /* The next rows there are, of this tile of keys or of one that is taken for it. */
    auto copy_rows = [&](int buffer) {
        if (to_copy < end && more) take();
        if (to_copy < end) return;
        const AttentionPlace place = attention_place(s, *Tiles::number(shared, taken), false);
        attention_copy_rows<Heads, ROW_TILE, COPIERS, PanelTile>(
            tiles + Tiles::ROWS + buffer * Tiles::BUFFER_BYTES, s, a.q, a.d_o,
            attention_query_base<Heads>(s, place), to_copy);
        copy_statistics<ROW_TILE, COPIERS>(
            tiles + Tiles::STATISTICS + buffer * Tiles::STATISTICS_BYTES, a, place, to_copy);
        to_copy -= ROW_TILE;
    };

    take();
    copy_keys(0);
    copy_rows(0);
    copy_rows(1);
    copy_async_commit();
    for (int n = 0, buffer = 0;; n++) {
        bool keys_copied = false;
        copy_async_wait<0>();
        shared_to_wgmma();
        named_arrive<COPIERS + 32>(KEYS_TAKEN);
        named_arrive<GROUP + COPIERS>(ROWS_COPIED);
        named_arrive<GROUP + COPIERS>(ROWS_COPIED + 1);
        const int number = *Tiles::number(shared, n);
        if (number >= count_tiles(s)) break;
        const JointRows rows(s, attention_place(s, number, false).tile * ATTENTION_TILE);
#pragma unroll 1
        for (int row = rows.last; row >= rows.first; row -= ROW_TILE) {
            const int next = Tiles::after(buffer);
            if (row < rows.last) {
                named_sync<MULTIPLIERS + COPIERS>(TILE_DONE);
                copy_async_wait<0>();
                shared_to_wgmma();
                named_arrive<GROUP + COPIERS>(ROWS_COPIED);
                named_arrive<GROUP + COPIERS>(ROWS_COPIED + 1);
            }
            copy_rows(Tiles::after(next));
            /* Where there is room for two: those before are done with once a tile of rows is. */
            if (Tiles::KEYS > 1 && row < rows.last && taken > n && !keys_copied) {
                copy_keys(n + 1);
                keys_copied = true;
            }
            copy_async_commit();
            buffer = next;
        }
        named_sync<MULTIPLIERS + COPIERS>(TILE_DONE);
        if (Tiles::KEYS == 1) named_sync<MULTIPLIERS + COPIERS>(KEYS_FREE);
        if (!keys_copied) {
            copy_keys(n + 1);
            copy_async_commit();
        }
    }
}

/* Where the sums of dq of a tile of rows begin, in pieces of four. Fewer than 2^32. */
template <class Heads>
static __device__ __forceinline__ uint32_t first_sums(const AttentionSizes &s,
                                                      const AttentionPlace &place, int row) {
    const int slots = s.rows_padded / ROW_TILE - 2 * s.group;
    return (uint32_t)(place.pair * slots + row / ROW_TILE - 2 * s.group) *
           (ROW_TILE * Heads::HEAD / 4);
}

/* Waits for a tile's turn, and passes it on when what the tile gives is there for all. */
template <class Heads>
static __device__ __forceinline__ void see_to_turns(const AttentionBackwardArgs &a,
                                                    unsigned char *shared) {
    const AttentionSizes &s = a.sizes;
    for (int n = 0;; n++) {
        named_sync<COPIERS + 32>(KEYS_TAKEN);
        const int number = *JointTiles<Heads>::number(shared, n);
        if (number >= count_tiles(s)) break;
        const AttentionPlace place = attention_place(s, number, false);
        const JointRows rows(s, place.tile * ATTENTION_TILE);
        uint32_t *turn = a.turns + ((int64_t)place.pair * s.rows_padded + rows.last) / ROW_TILE;
        const uint32_t ours = (uint32_t)place.tile;
        const bool speaks = threadIdx.x % 32 == 0;
        if (speaks && ours) turns_wait(turn, ours);
#pragma unroll 1
        for (int row = rows.last; row >= rows.first; row -= ROW_TILE, turn--) {
            const bool more = row > rows.first;
            uint32_t next = 0;
            __syncwarp();
            named_arrive<GROUP + 32>(TURN_COMES);
            named_arrive<GROUP + 32>(TURN_COMES + 1);
            if (speaks && ours && more) next = turns_look(turn - 1);
            named_sync<MULTIPLIERS + 32>(SUMS_ISSUED);
            if (!speaks) continue;
            turns_fence();
            if (row >= rows.later) turns_pass(turn, ours + 1);
            if (more && next < ours) turns_wait(turn - 1, ours);
        }
    }
}

/* BULK: the same, and adds what a tile gives. */
template <class Heads>
static __device__ __forceinline__ void add_in_turn(const AttentionBackwardArgs &a,
                                                   unsigned char *shared) {
    typedef JointTiles<Heads> Tiles;
    const AttentionSizes &s = a.sizes;
    const SharedAddress sums = shared_address(shared) + Tiles::SUMS;
    for (int n = 0;; n++) {
        named_sync<COPIERS + 32>(KEYS_TAKEN);
        const int number = *Tiles::number(shared, n);
        if (number >= count_tiles(s)) break;
        const AttentionPlace place = attention_place(s, number, false);
        const JointRows rows(s, place.tile * ATTENTION_TILE);
        uint32_t *turn = a.turns + ((int64_t)place.pair * s.rows_padded + rows.last) / ROW_TILE;
        float4 *to = (float4 *)a.dq_sums + first_sums<Heads>(s, place, rows.last);
        const uint32_t ours = (uint32_t)place.tile;
        const bool speaks = threadIdx.x % 32 == 0;
#pragma unroll 1
        for (int row = rows.last; row >= rows.first; row -= ROW_TILE, turn--) {
            const bool adds = row >= rows.later;
            if (speaks && ours && !adds) turns_wait(turn, ours); /* these are fetched */
            __syncwarp();
            named_arrive<GROUP + 32>(TURN_COMES);
            named_arrive<GROUP + 32>(TURN_COMES + 1);
            named_sync<MULTIPLIERS + 32>(SUMS_ISSUED);
            if (speaks && adds) {
                if (ours) {
                    turns_wait(turn, ours);
                    turns_add_bulk(to, sums, Tiles::SUMS_BYTES);
                } else {
                    turns_put_bulk(to, sums, Tiles::SUMS_BYTES);
                }
                turns_wait_bulk();
                turns_fence();
                turns_pass(turn, ours + 1);
            }
            to -= Tiles::SUMS_BYTES / 16;
        }
    }
}

/* One tile of keys, the nth of this block; *buffer: where its first rows are, and then the next's;
 * *waits: for the other warpgroup's products, but for the first of all. */
template <typename T, class Heads>
static __device__ __forceinline__ void multiply(const AttentionBackwardArgs &a, int number, int n,
                                                bool *inout_waits, unsigned char *shared,
                                                int *inout_buffer) {
    typedef JointTiles<Heads> Tiles;
    typedef typename Tiles::Keys Keys;
    typedef typename Tiles::Queries Queries;
    typedef typename Tiles::Scores Scores;
    constexpr int HEAD = Heads::HEAD, COLUMNS = HEAD / 2, N8 = ROW_TILE / 8;
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, number, false);
    unsigned char *const keys = shared + Tiles::keys_at(n);
    const SharedAddress k_tile = shared_address(keys), v_tile = k_tile + Tiles::VALUES;
    const SharedAddress buffers = shared_address(shared) + Tiles::ROWS;
    const SharedAddress ds_tile = shared_address(shared) + Tiles::SCORES;
    const int tile_key = place.tile * ATTENTION_TILE, group_row = first_group_row();
    const int group = group_row / GROUP_ROWS, other = 1 - group;
    const JointRows rows(s, tile_key);

    float dk[1][HEAD / 8][4], dv[1][HEAD / 8][4], dq[1][COLUMNS / 8][4];
    clear_fragments(dk);
    clear_fragments(dv);

    /* Where this thread's sums of dq of a tile lie, every 256th from there on, at first those of
     * the one before. */
    const int slots = s.rows_padded / ROW_TILE - 2 * s.group;
    uint32_t sums = (uint32_t)(place.pair * slots + rows.last / ROW_TILE + 1 - 2 * s.group) *
                        (ROW_TILE * HEAD / 4) +
                    threadIdx.x;
    auto hand_on = [&]() {
        float4 *to = (float4 *)a.dq_sums + sums;
        if constexpr (Tiles::BULK) {
            to = (float4 *)(shared + Tiles::SUMS) + thread_anew();
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                to[n * MULTIPLIERS] =
                    make_float4(dq[0][n][0], dq[0][n][1], dq[0][n][2], dq[0][n][3]);
            shared_to_wgmma();
        } else if (place.tile) {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) turns_add(to + n * MULTIPLIERS, dq[0][n]);
        } else {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) turns_put(to + n * MULTIPLIERS, dq[0][n]);
        }
    };
    /* Long heads leave no registers for a sum beside the next tile's products, nor for all of it.
     */
    constexpr bool FINISH_FIRST = HEAD > 64;
    constexpr int FETCHED = FINISH_FIRST ? COLUMNS / 16 : COLUMNS / 8;
    float4 earlier[FETCHED];
    auto fetch = [&](int first) {
        const float4 *from = (const float4 *)a.dq_sums + sums + first * MULTIPLIERS;
#pragma unroll
        for (int n = 0; n < FETCHED; n++)
            earlier[n] = place.tile ? __ldcg(from + n * MULTIPLIERS) : make_float4(0, 0, 0, 0);
    };
    auto add_fetched = [&](int first) {
#pragma unroll
        for (int n = 0; n < FETCHED; n++) {
            dq[0][first + n][0] += earlier[n].x;
            dq[0][first + n][1] += earlier[n].y;
            dq[0][first + n][2] += earlier[n].z;
            dq[0][first + n][3] += earlier[n].w;
        }
        wgmma_pin(dq[0]);
    };
    /* dq of the tile before: with what was fetched, the first of it; out through this warp's own
     * keys of dS^T, which nobody reads now. */
    auto finish = [&](int row) {
        const AttentionPlace at = attention_place(s, renew(number), false);
        const int in_tile = thread_anew() / 32 * 16, column = thread_anew() / 128 * COLUMNS;
        const float scale[1][2] = {{s.scale, s.scale}};
        add_fetched(0);
#pragma unroll
        for (int first = FETCHED; first < COLUMNS / 8; first += FETCHED) {
            fetch(first);
            add_fetched(first);
        }
        tile_put<T, Scores>(shared + Tiles::SCORES, in_tile, 0, dq, scale);
        __syncwarp();
        const QueryGradients rows = {s, a.dq_row};
        tile_copy_out<Scores, 16, COLUMNS>(
            shared + Tiles::SCORES, in_tile, (T *)a.dq + rows.first(at),
            GradientColumns{rows, column}, row + in_tile % 64, s.rows);
        __syncwarp();
    };

    /* Short heads leave registers for this warp's keys and values: shared memory, which would be
     * read for longer than is multiplied, is read less. */
    constexpr bool IN_REGISTERS = HEAD == 64;
    uint32_t own_keys[HEAD / 16][1][4], own_values[HEAD / 16][1][4];
    const float *const statistics = (const float *)(shared + Tiles::STATISTICS);
    float p[1][N8][4];
    auto scores = [&](int buffer) {
        const SharedAddress q_rows = buffers + buffer * Tiles::BUFFER_BYTES;
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
        weigh(s, statistics + buffer * 2 * ROW_TILE, p[0]);
    };
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
    int buffer = *inout_buffer;
    scores(buffer);
    wgmma_wait<0>();
    wgmma_pin(p[0]);
    weights_of(rows.last, buffer);

#pragma unroll 1
    for (int row = rows.last; row >= rows.first; row -= ROW_TILE) {
        const SharedAddress q_rows = buffers + buffer * Tiles::BUFFER_BYTES;
        const SharedAddress do_rows = q_rows + Queries::BYTES;
        const int before = row + ROW_TILE, after = row - ROW_TILE; /* tiles */
        const int next = Tiles::after(buffer);
        const bool finishes = before <= rows.last && before < rows.later;
        float ds[1][N8][4];
        uint32_t weights[N8 / 2][1][4], gradients[N8 / 2][1][4];

        if (finishes) {
            fetch(0);
            named_sync<MULTIPLIERS>(SCORES_READ + group);
            if (FINISH_FIRST) finish(before);
        }
        sums -= ROW_TILE * HEAD / 4;
        pack_fragments<T>(weights, p);
        if (*inout_waits) named_sync<MULTIPLIERS>(PRODUCTS_ISSUED + group);
        *inout_waits = true;
        issue_weighted<T, Queries>(dv[0], weights, do_rows);
        if constexpr (IN_REGISTERS) {
            issue_scores_of<T, Queries>(ds[0], own_values, do_rows);
        } else {
            issue_scores<T, Keys, Queries>(ds[0], v_tile, group_row, do_rows);
        }
        named_arrive<MULTIPLIERS>(PRODUCTS_ISSUED + other);
        wgmma_wait<0>();
        wgmma_pin(dv[0]);
        wgmma_pin(weights);
        wgmma_pin(ds[0]);
        if (!FINISH_FIRST && finishes) finish(before);
        weights_gradient(statistics + (buffer * 2 + 1) * ROW_TILE, p[0], ds[0]);
        pack_fragments<T>(gradients, ds);
        if (before <= rows.last && !finishes) named_sync<MULTIPLIERS>(SCORES_READ + group);
        const TileLane<ROW_TILE> to = TileLane<ROW_TILE>::by_rows(ds_tile, thread_anew() / 32 * 16);
#pragma unroll
        for (int k = 0; k < N8 / 2; k++) stmatrix_x4(to.at(k, 0), gradients[k][0]);
        shared_to_wgmma();
        named_arrive<MULTIPLIERS>(SCORES_SHARED + group);
        if (before <= rows.last) named_sync<GROUP + COPIERS>(ROWS_COPIED + group);
        named_sync<MULTIPLIERS>(PRODUCTS_ISSUED + group);
        scores(after >= rows.first ? next : buffer); /* the last for nothing */
        issue_weighted<T, Queries>(dk[0], gradients, q_rows);
        named_sync<MULTIPLIERS>(SCORES_SHARED + other);
        issue_transposed<T, Scores, Keys>(dq[0], ds_tile, k_tile, group * COLUMNS);
        named_arrive<MULTIPLIERS>(PRODUCTS_ISSUED + other);
        wgmma_wait<2>();
        wgmma_pin(p[0]);
        if (after >= rows.first) weights_of(after, next);
        named_sync<GROUP + 32>(TURN_COMES + group);
        wgmma_wait<0>();
        wgmma_pin(dk[0]);
        wgmma_pin(gradients);
        wgmma_pin(dq[0]);
        named_arrive<MULTIPLIERS>(SCORES_READ + other);
        if (row >= rows.later) hand_on();
        named_arrive<MULTIPLIERS + 32>(SUMS_ISSUED);
        named_arrive<MULTIPLIERS + COPIERS>(TILE_DONE);
        buffer = next;
    }
    named_sync<MULTIPLIERS>(SCORES_READ + group);
    fetch(0);
    finish(rows.first);
    put_key_gradients<T, Heads>(a, number, keys, keys + Tiles::VALUES, dk, dv);
    *inout_buffer = buffer;
}

template <typename T, class Heads>
static __device__ __forceinline__ void joint_gradient(const AttentionBackwardArgs &a) {
    DYNAMIC_SHARED(unsigned char, shared);
    /* The shuffle says that a warp's threads agree. */
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    if (warp >= MULTIPLIERS / 32) {
        fewer_registers<HELPER_REGISTERS>();
        if (warp < TURNS_THREAD / 32) {
            copy<Heads>(a, shared);
        } else if (warp == TURNS_THREAD / 32) {
            if constexpr (JointTiles<Heads>::BULK) {
                add_in_turn<Heads>(a, shared);
            } else {
                see_to_turns<Heads>(a, shared);
            }
        }
        return;
    }
    more_registers<MULTIPLIER_REGISTERS>();
    bool waits = warp >= GROUP / 32; /* the first warpgroup's first products wait for none */
#pragma unroll 1
    for (int n = 0, buffer = 0;; n++) {
        named_sync<GROUP + COPIERS>(ROWS_COPIED + warp / (GROUP / 32));
        const int number = *JointTiles<Heads>::number(shared, n);
        if (number >= count_tiles(a.sizes)) break;
        multiply<T, Heads>(a, number, n, &waits, shared, &buffer);
        if (JointTiles<Heads>::KEYS == 1) named_arrive<MULTIPLIERS + COPIERS>(KEYS_FREE);
    }
    if (waits && warp < GROUP / 32) named_sync<MULTIPLIERS>(PRODUCTS_ISSUED);
}

#define JOINT_KERNEL(head, T, suffix)                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_JOINT_THREADS, 1)                                  \
        attention_joint_##head##_wgmma_##suffix(AttentionBackwardArgs a) {                         \
        WGMMA_KERNEL((joint_gradient<T, AttentionHeads<head, head>>(a)));                          \
    }
#define JOINT_KERNELS(T, suffix)                                                                   \
    JOINT_KERNEL(64, T, suffix)                                                                    \
    JOINT_KERNEL(128, T, suffix)
JOINT_KERNELS(bf16_t, bf16)
JOINT_KERNELS(f16_t, f16)
