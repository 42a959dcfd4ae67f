/* Linear attention, and what joins the parts of its gradient (linear_attention_grad.cu): see
 * ir/ops/linear_attention.c for the equations and papers. */
#include "runtime/cuda/kernels/linear_attention.cuh"

template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void
forward_position(const LinearAttentionArgs &a, const Lane<K> &lane, int p,
                 const Stage<K, 1, BY_KEYS> &stage, float *o, float *errors,
                 float (&state)[Split<K>::ROWS][COLUMNS]) {
    enum { ROWS = Split<K>::ROWS, TILE = Split<K>::TILE };
    float k[ROWS], q[ROWS], u[COLUMNS], sum[COLUMNS] = {0, 0, 0, 0};
    if constexpr (BY_KEYS) decay_state<K>(stage, lane, p, state);
    get_rows<K>(stage.k + p * K, lane, k);
    get_rows<K>(stage.q + p * K, lane, q);
    get_columns(stage.columns + p * TILE, lane.column, u);
    if constexpr (!BY_KEYS) decay_state<K>(stage, lane, p, state);
    if constexpr (DELTA) {
        /* What is written are the errors as they are kept, so that the gradient has the same. */
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[j] = fmaf(state[i][j], k[i], sum[j]);
        }
        const float had = sum_rows<K>(sum, lane);
        const float error = round_as(a.sizes.dtype, stage.columns[p * TILE + lane.own] - had);
        if (lane.owner) errors[p * TILE + lane.own] = error;
        spread<K>(stage.write[p] * error, u);
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) sum[j] = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            state[i][j] = fmaf(k[i], u[j], state[i][j]);
            sum[j] = fmaf(state[i][j], q[i], sum[j]);
        }
    }
    const float read = a.sizes.scale * sum_rows<K>(sum, lane);
    if (lane.owner) o[p * TILE + lane.own] = read;
}

template <int K, bool DELTA, bool BY_KEYS>
static __device__ __forceinline__ void forward(const LinearAttentionArgs &a) {
    enum { RUN = Split<K>::RUN, TILE = Split<K>::TILE, ROWS = Split<K>::ROWS };
    DYNAMIC_SHARED(float, shared);
    const LinearAttentionSizes &s = a.sizes;
    const void *const operands[1] = {a.v};
    const Place place = find_place<K>(s);
    const Lane<K> lane(false);
    Stage<K, 1, BY_KEYS> stage;
    float *o = stage.lay(shared), *errors = o + RUN * TILE;
    float state[ROWS][COLUMNS] = {};
    stage.start(s, place, {0, min((int)RUN, s.seq)}, operands);
    for (int first = 0; first < s.seq; first += RUN) {
        const Run run = {first, min((int)RUN, s.seq - first)};
        stage.finish(s, place, run, operands);
        if (first + RUN < s.seq) {
            stage.start(s, place, {first + RUN, min((int)RUN, s.seq - first - RUN)}, operands);
        }
#pragma unroll 2
        for (int p = 0; p < run.n; p++) {
            forward_position<K, DELTA, BY_KEYS>(a, lane, p, stage, o, errors, state);
        }
        __syncthreads();
        put_columns<K>(s, place, run, o, a.o);
        if (DELTA) put_columns<K>(s, place, run, errors, a.errors);
    }
}

#define FORWARD_KERNEL(keys)                                                                       \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_ATTENTION_THREADS(keys), 3)                           \
        linear_attention_##keys(LinearAttentionArgs a) {                                           \
        if (a.sizes.write) {                                                                       \
            forward<keys, true, false>(a);                                                         \
        } else {                                                                                   \
            forward<keys, false, false>(a);                                                        \
        }                                                                                          \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_ATTENTION_THREADS(keys), 3)                           \
        linear_attention_keys_##keys(LinearAttentionArgs a) {                                      \
        if (a.sizes.write) {                                                                       \
            forward<keys, true, true>(a);                                                          \
        } else {                                                                                   \
            forward<keys, false, true>(a);                                                         \
        }                                                                                          \
    }
FORWARD_KERNEL(16)
FORWARD_KERNEL(32)
FORWARD_KERNEL(64)
FORWARD_KERNEL(128)
FORWARD_KERNEL(256)

