/* What the attention kernels share: which block computes what, where rows lie, and tiles in shared
 * memory.
 *
 * A tile is [rows][HEAD] of T, bf16_t or f16_t, HEAD the next of 32, 64, 128; what lies beyond
 * `head`, or beyond the last row, is zero. 16-byte chunks of a row are permuted by the row's
 * number, so that the eight rows of an 8 x 8 matrix lie in different banks, for the tensor cores,
 * copies in and copies out.
 */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_CUH

#include "runtime/cuda/kernels/tensor.cuh"

/* What follows from it is computed where it is used: registers are for accumulators. */
static __device__ __forceinline__ int thread_anew(void) {
    return renew((int)threadIdx.x);
}

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
};
struct KeyRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int key) const {
        return key * (s.kv_heads * s.head);
    }
};
/* The same of what has a value's numbers: o and its gradient, and v and its. */
struct OutRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int row) const {
        int position = attention_position(s, row);
        return position * (s.kv_heads * s.group * s.values) + (row - position * s.group) * s.values;
    }
};
struct ValueRows {
    const AttentionSizes &s;
    __device__ __forceinline__ int operator()(int key) const {
        return key * (s.kv_heads * s.values);
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
/* Rows of documents that begin after a key come from the result on: the whole warp looks, 32 places
 * at a time. `end`: rows to look among. */
static __device__ __forceinline__ int
attention_next_documents(const AttentionSizes &s, const int32_t *starts, int key, int end) {
    const int lane = thread_anew() & 31;
    int first = 0;
    while (first < end) {
        const int step = (end - first + 31) / 32, row = first + lane * step;
        const bool before = row < end && attention_document(s, starts, row) <= key;
        const int n_before = __popc(__ballot_sync(0xffffffffu, before));
        if (n_before == 0) break;
        const int far = first + n_before * step; /* not before, or past the end */
        first += (n_before - 1) * step + 1;
        if (far < end) end = far;
    }
    return first;
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
static __device__ __forceinline__ bool attention_hidden(const AttentionSizes &s,
                                                        const int32_t *starts, int row, int key) {
    return key >= s.keys || attention_too_late(s, row, key) || attention_too_early(s, row, key) ||
           attention_other_document(s, starts, row, key);
}
/* Whether none of `rows` rows sees any of `keys` keys. */
static __device__ __forceinline__ bool attention_apart(const AttentionSizes &s,
                                                       const int32_t *starts, int row, int rows,
                                                       int key, int keys) {
    return attention_too_late(s, row + rows - 1, key) ||
           attention_too_early(s, row, key + keys - 1) ||
           attention_other_document(s, starts, row, key + keys - 1);
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

/* Scores of 16 MT rows and 8 N8 keys from `row` and `key` on, the warp's, masked where they are
 * hidden. */
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

/* Tiles */

/* Rows one after the other. */
template <int HEAD_> struct RowTile {
    static constexpr int HEAD = HEAD_;
    static_assert(HEAD == 32 || HEAD == 64 || HEAD == 128, "chunks in a row: 4, 8, 16");

    static __device__ __forceinline__ int twist(int row) {
        return HEAD == 32 ? row >> 1 & 3 : row & 7;
    }
    /* Bytes from the tile's beginning to 16-byte chunk `chunk` of `row`. */
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * HEAD * 2 + (chunk ^ twist(row)) * 16;
    }
};

/* Starts copying rows `first`... of a head, of N arrays of one shape, into N tiles of ROWS rows one
 * after the other. The head's row 0 is at from[n] + base; rows(r) places row r. */
template <class Tile, int ROWS, int THREADS, int N, class Rows>
static __device__ __forceinline__ void tile_copy_in(SharedAddress tile,
                                                    const void *const (&from)[N], int64_t base,
                                                    const Rows &rows, int first, int end) {
    constexpr int CHUNKS = Tile::HEAD / 8, AT_ONCE = THREADS / CHUNKS;
    static_assert(ROWS % AT_ONCE == 0, "every thread copies equally many chunks");
    static_assert(AT_ONCE % 8 == 0, "its chunks are permuted alike");
    int thread = thread_anew(), chunk = thread & (CHUNKS - 1);
    int row = (int)((uint32_t)thread / CHUNKS);
    bool inside = chunk * 8 < rows.s.head;
    SharedAddress to = tile + Tile::offset(row, chunk);
    row += first;
#pragma unroll
    for (int i = 0; i < ROWS / AT_ONCE; i++, row += AT_ONCE) {
        int bytes = inside && row < end ? 16 : 0;
        int64_t offset = base + rows(row) + chunk * 8;
#pragma unroll
        for (int n = 0; n < N; n++) {
            copy_async_16(to + i * Tile::offset(AT_ONCE, 0) + n * ROWS * Tile::HEAD * 2,
                          (const uint16_t *)from[n] + offset, bytes);
        }
    }
}

/* One warp's rows of a tile, from `first_in_tile` on, to rows `first`... of a head. */
template <class Tile, int ROWS, class Rows>
static __device__ __forceinline__ void tile_copy_out(const unsigned char *tile, int first_in_tile,
                                                     void *to, const Rows &rows, int first,
                                                     int end) {
    constexpr int CHUNKS = Tile::HEAD / 8, AT_ONCE = 32 / CHUNKS;
    int lane = (int)threadIdx.x % 32, chunk = lane % CHUNKS, row = lane / CHUNKS;
    bool inside = chunk * 8 < rows.s.head;
#pragma unroll
    for (int i = 0; i < ROWS / AT_ONCE; i++, row += AT_ONCE) {
        if (!inside || first + row >= end) continue;
        *reinterpret_cast<uint4 *>((uint16_t *)to + rows(first + row) + chunk * 8) =
            *reinterpret_cast<const uint4 *>(tile + Tile::offset(first_in_tile + row, chunk));
    }
}

/* Accumulators of 16 MT rows and 8 N8 columns of a tile, times a factor per row, as T into the
 * tile from row first_in_tile and 16-byte chunk first_chunk on. */
template <typename T, class Tile, int MT, int N8>
static __device__ __forceinline__ void tile_put(unsigned char *tile, int first_in_tile,
                                                int first_chunk, const float (&acc)[MT][N8][4],
                                                const float (&factor)[MT][2]) {
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = first_in_tile + m * 16 + half * 8 + g;
#pragma unroll
            for (int n = 0; n < N8; n++) {
                *reinterpret_cast<uint32_t *>(tile + Tile::offset(row, first_chunk + n) + t * 4) =
                    Low<T>::pack(acc[m][n][2 * half] * factor[m][half],
                                 acc[m][n][2 * half + 1] * factor[m][half]);
            }
        }
    }
}

/* Fragments */

/* This lane's part in ldmatrix over a tile: `at(chunk16, row)` is its address for the 16 x 16
 * elements from row `row` (a multiple of 16, a constant) and column 16 chunk16. */
template <int HEAD> struct TileLane {
    SharedAddress base;
    int twist;

    /* Matrices in the order (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15): an A
     * operand; transposed, a B operand whose k runs along the tile's rows. */
    static __device__ __forceinline__ TileLane by_rows(SharedAddress tile, int first) {
        int lane = thread_anew() & 31, row = first + (lane & 15);
        return {tile + row * HEAD * 2, (lane >> 4 ^ RowTile<HEAD>::twist(row)) * 16};
    }
    /* (0-7, 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15): a B operand whose k runs along the
     * tile's columns. */
    static __device__ __forceinline__ TileLane by_columns(SharedAddress tile, int first) {
        int lane = thread_anew() & 31, row = first + (lane & 7) + (lane >> 4) * 8;
        return {tile + row * HEAD * 2, ((lane >> 3 & 1) ^ RowTile<HEAD>::twist(row)) * 16};
    }
    /* 64 columns further on, `times` times: beyond what is permuted. */
    __device__ __forceinline__ TileLane columns_64(int times) const {
        return {base + times * 128, twist};
    }
    __device__ __forceinline__ SharedAddress at(int chunk16, int row) const {
        return base + ((chunk16 * 32) ^ twist) + row * HEAD * 2;
    }
};

/* acc[MT][N / 8] += A B^T: A 16 MT rows of one tile, B N rows of another, over HEAD columns. */
template <typename T, int MT, int N, int HEAD>
static __device__ __forceinline__ void
multiply_rows(float (&acc)[MT][N / 8][4], const TileLane<HEAD> &a, const TileLane<HEAD> &b) {
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) ldmatrix_x4(fa[m], a.at(k, m * 16));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t fb[4];
            ldmatrix_x4(fb, b.at(k, n * 16));
            const uint32_t low[2] = {fb[0], fb[1]}, high[2] = {fb[2], fb[3]};
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(acc[m][2 * n], fa[m], low);
                mma<T>(acc[m][2 * n + 1], fa[m], high);
            }
        }
    }
}

