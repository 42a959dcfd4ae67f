/* The running softmax of attention's forward: Dao 2023 (FlashAttention-2). */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_SOFTMAX_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_SOFTMAX_CUH

#include "runtime/cuda/kernels/attention.cuh"

/* Of a thread's two rows of 16: g and g + 8, g = lane / 4. `most` lags behind the true maximum by
 * up to 2^raise_at in weights: rescaling is then rare, and division by the sum makes the result
 * exact all the same. Sums are of this lane's columns until the end. */
struct RunningSoftmax {
    /* Less than any score, and finite, also times the highest soft cap in base 2: a row that has
     * seen nothing yet has weights of zero. */
    static constexpr float LOWEST = -1e31f;
    float most[2], sum[2];

    __device__ __forceinline__ void begin(void) {
        most[0] = most[1] = LOWEST;
        sum[0] = sum[1] = 0;
    }

    /* Where a maximum has grown, what was added up before is to be multiplied by the row's factor.
     * True, of the whole warp: somewhere it has. */
    template <int N8>
    __device__ __forceinline__ bool raise(float scale_log2, float raise_at,
                                          const float (&scores)[N8][4], float (&factor)[2]) {
        bool grown = false;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = scores[0][2 * half], old = most[half];
#pragma unroll
            for (int n = 0; n < N8; n++) {
                top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            bool grows = (top - old) * scale_log2 > raise_at;
            most[half] = grows ? top : old;
            factor[half] = grows ? exp2_fast((old - top) * scale_log2) : 1.0f;
            grown |= grows;
        }
        if (!__any_sync(0xffffffffu, grown)) return false;
        sum[0] *= factor[0];
        sum[1] *= factor[1];
        return true;
    }

    /* Scores become weights, and are added up. */
    template <int N8>
    __device__ __forceinline__ void weigh(float scale_log2, float (&scores)[N8][4]) {
        float shift[2] = {most[0] * scale_log2, most[1] * scale_log2};
#pragma unroll
        for (int n = 0; n < N8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = exp2_fast(fmaf(scores[n][i], scale_log2, -shift[i / 2]));
                scores[n][i] = weight;
                sum[i / 2] += weight;
            }
        }
    }

    /* What rows first_row... are to be multiplied by; writes lse. */
    __device__ __forceinline__ void finish(const AttentionForwardArgs &a,
                                           const AttentionPlace &place, int first_row,
                                           float (&factor)[2]) {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = first_row + 8 * half + lane / 4;
            float all = sum[half];
            all += __shfl_xor_sync(0xffffffffu, all, 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            factor[half] = 1.0f / all;
            if (lane % 4 == 0 && row < a.sizes.rows) {
                a.lse[attention_lse_index(a.sizes, place, row)] =
                    fmaf(most[half], a.sizes.lse_scale, logf(all));
                if (a.largest) {
                    a.largest[attention_lse_index(a.sizes, place, row)] =
                        most[half] * a.sizes.lse_scale;
                }
            }
        }
    }
};

/* Accumulators of 16 rows times their rows' factors. */
template <int N8>
static __device__ __forceinline__ void rescale(float (&acc)[N8][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < N8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) acc[n][i] *= factor[i / 2];
    }
}

#endif