/* A thread per number of a result. */
KERNEL_FUNCTION __launch_bounds__(256) linear_attention_join(LinearAttentionJoinArgs a) {
    enum { AHEAD = 4 }; /* loads under way */
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = a.end - a.first;
    const int64_t row = at / a.keys, group = row % a.groups, position = row / a.groups;
    if (position >= a.batch * n) return;
    const int64_t batch = position / n, t = position % n;
    const float *from =
        a.sums + (((batch * a.groups + group) * a.parts) * n + t) * a.keys + at % a.keys;
    const int64_t to = ((batch * a.seq + a.first + t) * a.groups + group) * a.keys + at % a.keys;
    float sum = a.addend ? a.addend[to] : 0.0f;
    for (int i = 0; i < a.parts; i += AHEAD) {
        float terms[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            terms[j] = i + j < a.parts ? from[(i + j) * n * a.keys] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) sum += terms[j];
    }
    store_as(a.dtype, a.out, to, sum);
}

/* The decay of a position acts on the product of the state before it with its gradient: what later
 * positions read of it, less what they wrote. Behind a decay to nothing there is neither. A warp
 * per head goes backwards; lane 0 has the latest of 32 positions. */
KERNEL_FUNCTION __launch_bounds__(32 * LINEAR_ATTENTION_STREAMS)
    linear_attention_decays(LinearAttentionDecaysArgs a) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t stream = (int64_t)blockIdx.x * LINEAR_ATTENTION_STREAMS + threadIdx.x / 32;
    if (stream >= a.streams) return;
    const int64_t first = stream / a.heads * a.seq * a.heads + stream % a.heads;
    double later = 0;
    for (int last = a.seq - 1; last >= 0; last -= 32) {
        const int t = last - lane;
        double sum = 0;
        int begins = 0; /* anew, since lane 0 */
        if (t >= 0) {
            for (int i = 0; i < a.tiles; i++) {
                const int64_t at = (stream * a.tiles + i) * a.seq + t;
                sum += (double)a.again[at] - (double)a.reverse[at];
            }
            begins = expf(a.decay[first + (int64_t)t * a.heads]) == 0.0f;
            if (begins) sum = 0;
        }
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            const double more = __shfl_up_sync(0xffffffffu, sum, lanes);
            const int before = __shfl_up_sync(0xffffffffu, begins, lanes);
            if (lane >= lanes) {
                if (!begins) sum += more;
                begins |= before;
            }
        }
        if (!begins) sum += later;
        if (t >= 0) a.ddecay[first + (int64_t)t * a.heads] = (float)sum;
        later = __shfl_sync(0xffffffffu, sum, 31);
    }
}

/* The same for each key of a head by itself: a thread goes backwards. */
KERNEL_FUNCTION __launch_bounds__(LINEAR_ATTENTION_KEY_THREADS)
    linear_attention_key_decays(LinearAttentionKeyDecaysArgs a) {
    enum { AHEAD = 8 }; /* positions whose loads are under way */
    const int64_t at = (int64_t)blockIdx.x * LINEAR_ATTENTION_KEY_THREADS + threadIdx.x;
    const int64_t stream = at / a.keys, head = stream % a.heads;
    const int key = (int)(at % a.keys);
    if (stream >= a.streams) return;
    const int64_t first = (stream / a.heads * a.seq * a.heads + head) * a.keys + key;
    const int64_t step = (int64_t)a.heads * a.keys;
    const float *parts = a.parts + stream * a.tiles * a.seq * a.keys + key;
    double sum = 0;
    for (int last = a.seq - 1; last >= 0; last -= AHEAD) {
        double terms[AHEAD] = {};
        float decays[AHEAD] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (last < i) continue;
            decays[i] = a.decay[first + (last - i) * step];
            for (int tile = 0; tile < a.tiles; tile++) {
                terms[i] += (double)parts[((int64_t)tile * a.seq + last - i) * a.keys];
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (last < i) continue;
            sum = expf(decays[i]) == 0.0f ? 0 : sum + terms[i];
            a.ddecay[first + (last - i) * step] = (float)sum;
        }
    }
}
