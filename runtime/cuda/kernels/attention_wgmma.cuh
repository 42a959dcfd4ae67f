/* What the attention kernels on wgmma share: tiles as it reads them, and products of tiles. */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_WGMMA_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_WGMMA_CUH

#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/wgmma.cuh"

/* Rows or keys of a warpgroup: two of them do a block's ATTENTION_TILE. */
enum { GROUP_ROWS = ATTENTION_TILE / 2 };

/* The first of them in the block's tile. The shuffle says that a warp's threads agree: addresses of
 * tiles are then computed once for all of them. */
static __device__ __forceinline__ int first_group_row(void) {
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) * GROUP_ROWS;
}

/* Panels of 64 columns, [ROWS][64] each: a WgmmaMatrix. */
template <int HEAD_, int ROWS> struct PanelTile {
    static constexpr int HEAD = HEAD_, PANEL_BYTES = ROWS * 128, BYTES = ROWS * HEAD * 2;
    static_assert(HEAD % 64 == 0 && ROWS % 8 == 0, "whole panels, at multiples of 1024 bytes");

    static __device__ __forceinline__ int offset(int row, int chunk) {
        return chunk / 8 * PANEL_BYTES + row * 128 + (chunk % 8 ^ (row & 7)) * 16;
    }
};

/* scores [64, 8 N8] = rows of A, this warpgroup's 64 from a_row on, times as many rows of B from
 * the one at `b` on, over HEAD columns. Issued and committed. */
template <typename T, class A, class B, int N8>
static __device__ __forceinline__ void issue_scores(float (&scores)[N8][4], SharedAddress a,
                                                    int a_row, SharedAddress b) {
    static_assert(B::HEAD == A::HEAD && B::PANEL_BYTES >= N8 * 8 * 128, "rows of B");
    const WgmmaMatrix of_a = wgmma_matrix(a + a_row * 128, 16), of_b = wgmma_matrix(b, 16);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < A::HEAD / 16; k++) {
        int panel = k / 4, in_panel = k % 4 * 32;
        Wgmma<T, N8 * 8>::template multiply_tiles<false>(
            scores, wgmma_further(of_a, panel * A::PANEL_BYTES + in_panel),
            wgmma_further(of_b, panel * B::PANEL_BYTES + in_panel), k > 0);
    }
    wgmma_commit();
}

/* The same of A in registers: fragments over its columns. */
template <typename T, class B, int K16, int N8>
static __device__ __forceinline__ void
issue_scores_of(float (&scores)[N8][4], uint32_t (&fragments)[K16][1][4], SharedAddress b) {
    static_assert(B::HEAD == K16 * 16 && B::PANEL_BYTES >= N8 * 8 * 128, "rows of B");
    const WgmmaMatrix of_b = wgmma_matrix(b, 16);
    wgmma_pin(fragments);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < K16; k++) {
        Wgmma<T, N8 * 8>::template multiply_fragments<false>(
            scores, fragments[k][0], wgmma_further(of_b, k / 4 * B::PANEL_BYTES + k % 4 * 32),
            k > 0);
    }
    wgmma_commit();
}

/* acc [64, HEAD] += fragments [64, 16 K16] times as many rows of B from the one at `b` on; of both
 * those from FROM to TO, where it is said. Issued and committed. */
template <typename T, class B, int FROM = 0, int TO = 0, int K16, int N8>
static __device__ __forceinline__ void
issue_weighted(float (&acc)[N8][4], uint32_t (&fragments)[K16][1][4], SharedAddress b) {
    static_assert(B::HEAD == N8 * 8 && B::PANEL_BYTES >= K16 * 16 * 128, "rows of B");
    const WgmmaMatrix of_b = wgmma_matrix(b, B::PANEL_BYTES);
    wgmma_pin(acc);
    wgmma_pin<FROM, TO>(fragments);
    wgmma_fence();
#pragma unroll
    for (int k = FROM; k < (TO ? TO : K16); k++) {
        Wgmma<T, N8 * 8>::template multiply_fragments<true>(
            acc, fragments[k][0], wgmma_further(of_b, k * 16 * 128), true);
    }
    wgmma_commit();
}

/* acc [64, 8 N8] = A^T, 64 columns of a panel of A, times columns of B from b_column on, over as
 * many rows as both have. Issued and committed. */
template <typename T, class A, class B, int N8>
static __device__ __forceinline__ void issue_transposed(float (&acc)[N8][4], SharedAddress a,
                                                        SharedAddress b, int b_column) {
    static_assert(A::HEAD == 64 && (int)A::PANEL_BYTES == (int)B::PANEL_BYTES, "as many rows");
    const WgmmaMatrix of_a = wgmma_matrix(a, A::PANEL_BYTES);
    const WgmmaMatrix of_b =
        wgmma_matrix(b + b_column / 64 * B::PANEL_BYTES + b_column % 64 * 2, B::PANEL_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < A::PANEL_BYTES / 128 / 16; k++) {
        Wgmma<T, N8 * 8>::template multiply_tiles<true, true>(
            acc, wgmma_further(of_a, k * 16 * 128), wgmma_further(of_b, k * 16 * 128), k > 0);
    }
    wgmma_commit();
}

/* What this block's threads copied into tiles is there for all of them, and for wgmma. */
static __device__ __forceinline__ void wait_for_tiles(void) {
    copy_async_wait<0>();
    shared_to_wgmma();
    __syncthreads();
}

/* Kernels are empty where there is no wgmma. */
#ifdef HAVE_WGMMA
#define WGMMA_KERNEL(call) call
#else
#define WGMMA_KERNEL(call) (void)a
#endif

#endif
