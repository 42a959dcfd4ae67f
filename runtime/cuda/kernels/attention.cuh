/* What the attention kernels share: which block computes what, where rows lie, which keys they see.
 */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_CUH

#include "runtime/cuda/kernels/attention_tile.cuh"

/* Blocks */

/* What one block computes: a tile of rows or keys of one batch row and key/value head. */
struct AttentionPlace {
    int tile, batch, head, pair; /* pair: batch * kv_heads + head */
};

/* id, of 0 .. gridDim.x - 1, counts heads within tiles within sections of `heads_together` heads:
 * what is launched together shares keys in L2, and long tiles come before short ones. */
static __device__ __forceinline__ AttentionPlace attention_place(const AttentionSizes &s, int id,
                                                                 bool last_first) {
    AttentionPlace place;
    int heads = s.batch * s.kv_heads;
    int section = id / (s.heads_together * s.tiles);
    int left = heads - section * s.heads_together;
    id -= section * s.heads_together * s.tiles;
    if (left > s.heads_together) left = s.heads_together;
    place.tile = id / left;
    place.pair = section * s.heads_together + id % left;
    if (last_first) place.tile = s.tiles - 1 - place.tile;
    place.batch = place.pair / s.kv_heads;
    place.head = place.pair % s.kv_heads;
    return place;
}

/* Rows */

/* A query row's position of those that are here: row / group, by multiplication. rows < 2^31. */
static __device__ __forceinline__ int attention_position(const AttentionSizes &s, int row) {
    uint32_t quotient = __umulhi((uint32_t)row, s.group_factor) >> s.group_shift;
    return s.group == 1 ? row : (int)quotient;
}

/* What that lacks to its position among the keys. */
static __device__ __forceinline__ int attention_offset(const AttentionSizes &s, int row) {
    return row < s.split_rows ? s.first : s.second;
}

/* Elements from the place of row 0 (key 0) to that of `row` (`key`) of the same head: the binder
 * sees to it that they are fewer than 2^31. */
struct QueryRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int row) const {
        int position = attention_position(s, row);
        return position * (s.kv_heads * s.group * s.head) + (row - position * s.group) * s.head;
    }
    __device__ __forceinline__ int width(void) const {
        return s.head;
    }
};
struct KeyRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int key) const {
        return key * (s.kv_heads * s.head);
    }
    __device__ __forceinline__ int width(void) const {
        return s.head;
    }
};
/* The same of what has a value's numbers: o and its gradient, and v. */
struct OutRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int row) const {
        int position = attention_position(s, row);
        return position * (s.kv_heads * s.group * s.values) + (row - position * s.group) * s.values;
    }
    __device__ __forceinline__ int width(void) const {
        return s.values;
    }
};
struct ValueRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int key) const {
        return key * (s.kv_heads * s.values);
    }
    __device__ __forceinline__ int width(void) const {
        return s.values;
    }
};

/* Where gradients go: `row` numbers from a position's to the next's. */
struct QueryGradients {
    const AttentionSizes &s;
    int row;
    __device__ __forceinline__ int operator()(int query) const {
        int position = attention_position(s, query);
        return position * row + (query - position * s.group) * s.head;
    }
    __device__ __forceinline__ int width(void) const {
        return s.head;
    }
    __device__ __forceinline__ int64_t first(const AttentionPlace &p) const {
        return (int64_t)p.batch * s.seq * row + p.head * s.group * s.head;
    }
};
/* Of keys, or of values, `head` numbers each. */
struct KeyGradients {
    const AttentionSizes &s;
    int row, head;
    __device__ __forceinline__ int operator()(int key) const {
        return key * row;
    }
    __device__ __forceinline__ int width(void) const {
        return head;
    }
    __device__ __forceinline__ int64_t first(const AttentionPlace &p) const {
        return (int64_t)p.batch * s.keys * row + p.head * head;
    }
};

