/* The gradient of linear attention: the state runs twice, backwards for du and forwards for dq, and
 * none is stored. Both sweeps have their part of dk; decays' gradients follow from sums of q dq and
 * k dk (Yang et al. 2024, arXiv 2312.06635, section 4.4). Sums over columns: in a warp by shuffles,
 * over warps once per run, over tiles and heads by linear_attention_join. */
#include "runtime/cuda/kernels/linear_attention.cuh"

template <int K> using State = float[Split<K>::ROWS][COLUMNS];

/* The state as a launch before left it, or to the next. */
template <int K>
static __device__ __forceinline__ void load_state(const LinearAttentionGradArgs &a,
                                                  State<K> &state) {
    const float *from = a.state + (int64_t)blockIdx.x * K * Split<K>::TILE + threadIdx.x;
#pragma unroll
    for (int i = 0; i < Split<K>::ROWS * COLUMNS; i++) {
        state[i / COLUMNS][i % COLUMNS] = a.loads ? from[i * LINEAR_ATTENTION_THREADS(K)] : 0.0f;
    }
}
template <int K>
static __device__ __forceinline__ void save_state(const LinearAttentionGradArgs &a,
                                                  const State<K> &state) {
    float *to = a.state + (int64_t)blockIdx.x * K * Split<K>::TILE + threadIdx.x;
    if (!a.saves) return;
#pragma unroll
    for (int i = 0; i < Split<K>::ROWS * COLUMNS; i++) {
        to[i * LINEAR_ATTENTION_THREADS(K)] = state[i / COLUMNS][i % COLUMNS];
    }
}

/* Of one position: what decays' gradients of keys are sums of. */
static __device__ __forceinline__ float *key_parts(const LinearAttentionGradArgs &a, int t) {
    return a.decays + ((int64_t)blockIdx.x * a.sizes.seq + t) * a.sizes.keys;
}

/* What the products of a part of the decays' gradients do to what is there. */
enum Products { PRODUCTS_AWAY, PRODUCTS_SUBTRACTED, PRODUCTS_ADDED };

/* Sums over warps of a run's rows, parts [warps, run, K], times factor; `along` [run, K] is what
 * they are the gradient of. A warp does a position; returns its product of the two, on every lane.
 * Of keys' decays the products are put for each key: less them where the first sweep begins with
 * nothing, or added.
 */
template <int K, Products PRODUCTS>
static __device__ __forceinline__ float put_sums(const LinearAttentionGradArgs &a, Run run, int p,
                                                 float factor, const float *parts,
                                                 const float *along, float *out) {
    const int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    float product = 0;
    float *to =
        out + ((int64_t)blockIdx.x * (a.end - a.first) + run.first + p - a.first) * a.sizes.keys;
#pragma unroll 2
    for (int at = 0; at < K; at += 32) {
        const int i = at + lane;
        if (i < a.sizes.keys) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < Split<K>::WARPS; w++) {
                if (w < warps) sum += parts[(w * Split<K>::RUN + p) * K + i];
            }
            sum *= factor;
            if constexpr (PRODUCTS == PRODUCTS_AWAY) {
                product = fmaf(sum, along[p * K + i], product);
            } else {
                float *of = key_parts(a, run.first + p) + i;
                *of = fmaf(PRODUCTS == PRODUCTS_ADDED ? sum : -sum, along[p * K + i],
                           PRODUCTS == PRODUCTS_ADDED ? *of : 0.0f);
            }
            to[i] = sum;
        }
    }
    return PRODUCTS == PRODUCTS_AWAY ? warp_total(product) : 0.0f;
}

static __device__ __forceinline__ void put_decay(const LinearAttentionGradArgs &a, int t, float x) {
    if (threadIdx.x % 32 == 0) a.decays[(int64_t)blockIdx.x * a.sizes.seq + t] = x;
}

/* D += q do' is the gradient of the state behind a position; du = D' k, and sums are D u. Then
 * D *= decay, but with the delta rule the errors' gradient is taken out before. */
