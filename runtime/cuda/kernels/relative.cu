/* Scores of attention and their biases by relative position (ir/ops/relative.h). */
#include "runtime/cuda/kernels/vector.cuh"

static __device__ __forceinline__ int64_t query_of(const RelativeArgs &a, int64_t row) {
    return row + (row < a.split ? a.first : a.second);
}

/* The last bucket of a side that begins at `distance` or before. */
static __device__ __forceinline__ int side_bucket(const RelativeArgs &a, int64_t distance) {
    int k = 0;
    for (int step = RELATIVE_MOST / 2; step > 0; step /= 2) {
        if (k + step < a.n && a.from[k + step] <= distance) k += step;
    }
    return k;
}

/* A block per row of scores. */
KERNEL_FUNCTION __launch_bounds__(RELATIVE_THREADS) relative_bias(RelativeArgs a) {
    const int64_t row = blockIdx.x, query = query_of(a, row % a.seq);
    const int64_t head = row / a.seq % a.heads;
    const float *x = a.scores + row * a.keys;
    float *y = a.out + row * a.keys;
    for (int64_t key = threadIdx.x; key < a.keys; key += blockDim.x) {
        const int64_t ahead = key - query;
        if (a.causal && ahead > 0) {
            y[key] = a.hidden;
            continue;
        }
        const int bucket = side_bucket(a, ahead < 0 ? -ahead : ahead) + (ahead > 0 ? a.n : 0);
        y[key] = x[key] + a.table[bucket * a.heads + head];
    }
}

/* A block per bucket and head; a thread adds up whole rows' keys of the bucket, the block their
 * sums, in an order that sizes alone decide. */
KERNEL_FUNCTION __launch_bounds__(RELATIVE_THREADS) relative_bias_grad(RelativeArgs a) {
    const int head = (int)(blockIdx.x % a.heads), bucket = (int)(blockIdx.x / a.heads);
    const bool behind = bucket >= a.n;
    const int k = behind ? bucket - a.n : bucket;
    const int64_t nearest = behind && a.from[k] == 0 ? 1 : a.from[k];
    const int64_t farthest = (int64_t)a.from[k + 1] - 1;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < a.outer * a.seq; i += blockDim.x) {
        const int64_t row = (i / a.seq * a.heads + head) * a.seq + i % a.seq;
        const int64_t query = query_of(a, i % a.seq);
        int64_t key = behind ? query + nearest : query - farthest;
        int64_t end = (behind ? query + farthest : query - nearest) + 1;
        if (key < 0) key = 0;
        if (end > a.keys) end = a.keys;
        for (; key < end; key++) sum += a.scores[row * a.keys + key];
    }
    const double all = block_total<RELATIVE_THREADS>(sum);
    if (threadIdx.x == 0) a.out[blockIdx.x] = (float)all;
}