static __device__ __forceinline__ int64_t attention_first_query(const AttentionSizes &s,
                                                                const AttentionPlace &p) {
    return ((int64_t)p.batch * s.seq * s.kv_heads + p.head) * s.group * s.head;
}
static __device__ __forceinline__ int64_t attention_first_key(const AttentionSizes &s,
                                                              const AttentionPlace &p) {
    return ((int64_t)p.batch * s.keys * s.kv_heads + p.head) * s.head;
}
static __device__ __forceinline__ int64_t attention_first_out(const AttentionSizes &s,
                                                              const AttentionPlace &p) {
    return ((int64_t)p.batch * s.seq * s.kv_heads + p.head) * s.group * s.values;
}
static __device__ __forceinline__ int64_t attention_first_value(const AttentionSizes &s,
                                                                const AttentionPlace &p) {
    return ((int64_t)p.batch * s.keys * s.kv_heads + p.head) * s.values;
}
/* How wide the tiles of a kernel are: HEAD those of queries and keys, VALUE of values and outputs,
 * at most HEAD. Kernels for heads up to 128 have values of the same size; where they are wider, it
 * may differ, and so may what the places of rows follow from. */
template <int HEAD_, int VALUE_> struct AttentionHeads {
    static constexpr int HEAD = HEAD_, VALUE = VALUE_;
    static constexpr bool EVEN = HEAD <= 128;
    static_assert(EVEN ? VALUE == HEAD : VALUE <= HEAD, "values go out through tiles of keys");
};

/* How rows of outputs and of values follow each other: as those of queries and keys, where EVEN. */
template <bool EVEN> struct AttentionRows {
    typedef QueryRows Outs;
    typedef KeyRows Values;
};
template <> struct AttentionRows<false> {
    typedef OutRows Outs;
    typedef ValueRows Values;
};

/* Where row 0 (key 0) of a head lies, and its output (value): the same where Heads::EVEN. */
struct AttentionBase {
    int64_t head, value;
};
template <class Heads>
static __device__ __forceinline__ AttentionBase attention_query_base(const AttentionSizes &s,
                                                                     const AttentionPlace &p) {
    int64_t first = attention_first_query(s, p);
    return {first, Heads::EVEN ? first : attention_first_out(s, p)};
}
template <class Heads>
static __device__ __forceinline__ AttentionBase attention_key_base(const AttentionSizes &s,
                                                                   const AttentionPlace &p) {
    int64_t first = attention_first_key(s, p);
    return {first, Heads::EVEN ? first : attention_first_value(s, p)};
}

/* Starts copying rows of q, and behind them as many of d_o, into tiles of that form; */
template <class Heads, int ROWS, int THREADS, template <int, int> class Tile = RowTile>
static __device__ __forceinline__ void
attention_copy_rows(SharedAddress to, const AttentionSizes &s, const void *q, const void *d_o,
                    const AttentionBase &base, int first) {
    typedef Tile<Heads::HEAD, ROWS> Queries;
    if constexpr (Heads::EVEN) {
        const void *const both[2] = {q, d_o};
        tile_copy_in<Queries, ROWS, THREADS>(to, both, base.head, QueryRows{s}, first, s.rows);
    } else {
        const void *const one[1] = {q}, *const other[1] = {d_o};
        tile_copy_in<Queries, ROWS, THREADS>(to, one, base.head, QueryRows{s}, first, s.rows);
        tile_copy_in<Tile<Heads::VALUE, ROWS>, ROWS, THREADS>(
            to + ROWS * Heads::HEAD * 2, other, base.value, OutRows{s}, first, s.rows);
    }
}
/* of keys and values. */
template <class Heads, int KEYS, int THREADS, template <int, int> class Tile = RowTile>
static __device__ __forceinline__ void
attention_copy_keys(SharedAddress to, const AttentionSizes &s, const void *k, const void *v,
                    const AttentionBase &base, int first) {
    typedef Tile<Heads::HEAD, KEYS> Keys;
    if constexpr (Heads::EVEN) {
        const void *const both[2] = {k, v};
        tile_copy_in<Keys, KEYS, THREADS>(to, both, base.head, KeyRows{s}, first, s.keys);
    } else {
        const void *const one[1] = {k}, *const other[1] = {v};
        tile_copy_in<Keys, KEYS, THREADS>(to, one, base.head, KeyRows{s}, first, s.keys);
        tile_copy_in<Tile<Heads::VALUE, KEYS>, KEYS, THREADS>(
            to + KEYS * Heads::HEAD * 2, other, base.value, ValueRows{s}, first, s.keys);
    }
}