template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void
reverse_position(const LinearAttentionGradArgs &a, const Lane<K> &lane, int p,
                 const Stage<K, 2, BY_KEYS> &stage, float *du, float *sums, State<K> &state) {
    enum { ROWS = Split<K>::ROWS, TILE = Split<K>::TILE, RUN = Split<K>::RUN };
    float k[ROWS], row[ROWS], u[COLUMNS], d[COLUMNS], sum[COLUMNS] = {0, 0, 0, 0};
    const float write = stage.write[p];
    get_rows<K>(stage.k + p * K, lane, k);
    get_rows<K>(stage.q + p * K, lane, row);
    get_columns(stage.columns + p * TILE, lane.column, u);
    get_columns(stage.columns + (RUN + p) * TILE, lane.column, d);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        u[j] *= write;
        d[j] *= a.sizes.scale;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float q = row[i];
        row[i] = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            state[i][j] = fmaf(q, d[j], state[i][j]);
            sum[j] = fmaf(k[i], state[i][j], sum[j]);
            row[i] = fmaf(u[j], state[i][j], row[i]);
        }
    }
    /* As it is stored, which is what the second sweep finds. */
    const float own = round_as(a.sizes.dtype, sum_rows<K>(sum, lane));
    if (lane.owner) du[p * TILE + lane.own] = own;
    sum_groups<K>(row, lane, sums + ((int)threadIdx.x / 32 * RUN + p) * K);
    if constexpr (DELTA) {
        spread<K>(-write * own, d);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) state[i][j] = fmaf(k[i], d[j], state[i][j]);
        }
    }
    decay_state<K>(stage, lane, p, state);
}

template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void reverse(const LinearAttentionGradArgs &a) {
    enum { RUN = Split<K>::RUN, TILE = Split<K>::TILE };
    DYNAMIC_SHARED(float, shared);
    const LinearAttentionSizes &s = a.sizes;
    const void *const operands[2] = {a.v, a.d_o};
    const Place place = find_place<K>(s);
    const Lane<K> lane(true);
    Stage<K, 2, BY_KEYS> stage;
    float *du = stage.lay(shared), *sums = du + RUN * TILE;
    State<K> state;
    load_state<K>(a, state);
    /* Runs are counted from a.first, so that the last may be short. */
    int first = a.first + (a.end - a.first - 1) / RUN * RUN;
    stage.start(s, place, {first, a.end - first}, operands);
    for (; first >= a.first; first -= RUN) {
        const Run run = {first, min((int)RUN, a.end - first)};
        stage.finish(s, place, run, operands);
        if (first > a.first) stage.start(s, place, {first - RUN, RUN}, operands);
        for (int p = run.n - 1; p >= 0; p--) {
            reverse_position<K, DELTA, BY_KEYS>(a, lane, p, stage, du, sums, state);
        }
        __syncthreads();
        put_columns<K>(s, place, run, du, a.du);
        for (int p = (int)threadIdx.x / 32; p < run.n; p += (int)blockDim.x / 32) {
            enum { PRODUCTS = BY_KEYS ? PRODUCTS_SUBTRACTED : PRODUCTS_AWAY };
            const float product =
                put_sums<K, (Products)PRODUCTS>(a, run, p, 1, sums, stage.k, a.sums[0]);
            if constexpr (!BY_KEYS) put_decay(a, first + p, product);
        }
    }
    save_state<K>(a, state);
}

/* The state again, with what was written: sums are S do and, of the state that has decayed, S de.
 */