/* acc[MT][N8] += A B: A fragments in registers, B K rows of a tile, 8 N8 of its columns. */
template <typename T, int MT, int K, int N8, int HEAD>
static __device__ __forceinline__ void multiply_fragments(float (&acc)[MT][N8][4],
                                                          const uint32_t (&fa)[K / 16][MT][4],
                                                          const TileLane<HEAD> &b) {
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
#pragma unroll
        for (int n = 0; n < N8 / 2; n++) {
            uint32_t fb[4];
            ldmatrix_x4_trans(fb, b.at(n, k * 16));
            const uint32_t low[2] = {fb[0], fb[1]}, high[2] = {fb[2], fb[3]};
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(acc[m][2 * n], fa[k][m], low);
                mma<T>(acc[m][2 * n + 1], fa[k][m], high);
            }
        }
    }
}

/* Accumulators [16 MT, 16 K16], of columns from 8 first on, rounded to T, as A operands over
 * columns: the layouts agree. */
template <typename T, int MT, int K16, int N8>
static __device__ __forceinline__ void
pack_fragments(uint32_t (&fa)[K16][MT][4], const float (&acc)[MT][N8][4], int first = 0) {
#pragma unroll
    for (int k = 0; k < K16; k++) {
        int n = first + 2 * k;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            fa[k][m][0] = Low<T>::pack(acc[m][n][0], acc[m][n][1]);
            fa[k][m][1] = Low<T>::pack(acc[m][n][2], acc[m][n][3]);
            fa[k][m][2] = Low<T>::pack(acc[m][n + 1][0], acc[m][n + 1][1]);
            fa[k][m][3] = Low<T>::pack(acc[m][n + 1][2], acc[m][n + 1][3]);
        }
    }
}

template <int MT, int N>
static __device__ __forceinline__ void clear_fragments(float (&acc)[MT][N][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][n][i] = 0;
        }
    }
}

#endif
