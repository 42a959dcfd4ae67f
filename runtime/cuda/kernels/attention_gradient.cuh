/* What the kernels of attention's gradient share. */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_GRADIENT_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_GRADIENT_CUH

#include "runtime/cuda/kernels/attention.cuh"

enum { ROW_TILE = ATTENTION_STEP }; /* rows that attention_keys_* passes over, up to heads of 128 */

/* Starts copying lse2 and delta of ROWS rows: 16 bytes a thread, of THREADS of them or as many as
 * there are. */
template <int ROWS, int THREADS = 1024>
static __device__ __forceinline__ void copy_statistics(SharedAddress to,
                                                       const AttentionBackwardArgs &a,
                                                       const AttentionPlace &place, int first_row) {
    constexpr int EACH = ROWS / 4; /* threads */
    int thread = thread_anew() & (THREADS - 1), i = thread % EACH * 4;
    if (thread >= 2 * EACH) return;
    const float *from = thread < EACH ? a.lse2 : a.delta;
    copy_async_16(to + thread * 16,
                  from + (int64_t)place.pair * a.sizes.rows_padded + first_row + i, 16);
}

/* Scores [16 MT, N] of a warp's keys become -inf where hidden(row, key) says so. */
template <int MT, int N, class Hidden>
static __device__ __forceinline__ void mask_where(int first_row, int first_key,
                                                  float (&s)[MT][N / 8][4], const Hidden &hidden) {
    int lane = thread_anew() & 31, row = first_row + (lane & 3) * 2, key = first_key + (lane >> 2);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (hidden(row + n * 8 + i % 2, key + m * 16 + i / 2 * 8))
                    s[m][n][i] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* And that is where rows do not see them; what documents' ends hide is asked about apart. */
template <int MT, int N>
static __device__ __forceinline__ void mask_transposed(const AttentionSizes &z,
                                                       const int32_t *starts, int row, int key,
                                                       float (&s)[MT][N / 8][4]) {
    if (attention_too_late(z, row, key + 16 * MT - 1))
        mask_where<MT, N>(row, key, s, [&](int r, int k) { return attention_too_late(z, r, k); });
    if (attention_too_early(z, row + N - 1, key))
        mask_where<MT, N>(row, key, s, [&](int r, int k) { return attention_too_early(z, r, k); });
    if (attention_other_document(z, starts, row + N - 1, key))
        mask_where<MT, N>(row, key, s,
                          [&](int r, int k) { return attention_other_document(z, starts, r, k); });
}
template <int MT, int N>
static __device__ __forceinline__ void mask_transposed_later(const AttentionSizes &z,
                                                             const int32_t *starts, int row,
                                                             int key, float (&s)[MT][N / 8][4]) {
    if (!attention_later_document(z, starts, row, key + 16 * MT - 1)) return;
    const int lane = thread_anew() & 31;
    row += (lane & 3) * 2, key += lane >> 2;
#pragma unroll
    for (int n = 0; n < N / 4; n++) { /* row by row: registers */
        const int end = attention_document_end(z, starts, row + n / 2 * 8 + n % 2) - key;
#pragma unroll
        for (int m = 0; m < 2 * MT; m++) {
            if (8 * m >= end) s[m / 2][n / 2][m % 2 * 2 + n % 2] = bits_to_float(0xff800000u);
        }
    }
}

#endif