/* Where lse of a row lies. */
static __device__ __forceinline__ int64_t attention_lse_index(const AttentionSizes &s,
                                                              const AttentionPlace &p, int row) {
    int position = attention_position(s, row);
    return (((int64_t)p.batch * s.seq + position) * s.kv_heads + p.head) * s.group + row -
           position * s.group;
}

/* Documents */

/* Where those of a batch row's queries begin, by position; NULL: all is one. */
static __device__ __forceinline__ const int32_t *attention_starts(const AttentionSizes &s,
                                                                  const AttentionPlace &p) {
    return s.starts ? s.starts + (int64_t)p.batch * s.seq : nullptr;
}
/* The first key of a row's document, of rows past the end the last one's. Whatever the memory says:
 * none before the first, none past the row's own. */
static __device__ __forceinline__ int attention_document(const AttentionSizes &s,
                                                         const int32_t *starts, int row) {
    if (row >= s.rows) row = s.rows - 1;
    const int position = attention_position(s, row), own = position + attention_offset(s, row);
    const int start = starts[position];
    return start < 0 ? 0 : start < own ? start : own;
}
/* The key after its last, likewise. `starts` says which batch row; only where documents have ends.
 */
static __device__ __forceinline__ int attention_document_end(const AttentionSizes &s,
                                                             const int32_t *starts, int row) {
    if (row >= s.rows) row = s.rows - 1;
    const int position = attention_position(s, row), own = position + attention_offset(s, row);
    const int end = *(const int32_t *)((const char *)(starts + position) + s.to_ends);
    return end > s.keys ? s.keys : end > own ? end : own + 1;
}
/* The first of `end` rows that is_before(row) is not true of, as it is of all rows before: the
 * whole warp looks, 32 places at a time. */
template <class Before>
static __device__ __forceinline__ int attention_find_row(int end, const Before &is_before) {
    const int lane = thread_anew() & 31;
    int first = 0;
    while (first < end) {
        const int step = (end - first + 31) / 32, row = first + lane * step;
        const bool before = row < end && is_before(row);
        const int n_before = __popc(__ballot_sync(0xffffffffu, before));
        if (n_before == 0) break;
        const int far = first + n_before * step; /* not before, or past the end */
        first += (n_before - 1) * step + 1;
        if (far < end) end = far;
    }
    return first;
}
/* Rows of documents that begin after a key come from the result on. `end`: rows to look among. */
static __device__ __forceinline__ int
attention_next_documents(const AttentionSizes &s, const int32_t *starts, int key, int end) {
    return attention_find_row(end,
                              [&](int row) { return attention_document(s, starts, row) <= key; });
}

/* What is seen: row sees key where  position - before <= key <= position + after.  Twice keys times
 * group is less than 2^32, not than 2^31, unless there is a part of the queries only. */

/* Whether a key is later than those that a row sees: key - after > row / group + offset, without
 * the division. With the first row and the last key of two ranges: is there anything of it to hide?
 * With the last row and the first key: is all of it hidden? */
static __device__ __forceinline__ bool attention_too_late(const AttentionSizes &s, int row,
                                                          int key) {
    return (key - s.after - attention_offset(s, row)) * s.group > row;
}
/* Whether it is earlier: key + before < row / group + offset. Likewise, with the last row and the
 * first key, and with the first row and the last key. */
static __device__ __forceinline__ bool attention_too_early(const AttentionSizes &s, int row,
                                                           int key) {
    int after = key + s.before + 1 - attention_offset(s, row);
    return after <= 0 || (uint32_t)after * (uint32_t)s.group <= (uint32_t)row;
}
/* Whether it is of an earlier document; likewise. */
static __device__ __forceinline__ bool
attention_other_document(const AttentionSizes &s, const int32_t *starts, int row, int key) {
    return starts && key < attention_document(s, starts, row);
}
/* Whether it is of a later document: with the first row and the last key, and with the last row and
 * the first key. */
