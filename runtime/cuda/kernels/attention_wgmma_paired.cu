/* attention_wgmma_forward.cu's with two warpgroups that take turns at the tensor cores, and a third
 * one that copies: o = softmax(scale q k^T + mask) v.
 *
 *   Shah et al. 2024 (FlashAttention-3), section 3.1: warp specialisation and pingpong scheduling.
 *
 * A block takes tiles of 128 query rows, every gridDim.x-th, and passes over the keys that each of
 * them sees, 128 at a time: one stream of tiles of keys, in which one tile of rows follows the
 * other without a pause. Each of two warpgroups has 64 of the rows. It issues a tile's scores and,
 * behind them, what the tile before weighs of the values; then it makes weights of those scores,
 * while the other one's products run. A thread that issues products is held up until most of them
 * are done, so the two take turns at issuing. Outputs leave when the next rows' first products run.
 *
 * Keys, values and queries are there twice. The helpers copy a tile of keys, and the values of the
 * tile before, while those before are multiplied.
 */
#include "runtime/cuda/kernels/attention_softmax.cuh"
#include "runtime/cuda/kernels/attention_wgmma.cuh"
#include "runtime/cuda/kernels/warp_roles.cuh"

enum { GROUP = 128, MULTIPLIERS = ATTENTION_WGMMA_THREADS, COPIERS = GROUP };
static_assert(MULTIPLIERS + COPIERS == (int)ATTENTION_PAIRED_THREADS, "warpgroups");

/* Barriers. Those of a tile of keys or of rows are there twice, for even ones and odd ones, since
 * some come to the next one's when others have not come to this one's. */
enum {
    LANDED = 1, /* of each warpgroup that multiplies, twice: a tile is there; by those that copy */
    KEYS_READ = 5,       /* twice: a tile has been multiplied; for those that copy */
    QUERIES_READ = 7,    /* twice: a tile of rows is out; for those that copy */
    PRODUCTS_ISSUED = 9, /* of each warpgroup: the other one's, it is this one's turn */
};

/* Of a thread. A launch of 384 threads has 168 for each. */
enum { MULTIPLIER_REGISTERS = 216, COPIER_REGISTERS = 72 };
static_assert(2 * MULTIPLIER_REGISTERS + COPIER_REGISTERS <= 3 * 168, "of all warpgroups");

/* What a block has in shared memory: two each of q, k and v. */
template <class Heads> struct PairedTiles {
    static constexpr int KEYS = ATTENTION_WGMMA_STEP_128;
    typedef PanelTile<Heads::HEAD, ATTENTION_TILE> Queries; /* and outputs */
    typedef PanelTile<Heads::HEAD, KEYS> Keys;              /* and values */
    static_assert(Heads::EVEN, "values are as long as keys");
    static constexpr int FIRST_KEYS = 2 * Queries::BYTES,
                         FIRST_VALUES = FIRST_KEYS + 2 * Keys::BYTES;

    static __device__ __forceinline__ int queries(int nth) {
        return nth % 2 * Queries::BYTES;
    }
    static __device__ __forceinline__ int keys(int nth) {
        return FIRST_KEYS + nth % 2 * Keys::BYTES;
    }
    static __device__ __forceinline__ int values(int nth) {
        return FIRST_VALUES + nth % 2 * Keys::BYTES;
    }
};

/* A block's way: the nth of its tiles of rows, which has this number, and of the keys that it sees
 * those from `key` on. */
struct PairedWay {
    int number, nth, tile_row, key, end;
    const int32_t *starts;

    __device__ __forceinline__ AttentionPlace place(const AttentionSizes &s) const {
        return attention_place(s, number, s.causal);
    }
    __device__ __forceinline__ void enter(const AttentionSizes &s) {
        const AttentionPlace at = place(s);
        tile_row = at.tile * ATTENTION_TILE;
        starts = attention_starts(s, at);
        key = attention_begin_key(s, starts, tile_row, ATTENTION_WGMMA_STEP_128);
        end = attention_end_key(s, tile_row + ATTENTION_TILE);
    }
    static __device__ __forceinline__ int count(const AttentionSizes &s) {
        return s.tiles * s.batch * s.kv_heads;
    }
    __device__ __forceinline__ void begin(const AttentionSizes &s) {
        number = (int)blockIdx.x;
        nth = 0;
        enter(s);
    }
    /* To the next tile of keys; false: there is none. *out_rows: it is the first of other rows. */
    __device__ __forceinline__ bool advance(const AttentionSizes &s, bool *out_rows) {
        key += ATTENTION_WGMMA_STEP_128;
        *out_rows = key >= end;
        if (!*out_rows) return true;
        number += (int)gridDim.x;
        nth++;
        if (number >= count(s)) return false;
        enter(s);
        return true;
    }
};

