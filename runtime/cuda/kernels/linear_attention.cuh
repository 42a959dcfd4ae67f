/* A state [keys, tile of values] in a block's registers, along a sequence: what linear attention
 * and the two sweeps of its gradient share.
 *
 * Operands of a run of positions lie in shared memory as f32. They come there in two steps where
 * rows are of whole 16 bytes: copied as they are while the run before is worked on, then widened.
 */
#ifndef RUNTIME_CUDA_KERNELS_LINEAR_ATTENTION_CUH
#define RUNTIME_CUDA_KERNELS_LINEAR_ATTENTION_CUH

#include "runtime/cuda/kernels/tensor.cuh"
#include "runtime/cuda/kernels/vector.cuh"

enum { COLUMNS = LINEAR_ATTENTION_COLUMNS };

template <int K> struct Split {
    enum {
        LANES = LINEAR_ATTENTION_LANES(K),
        GROUPS = 32 / LANES, /* of columns, in a warp */
        ROWS = K / LANES,    /* in fours: number i of lane r are rows 4 (r + LANES i) on */
        TILE = LINEAR_ATTENTION_TILE(K),
        RUN = LINEAR_ATTENTION_RUN(K),
        WARPS = LINEAR_ATTENTION_WARPS(K),
        /* Sums over the groups leave each of them its share of the rows: halves of the fours while
         * there are several, then of one. */
        GROUPS_LOG2 = GROUPS == 2   ? 1
                      : GROUPS == 4 ? 2
                                    : 3,
        FOURS_LOG2 = ROWS == 4   ? 0
                     : ROWS == 8 ? 1
                                 : 2,
        BY_FOURS = GROUPS_LOG2 < FOURS_LOG2 ? GROUPS_LOG2 : FOURS_LOG2,
        WITHIN = GROUPS_LOG2 - BY_FOURS < 2 ? GROUPS_LOG2 - BY_FOURS : 2,
        SAME = GROUPS_LOG2 - BY_FOURS - WITHIN, /* bits of groups that have the same rows */
        SHARE = ROWS >> (BY_FOURS + WITHIN),
    };
};

/* A thread's place in its warp. */
template <int K> struct Lane {
    int row;    /* among those that share columns */
    int group;  /* of columns */
    int column; /* of the tile: its group's first */
    int own;    /* column whose sum over rows it gets */
    bool owner; /* alone, or first of several that get it */
    int swap;   /* its fours are number i ^ swap: sums over groups then keep the first half */

    __device__ __forceinline__ Lane(bool sums_groups) {
        using S = Split<K>;
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        row = lane % S::LANES;
        group = lane / S::LANES;
        column = (warp * S::GROUPS + group) * COLUMNS;
        own = column + row / (S::LANES / COLUMNS);
        owner = row % (S::LANES / COLUMNS) == 0;
        swap = sums_groups
                   ? group >> (S::GROUPS_LOG2 - S::BY_FOURS) << (S::FOURS_LOG2 - S::BY_FOURS)
                   : 0;
    }
};

/* Which columns a block has of which head. */
struct Place {
    int64_t row, head; /* of position 0: [batch, seq, groups], [batch, seq, groups, heads] */
    int first, n;      /* values */
};

template <int K> static __device__ __forceinline__ Place find_place(const LinearAttentionSizes &s) {
    const int64_t stream = blockIdx.x / s.tiles, group = stream / s.heads;
    Place place;
    place.row = group / s.groups * s.seq * s.groups + group % s.groups;
    place.head = place.row * s.heads + stream % s.heads;
    place.first = (int)(blockIdx.x % s.tiles) * Split<K>::TILE;
    place.n = min(s.values - place.first, (int)Split<K>::TILE);
    return place;
}

/* Positions [first, first + n). */
struct Run {
    int first, n;
};