static __device__ __forceinline__ bool
attention_later_document(const AttentionSizes &s, const int32_t *starts, int row, int key) {
    return starts && s.to_ends && key >= attention_document_end(s, starts, row);
}
static __device__ __forceinline__ bool attention_hidden(const AttentionSizes &s,
                                                        const int32_t *starts, int row, int key) {
    return key >= s.keys || attention_too_late(s, row, key) || attention_too_early(s, row, key) ||
           attention_other_document(s, starts, row, key) ||
           attention_later_document(s, starts, row, key);
}
/* Whether none of `rows` rows sees any of `keys` keys. */
static __device__ __forceinline__ bool attention_apart(const AttentionSizes &s,
                                                       const int32_t *starts, int row, int rows,
                                                       int key, int keys) {
    return attention_too_late(s, row + rows - 1, key) ||
           attention_too_early(s, row, key + keys - 1) ||
           attention_other_document(s, starts, row, key + keys - 1) ||
           attention_later_document(s, starts, row + rows - 1, key);
}

/* The last key that a row sees. */
static __device__ __forceinline__ int attention_last_key(const AttentionSizes &s, int row) {
    uint32_t last = (uint32_t)(attention_position(s, row) + attention_offset(s, row));
    last += (uint32_t)s.after;
    return last < (uint32_t)s.keys ? (int)last : s.keys - 1;
}
/* Keys that the rows before `end` see lie before the result. */
static __device__ __forceinline__ int attention_end_key(const AttentionSizes &s, int end) {
    return attention_last_key(s, (end < s.rows ? end : s.rows) - 1) + 1;
}
/* The same where documents may have ends: no more than the last of these rows' has. */
static __device__ __forceinline__ int attention_end_document_key(const AttentionSizes &s,
                                                                 const int32_t *starts, int end) {
    const int keys = attention_end_key(s, end);
    if (!starts || !s.to_ends) return keys;
    const int document = attention_document_end(s, starts, end - 1);
    return document < keys ? document : keys;
}
/* And those that rows from `row` on see lie from the result on, a multiple of `step`. */
static __device__ __forceinline__ int
attention_begin_key(const AttentionSizes &s, const int32_t *starts, int row, int step) {
    int first = attention_position(s, row) + attention_offset(s, row) - s.before;
    if (starts) {
        int document = attention_document(s, starts, row);
        if (document > first) first = document;
    }
    return first > 0 ? first / step * step : 0;
}
/* The same of rows that see keys from `key` on, and before `end`. */
static __device__ __forceinline__ int attention_begin_row(const AttentionSizes &s, int key,
                                                          int step) {
    int first = (key - s.after - s.first) * s.group;
    if (first >= s.split_rows) {
        first = (key - s.after - s.second) * s.group;
        if (first < s.split_rows) first = s.split_rows;
    }
    return first > 0 ? first / step * step : 0;
}
/* The same where documents may have ends: those of documents that end up to `key` come before. */
static __device__ __forceinline__ int
attention_begin_document_row(const AttentionSizes &s, const int32_t *starts, int key, int step) {
    const int all = attention_begin_row(s, key, step);
    if (!starts || !s.to_ends) return all;
    const int first = attention_find_row(
        s.rows, [&](int row) { return attention_document_end(s, starts, row) <= key; });
    return first / step * step > all ? first / step * step : all;
}
static __device__ __forceinline__ int attention_all_end_row(const AttentionSizes &s, int end) {
    int first = end + s.before - s.first, second = end + s.before - s.second;
    uint32_t rows = second > 0 ? (uint32_t)second * (uint32_t)s.group : 0;
    if (rows > (uint32_t)s.split_rows) return rows < (uint32_t)s.rows ? (int)rows : s.rows;
    rows = first > 0 ? (uint32_t)first * (uint32_t)s.group : 0;
    return rows < (uint32_t)s.split_rows ? (int)rows : s.split_rows;
}

static __device__ __forceinline__ int attention_end_row(const AttentionSizes &s,
                                                        const int32_t *starts, int end) {
    int rows = attention_all_end_row(s, end);
    return starts ? attention_next_documents(s, starts, end - 1, rows) : rows;
}

/* Scores [16 MT, 8 N8] of keys past the last that a row sees become -inf; first_row and first_key
 * are this lane's. To be called in a branch: most tiles hide nothing, and tests of every element
 * would take as long as the products. */