template <class Heads>
static __device__ __forceinline__ void copy(const AttentionForwardArgs &a, unsigned char *shared) {
    typedef PairedTiles<Heads> Tiles;
    const AttentionSizes &s = a.sizes;
    const SharedAddress tiles = shared_address(shared);
    const void *const q[1] = {a.q}, *const k[1] = {a.k}, *const v[1] = {a.v};
    PairedWay way = {};

    auto copy_queries = [&]() {
        tile_copy_in<typename Tiles::Queries, ATTENTION_TILE, COPIERS>(
            tiles + Tiles::queries(way.nth), q, attention_first_query(s, way.place(s)),
            QueryRows{s}, way.tile_row, s.rows);
    };
    auto copy_keys = [&](const void *const(&from)[1], int to) {
        tile_copy_in<typename Tiles::Keys, Tiles::KEYS, COPIERS>(
            tiles + to, from, attention_key_base<Heads>(s, way.place(s)).head, KeyRows{s}, way.key,
            s.keys);
    };
    way.begin(s);
    copy_queries();
    copy_keys(k, Tiles::keys(0));
    copy_async_commit();
    bool more = true;
#pragma unroll 1
    for (int tile = 0;; tile++) {
        bool other_rows;
        copy_async_wait<0>();
        shared_to_wgmma();
        named_arrive<GROUP + COPIERS>(LANDED + tile % 2);
        named_arrive<GROUP + COPIERS>(LANDED + 2 + tile % 2);
        if (tile) named_sync<MULTIPLIERS + COPIERS>(KEYS_READ + (tile - 1) % 2);
        if (!more) break;
        copy_keys(v, Tiles::values(tile));
        more = way.advance(s, &other_rows);
        if (more && other_rows) {
            if (way.nth > 1) named_sync<MULTIPLIERS + COPIERS>(QUERIES_READ + way.nth % 2);
            copy_queries();
        }
        if (more) copy_keys(k, Tiles::keys(tile + 1));
        copy_async_commit();
    }
}