static __device__ __forceinline__ int bytes_of(int dtype) {
    return dtype == DTYPE_F32 ? 4 : 2;
}
static __device__ __forceinline__ float4 load_four(int dtype, const void *from) {
    if (dtype == DTYPE_F32) return *(const float4 *)from;
    const uint2 pairs = *(const uint2 *)from;
    float4 x;
    if (dtype == DTYPE_BF16) {
        Low<bf16_t>::unpack(pairs.x, x.x, x.y);
        Low<bf16_t>::unpack(pairs.y, x.z, x.w);
    } else {
        Low<f16_t>::unpack(pairs.x, x.x, x.y);
        Low<f16_t>::unpack(pairs.y, x.z, x.w);
    }
    return x;
}
static __device__ __forceinline__ void store_four(int dtype, void *to, float4 x) {
    if (dtype == DTYPE_F32) {
        *(float4 *)to = x;
    } else if (dtype == DTYPE_BF16) {
        *(uint2 *)to = make_uint2(Low<bf16_t>::pack(x.x, x.y), Low<bf16_t>::pack(x.z, x.w));
    } else {
        *(uint2 *)to = make_uint2(Low<f16_t>::pack(x.x, x.y), Low<f16_t>::pack(x.z, x.w));
    }
}

/* One operand: `width` numbers at each position, `stride` apart. Whatever it is computed from stays
 * in constant memory, so that no pointer takes registers from the state. */
struct Operand {
    const char *at;
    int64_t stride;
    int width;
};
static __device__ __forceinline__ Operand of_rows(const LinearAttentionSizes &s, const void *x,
                                                  const Place &place) {
    return {(const char *)x + place.row * s.keys * bytes_of(s.dtype),
            (int64_t)s.groups * s.keys * bytes_of(s.dtype), s.keys};
}
static __device__ __forceinline__ Operand of_columns(const LinearAttentionSizes &s, const void *x,
                                                     const Place &place) {
    return {(const char *)x + (place.head * s.values + place.first) * bytes_of(s.dtype),
            (int64_t)s.groups * s.heads * s.values * bytes_of(s.dtype), place.n};
}

/* Starts copies of an operand as it is; raw: PADDED floats for each position. */
template <int PADDED>
static __device__ __forceinline__ void start_copy(const LinearAttentionSizes &s, const Operand &x,
                                                  Run run, float *raw) {
    const int chunks = x.width * bytes_of(s.dtype) / 16;
    for (int i = (int)threadIdx.x; i < run.n * chunks; i += (int)blockDim.x) {
        const int p = i / chunks, at = i % chunks * 16;
        copy_async_16(shared_address((char *)(raw + p * PADDED) + at),
                      x.at + (run.first + p) * x.stride + at, 16);
    }
}

/* to [run, PADDED]: f32, zeros behind its width. Warps stay together in the loops: a barrier
 * follows. */
template <int PADDED>
static __device__ __forceinline__ void take(const LinearAttentionSizes &s, const Operand &x,
                                            Run run, const float *raw, float *to) {
    const int step = s.vectors ? 4 : 1, end = run.n * PADDED;
    for (int first = 0; first < end; first += step * (int)blockDim.x) {
        const int i = first + step * (int)threadIdx.x, p = i / PADDED, at = i % PADDED;
        const bool there = i < end && at < x.width;
        if (s.vectors) {
            float4 four = make_float4(0, 0, 0, 0);
            if (there) {
                four =
                    load_four(s.dtype, (const char *)(raw + p * PADDED) + at * bytes_of(s.dtype));
            }
            if (i < end) *(float4 *)(to + i) = four;
        } else {
            float one = 0;
            if (there) one = load_as(s.dtype, x.at + (run.first + p) * x.stride, at);
            if (i < end) to[i] = one;
        }
    }
}

/* Decays of keys, which are always f32 and whose rows are whole 16 bytes where `vectors`. */
static __device__ __forceinline__ const float *key_decays(const LinearAttentionSizes &s,
                                                          const Place &place, int position) {
    return s.decay + (place.head + (int64_t)position * s.groups * s.heads) * s.keys;
}
template <int K>
static __device__ __forceinline__ void start_decays(const LinearAttentionSizes &s,
                                                    const Place &place, Run run, float *raw) {
    const int chunks = s.keys / 4;
    for (int i = (int)threadIdx.x; i < run.n * chunks; i += (int)blockDim.x) {
        const int p = i / chunks, at = i % chunks * 4;
        copy_async_16(shared_address(raw + p * K + at), key_decays(s, place, run.first + p) + at,
                      16);
    }
}
/* to [run, K]: their powers, zeros behind the keys. */
template <int K>
static __device__ __forceinline__ void take_decays(const LinearAttentionSizes &s,
                                                   const Place &place, Run run, const float *raw,
                                                   float *to) {
    for (int i = (int)threadIdx.x; i < run.n * K; i += (int)blockDim.x) {
        const int p = i / K, at = i % K;
        float x = 0;
        if (at < s.keys) {
            x = expf(s.vectors ? raw[i] : key_decays(s, place, run.first + p)[at]);
        }
        to[i] = x;
    }
}