template <int MT, int N8>
static __device__ __forceinline__ void attention_mask_late(const AttentionSizes &s, int first_row,
                                                           int first_key,
                                                           float (&scores)[MT][N8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int seen = attention_last_key(s, first_row + 16 * m + 8 * half) - first_key;
#pragma unroll
            for (int n = 0; n < N8; n++) {
                if (8 * n > seen) scores[m][n][2 * half] = bits_to_float(0xff800000u);
                if (8 * n + 1 > seen) scores[m][n][2 * half + 1] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* Likewise, of keys before the first that a row sees. */
template <int MT, int N8>
static __device__ __forceinline__ void attention_mask_early(const AttentionSizes &s, int first_row,
                                                            int first_key,
                                                            float (&scores)[MT][N8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = first_row + 16 * m + 8 * half;
            int seen = attention_position(s, row) + attention_offset(s, row) - s.before - first_key;
#pragma unroll
            for (int n = 0; n < N8; n++) {
                if (8 * n < seen) scores[m][n][2 * half] = bits_to_float(0xff800000u);
                if (8 * n + 1 < seen) scores[m][n][2 * half + 1] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* Likewise, of keys of earlier documents. */
template <int MT, int N8>
static __device__ __forceinline__ void
attention_mask_documents(const AttentionSizes &s, const int32_t *starts, int first_row,
                         int first_key, float (&scores)[MT][N8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int seen = attention_document(s, starts, first_row + 16 * m + 8 * half) - first_key;
#pragma unroll
            for (int n = 0; n < N8; n++) {
                if (8 * n < seen) scores[m][n][2 * half] = bits_to_float(0xff800000u);
                if (8 * n + 1 < seen) scores[m][n][2 * half + 1] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* Likewise, of keys of later documents; where there are none, there is no branch to take. */
template <int MT, int N8>
static __device__ __forceinline__ void
attention_mask_later_documents(const AttentionSizes &s, const int32_t *starts, int row, int key,
                               float (&scores)[MT][N8][4]) {
    if (!attention_later_document(s, starts, row, key + 8 * N8 - 1)) return;
    const int lane = thread_anew() & 31;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int end = attention_document_end(s, starts, row + lane / 4 + 16 * m + 8 * half) -
                            (key + lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < N8; n++) {
                if (8 * n >= end) scores[m][n][2 * half] = bits_to_float(0xff800000u);
                if (8 * n + 1 >= end) scores[m][n][2 * half + 1] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* Scores of 16 MT rows and 8 N8 keys from `row` and `key` on, the warp's, masked where they are
 * hidden. Documents' ends are asked about apart: kernels on wgmma do without. */
template <int MT, int N8>
static __device__ __forceinline__ void attention_mask_scores(const AttentionSizes &s,
                                                             const int32_t *starts, int row,
                                                             int key, float (&scores)[MT][N8][4]) {
    int lane = thread_anew() & 31, last = key + 8 * N8 - 1;
    if (last >= s.keys || attention_too_late(s, row, last))
        attention_mask_late(s, row + lane / 4, key + lane % 4 * 2, scores);
    if (attention_too_early(s, row + 16 * MT - 1, key))
        attention_mask_early(s, row + lane / 4, key + lane % 4 * 2, scores);
    if (attention_other_document(s, starts, row + 16 * MT - 1, key))
        attention_mask_documents(s, starts, row + lane / 4, key + lane % 4 * 2, scores);
}

/* With a soft cap, products of q and k become their tanh. To 2e-7: what scores are 1 of is a cap.
 */
template <int MT, int N8>
static __device__ __forceinline__ void attention_cap_scores(const AttentionSizes &s,
                                                            float (&scores)[MT][N8][4]) {
    if (s.cap_factor == 0) return;
    const float factor = s.cap_factor * (2 * 1.4426950408889634f);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                scores[m][n][i] =
                    1.0f - __fdividef(2.0f, 1.0f + exp2_fast(scores[m][n][i] * factor));
        }
    }
}

/* What tanh leaves of a gradient: 1 - tanh^2 of the difference of dp and delta, which is taken
 * later; nothing of hidden scores, which are -inf. */
static __device__ __forceinline__ float attention_capped(float tanh, float dp, float delta) {
    return fmaf(dp - delta, fmaxf(fmaf(-tanh, tanh, 1.0f), 0.0f), delta);
}

#endif