template <typename T, class Heads>
static __device__ __forceinline__ void multiply(const AttentionForwardArgs &a,
                                                unsigned char *shared) {
    typedef PairedTiles<Heads> Tiles;
    typedef typename Tiles::Queries Queries;
    typedef typename Tiles::Keys Keys;
    constexpr int KEYS = Tiles::KEYS;
    const AttentionSizes &s = a.sizes;
    const SharedAddress tiles = shared_address(shared);
    const int group_row = first_group_row(), group = group_row / GROUP_ROWS, other = 1 - group;

    PairedWay way = {};
    RunningSoftmax run;
    float acc[1][Heads::VALUE / 8][4], scores[1][KEYS / 8][4], factor[2];
    uint32_t weights[KEYS / 16][1][4];

    /* Of these rows, which are out then: through this warp's rows of their queries, which nobody
     * reads any more. */
    auto finish = [&](int number, int nth, RunningSoftmax &of) {
        unsigned char *const through = shared + Tiles::queries(nth);
        const AttentionPlace place = attention_place(s, renew(number), s.causal);
        const int in_tile = thread_anew() / 32 * 16, row = place.tile * ATTENTION_TILE + in_tile;
        float out[1][2];
        of.finish(a, place, row, out[0]);
        tile_put<T, Queries>(through, in_tile, 0, acc, out);
        __syncwarp();
        tile_copy_out<Queries, 16>(through, in_tile,
                                   (T *)a.o + attention_query_base<Heads>(s, place).value,
                                   QueryRows{s}, row, s.rows);
        if (number + 2 * (int)gridDim.x < PairedWay::count(s))
            named_arrive<MULTIPLIERS + COPIERS>(QUERIES_READ + nth % 2);
        clear_fragments(acc);
    };
    auto weigh = [&]() {
        attention_mask_scores(s, way.starts, way.tile_row + thread_anew() / 32 * 16, way.key,
                              scores);
        const bool grown = run.raise(s.scale_log2, a.raise_at, scores[0], factor);
        run.weigh(s.scale_log2, scores[0]);
        return grown;
    };

    way.begin(s);
    run.begin();
    clear_fragments(acc);
    named_sync<GROUP + COPIERS>(LANDED + 2 * group);
    if (group) named_sync<MULTIPLIERS>(PRODUCTS_ISSUED + group);
    issue_scores<T, Queries, Keys>(scores[0], tiles + Tiles::queries(0), group_row,
                                   tiles + Tiles::keys(0));
    named_arrive<MULTIPLIERS>(PRODUCTS_ISSUED + other);
    wgmma_wait<0>();
    wgmma_pin(scores[0]);
    weigh();
    pack_fragments<T>(weights, scores);
    named_arrive<MULTIPLIERS + COPIERS>(KEYS_READ);
    int tile = 0;
#pragma unroll 1
    for (;;) {
        const int number = way.number, nth = way.nth;
        bool other_rows, grown = false;
        if (!way.advance(s, &other_rows)) {
            way.number = number;
            way.nth = nth;
            break;
        }
        tile++;
        named_sync<GROUP + COPIERS>(LANDED + 2 * group + tile % 2);
        named_sync<MULTIPLIERS>(PRODUCTS_ISSUED + group);
        issue_scores<T, Queries, Keys>(scores[0], tiles + Tiles::queries(way.nth), group_row,
                                       tiles + Tiles::keys(tile));
        issue_weighted<T, Keys>(acc[0], weights, tiles + Tiles::values(tile - 1));
        named_arrive<MULTIPLIERS>(PRODUCTS_ISSUED + other);
        wgmma_wait<1>();
        wgmma_pin(scores[0]);
        RunningSoftmax before = run;
        if (other_rows) run.begin();
        if (wgmma_meanwhile(s.seq)) grown = weigh();
        wgmma_wait<0>();
        wgmma_pin(acc[0]);
        wgmma_pin(weights);
        named_arrive<MULTIPLIERS + COPIERS>(KEYS_READ + tile % 2);
        if (other_rows) {
            finish(number, nth, before);
        } else if (grown) {
            rescale(acc[0], factor);
        }
        pack_fragments<T>(weights, scores);
    }
    named_sync<GROUP + COPIERS>(LANDED + 2 * group + (tile + 1) % 2);
    named_sync<MULTIPLIERS>(PRODUCTS_ISSUED + group);
    issue_weighted<T, Keys>(acc[0], weights, tiles + Tiles::values(tile));
    named_arrive<MULTIPLIERS>(PRODUCTS_ISSUED + other);
    wgmma_wait<0>();
    wgmma_pin(acc[0]);
    wgmma_pin(weights);
    finish(way.number, way.nth, run);
    if (!group) named_sync<MULTIPLIERS>(PRODUCTS_ISSUED);
}

template <typename T, class Heads>
static __device__ __forceinline__ void paired_forward(const AttentionForwardArgs &a) {
    DYNAMIC_SHARED(unsigned char, shared);
    /* The shuffle says that a warp's threads agree. */
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    if (warp >= MULTIPLIERS / 32) {
        fewer_registers<COPIER_REGISTERS>();
        copy<Heads>(a, shared);
        return;
    }
    more_registers<MULTIPLIER_REGISTERS>();
    multiply<T, Heads>(a, shared);
}

#define PAIRED_KERNEL(head, T, suffix)                                                             \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_PAIRED_THREADS, 1)                                 \
        attention_paired_##head##_wgmma_##suffix(AttentionForwardArgs a) {                         \
        WGMMA_KERNEL((paired_forward<T, AttentionHeads<head, head>>(a)));                          \
    }
PAIRED_KERNEL(128, bf16_t, bf16)
PAIRED_KERNEL(128, f16_t, f16)