/* The reverse: results of a run, from [run, TILE] in shared memory. */
template <int K>
static __device__ __forceinline__ void put_columns(const LinearAttentionSizes &s,
                                                   const Place &place, Run run, const float *from,
                                                   void *out) {
    enum { TILE = Split<K>::TILE };
    const Operand to = of_columns(s, out, place);
    const int step = s.vectors ? 4 : 1;
    for (int i = step * (int)threadIdx.x; i < run.n * TILE; i += step * (int)blockDim.x) {
        const int p = i / TILE, at = i % TILE;
        char *row = const_cast<char *>(to.at) + (run.first + p) * to.stride;
        if (at >= to.width) continue;
        if (s.vectors) {
            store_four(s.dtype, row + at * bytes_of(s.dtype), *(const float4 *)(from + i));
        } else {
            store_as(s.dtype, row, at, from[i]);
        }
    }
}

/* The operands of a run, N of columns among them; BY_KEYS: decays of keys. */
template <int K, int N, bool BY_KEYS> struct Stage {
    enum {
        RUN = Split<K>::RUN,
        TILE = Split<K>::TILE,
        SIZE = 2 * K + N * TILE,
        DECAYS = BY_KEYS ? RUN * K : RUN
    };
    float *q, *k, *columns, *decay, *write, *raw; /* columns [N, run, TILE]; decay [run] or
                                                   * [run, K] */
    float next_decay = 0, next_write = 0;         /* of the next run's position threadIdx.x */

    /* Returns what follows in shared memory. */
    __device__ __forceinline__ float *lay(float *shared) {
        q = shared;
        k = q + RUN * K;
        columns = k + RUN * K;
        decay = columns + N * RUN * TILE;
        write = decay + DECAYS;
        raw = write + RUN;
        return raw + RUN * SIZE + (BY_KEYS ? RUN * K : 0);
    }

    __device__ __forceinline__ void start(const LinearAttentionSizes &s, const Place &place,
                                          Run run, const void *const *x) {
        if ((int)threadIdx.x < run.n) {
            const int64_t at =
                place.head + (int64_t)(run.first + (int)threadIdx.x) * s.groups * s.heads;
            if constexpr (!BY_KEYS) next_decay = s.decay[at];
            next_write = s.write ? s.write[at] : 1.0f;
        }
        if (!s.vectors) return;
        start_copy<K>(s, of_rows(s, s.q, place), run, raw);
        start_copy<K>(s, of_rows(s, s.k, place), run, raw + RUN * K);
#pragma unroll
        for (int i = 0; i < N; i++) {
            start_copy<TILE>(s, of_columns(s, x[i], place), run, raw + RUN * (2 * K + i * TILE));
        }
        if constexpr (BY_KEYS) start_decays<K>(s, place, run, raw + RUN * SIZE);
        copy_async_commit();
    }

    /* What start() began, for all threads. */
    __device__ __forceinline__ void finish(const LinearAttentionSizes &s, const Place &place,
                                           Run run, const void *const *x) {
        copy_async_wait<0>();
        __syncthreads();
        if ((int)threadIdx.x < run.n) {
            if constexpr (!BY_KEYS) decay[threadIdx.x] = expf(next_decay);
            write[threadIdx.x] = next_write;
        }
        if constexpr (BY_KEYS) take_decays<K>(s, place, run, raw + RUN * SIZE, decay);
        take<K>(s, of_rows(s, s.q, place), run, raw, q);
        take<K>(s, of_rows(s, s.k, place), run, raw + RUN * K, k);
#pragma unroll
        for (int i = 0; i < N; i++) {
            take<TILE>(s, of_columns(s, x[i], place), run, raw + RUN * (2 * K + i * TILE),
                       columns + i * RUN * TILE);
        }
        __syncthreads();
    }
};

/* The thread's rows of one position. */
template <int K>
static __device__ __forceinline__ void get_rows(const float *row, const Lane<K> &lane,
                                                float (&out)[Split<K>::ROWS]) {
    using S = Split<K>;
#pragma unroll
    for (int i = 0; i < S::ROWS / 4; i++) {
        const float4 x = *(const float4 *)(row + 4 * (lane.row + S::LANES * (i ^ lane.swap)));
        out[4 * i] = x.x, out[4 * i + 1] = x.y, out[4 * i + 2] = x.z, out[4 * i + 3] = x.w;
    }
}