template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void
again_position(const Lane<K> &lane, int p, const Stage<K, DELTA ? 3 : 2, BY_KEYS> &stage,
               float *read, float *taken, State<K> &state) {
    enum { ROWS = Split<K>::ROWS, TILE = Split<K>::TILE, RUN = Split<K>::RUN };
    float k[ROWS], row[ROWS], u[COLUMNS], d[COLUMNS];
    const float write = stage.write[p];
    const int to = ((int)threadIdx.x / 32 * RUN + p) * K;
    if constexpr (BY_KEYS) decay_state<K>(stage, lane, p, state);
    get_rows<K>(stage.k + p * K, lane, k);
    if constexpr (!BY_KEYS) decay_state<K>(stage, lane, p, state);
    if constexpr (DELTA) {
        get_columns(stage.columns + (2 * RUN + p) * TILE, lane.column, d);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) d[j] *= write;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            row[i] = 0;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) row[i] = fmaf(state[i][j], d[j], row[i]);
        }
        sum_groups<K>(row, lane, taken + to);
    }
    get_columns(stage.columns + p * TILE, lane.column, u);
    get_columns(stage.columns + (RUN + p) * TILE, lane.column, d);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) u[j] *= write;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        row[i] = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            state[i][j] = fmaf(k[i], u[j], state[i][j]);
            row[i] = fmaf(state[i][j], d[j], row[i]);
        }
    }
    sum_groups<K>(row, lane, read + to);
}

template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void again(const LinearAttentionGradArgs &a) {
    enum { RUN = Split<K>::RUN };
    DYNAMIC_SHARED(float, shared);
    const LinearAttentionSizes &s = a.sizes;
    const void *const operands[3] = {a.v, a.d_o, a.du}; /* du: for the delta rule */
    const Place place = find_place<K>(s);
    const Lane<K> lane(true);
    Stage<K, DELTA ? 3 : 2, BY_KEYS> stage;
    float *read = stage.lay(shared), *taken = read + Split<K>::WARPS * RUN * K;
    State<K> state;
    load_state<K>(a, state);
    stage.start(s, place, {a.first, min((int)RUN, a.end - a.first)}, operands);
    for (int first = a.first; first < a.end; first += RUN) {
        const Run run = {first, min((int)RUN, a.end - first)};
        stage.finish(s, place, run, operands);
        if (first + RUN < a.end) {
            stage.start(s, place, {first + RUN, min((int)RUN, a.end - first - RUN)}, operands);
        }
        for (int p = 0; p < run.n; p++) {
            again_position<K, DELTA, BY_KEYS>(lane, p, stage, read, taken, state);
        }
        __syncthreads();
        for (int p = (int)threadIdx.x / 32; p < run.n; p += (int)blockDim.x / 32) {
            enum { PRODUCTS = BY_KEYS ? PRODUCTS_ADDED : PRODUCTS_AWAY };
            float product =
                put_sums<K, (Products)PRODUCTS>(a, run, p, s.scale, read, stage.q, a.sums[0]);
            if constexpr (DELTA)
                product +=
                    put_sums<K, (Products)PRODUCTS>(a, run, p, -1, taken, stage.k, a.sums[1]);
            if constexpr (!BY_KEYS) put_decay(a, first + p, product);
        }
    }
    save_state<K>(a, state);
}

#define GRAD_KERNELS(name, keys, by_keys)                                                          \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_ATTENTION_THREADS(keys), 3)                           \
        name##_reverse_##keys(LinearAttentionGradArgs a) {                                         \
        if (a.sizes.write) {                                                                       \
            reverse<keys, true, by_keys>(a);                                                       \
        } else {                                                                                   \
            reverse<keys, false, by_keys>(a);                                                      \
        }                                                                                          \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_ATTENTION_THREADS(keys), 3)                           \
        name##_again_##keys(LinearAttentionGradArgs a) {                                           \
        if (a.sizes.write) {                                                                       \
            again<keys, true, by_keys>(a);                                                         \
        } else {                                                                                   \
            again<keys, false, by_keys>(a);                                                        \
        }                                                                                          \
    }
GRAD_KERNELS(linear_attention, 16, false)
GRAD_KERNELS(linear_attention, 32, false)
GRAD_KERNELS(linear_attention, 64, false)
GRAD_KERNELS(linear_attention, 128, false)
GRAD_KERNELS(linear_attention, 256, false)
GRAD_KERNELS(linear_attention_keys, 16, true)
GRAD_KERNELS(linear_attention_keys, 32, true)
GRAD_KERNELS(linear_attention_keys, 64, true)
GRAD_KERNELS(linear_attention_keys, 128, true)
GRAD_KERNELS(linear_attention_keys, 256, true)