/* S *= decay, of the run's position p. */
template <int K, int N, bool BY_KEYS>
static __device__ __forceinline__ void decay_state(const Stage<K, N, BY_KEYS> &stage,
                                                   const Lane<K> &lane, int p,
                                                   float (&state)[Split<K>::ROWS][COLUMNS]) {
    enum { ROWS = Split<K>::ROWS };
    if constexpr (BY_KEYS) {
        float decay[ROWS];
        get_rows<K>(stage.decay + p * K, lane, decay);
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            state[i / COLUMNS][i % COLUMNS] *= decay[i / COLUMNS];
        }
    } else {
        const float decay = stage.decay[p];
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; i++) state[i / COLUMNS][i % COLUMNS] *= decay;
    }
}

static __device__ __forceinline__ void get_columns(const float *row, int column,
                                                   float (&out)[COLUMNS]) {
    const float4 x = *(const float4 *)(row + column);
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
}

/* One of two halves, the upper one for `upper`; the other goes to the lane that keeps that. */
template <int N> static __device__ __forceinline__ void halve(float *x, bool upper, int lanes) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float keep = upper ? x[i + N] : x[i], give = upper ? x[i] : x[i + N];
        x[i] = keep + __shfl_xor_sync(0xffffffffu, give, lanes);
    }
}

/* Of sums over the thread's rows, the one of its own column over all rows. */
template <int K>
static __device__ __forceinline__ float sum_rows(float (&x)[COLUMNS], const Lane<K> &lane) {
    enum { LANES = Split<K>::LANES };
    halve<2>(x, lane.row & LANES / 2, LANES / 2);
    halve<1>(x, lane.row & LANES / 4, LANES / 4);
#pragma unroll
    for (int lanes = LANES / 8; lanes > 0; lanes /= 2) {
        x[0] += __shfl_xor_sync(0xffffffffu, x[0], lanes);
    }
    return x[0];
}

/* The reverse: each lane's number of its own column to all that share columns. */
template <int K> static __device__ __forceinline__ void spread(float x, float (&out)[COLUMNS]) {
    enum { LANES = Split<K>::LANES };
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        out[j] = __shfl_sync(0xffffffffu, x, j * (LANES / COLUMNS), LANES);
    }
}

/* LEVELS times half of N numbers, which are the other lanes' other half. */
template <int N, int LEVELS> static __device__ __forceinline__ void sum_fours(float *x, int lanes) {
    if constexpr (LEVELS > 0) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) x[i] += __shfl_xor_sync(0xffffffffu, x[i + N / 2], lanes);
        sum_fours<N / 2, LEVELS - 1>(x, lanes / 2);
    }
}

/* Sums over the warp's columns of each row, to its row of shared memory [K]. */
template <int K>
static __device__ __forceinline__ void sum_groups(float (&x)[Split<K>::ROWS], const Lane<K> &lane,
                                                  float *to) {
    using S = Split<K>;
    sum_fours<S::ROWS, S::BY_FOURS>(x, 16);
    int lanes = 16 >> S::BY_FOURS;
    const int bits = lane.group >> S::SAME; /* the last WITHIN of them say which of a four */
    if constexpr (S::WITHIN >= 1) halve<2>(x, bits >> (S::WITHIN - 1) & 1, lanes), lanes /= 2;
    if constexpr (S::WITHIN >= 2) halve<1>(x, bits & 1, lanes), lanes /= 2;
    if constexpr (S::SAME == 1) x[0] += __shfl_xor_sync(0xffffffffu, x[0], lanes);
    if (lane.group & ((1 << S::SAME) - 1)) return;
    if constexpr (S::WITHIN == 0) {
#pragma unroll
        for (int i = 0; i < S::SHARE / 4; i++) {
            *(float4 *)(to + 4 * (lane.row + S::LANES * (i ^ lane.swap))) =
                make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
        }
    } else {
        const int within = (bits & ((1 << S::WITHIN) - 1)) * S::SHARE;
#pragma unroll
        for (int i = 0; i < S::SHARE; i++) {
            to[4 * (lane.row + S::LANES * lane.swap) + within + i] = x[i];
        }
    }
}

#endif
