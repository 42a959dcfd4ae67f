/* wgmma: a warpgroup, four warps of which the first is a multiple of four, multiplies tiles of
 * shared memory; sm_90a only. The operations run beside the threads:
 *
 *   wgmma_fence()        registers that the next ones use are as they should be
 *   Wgmma<...>::...      issued; all threads of the group together
 *   wgmma_commit()       what was issued is a group
 *   wgmma_wait<N>()      until at most the N newest groups are under way; before it, nobody touches
 *                        their accumulators, fragments or tiles
 *
 * Tiles are written by threads (cp.async among them) and read by another proxy: every thread that
 * wrote calls shared_to_wgmma() before the barrier behind which they are used.
 *
 * PTX ISA 9.0, 9.7.15: asynchronous warpgroup level matrix instructions. On the host
 * tests/emulate/wgmma.h does them when they are waited for.
 */
#ifndef RUNTIME_CUDA_KERNELS_WGMMA_CUH
#define RUNTIME_CUDA_KERNELS_WGMMA_CUH

#include "runtime/cuda/kernels/tensor.cuh"

/* Whether this compilation can: elsewhere such kernels are empty, and nobody launches them. */
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAVE_WGMMA 1
#endif
#ifndef __CUDACC__
#include "tests/emulate/wgmma.h"
#endif

/* A matrix in shared memory: its rows are 128 bytes, 64 elements, one after the other, 16-byte
 * chunks permuted within each by the row's number (PanelTile, "128-byte swizzle"); eight rows lie
 * at a multiple of 1024 bytes. Wider matrices have panels of 64 columns. */
typedef uint64_t WgmmaMatrix;

/* From `start` on, within a row at a multiple of 32 bytes. panel_bytes: from one panel to the next,
 * for operands that are wider than one; operands along whose rows k runs have 16 columns. */
static __device__ __forceinline__ WgmmaMatrix wgmma_matrix(SharedAddress start, int panel_bytes) {
    constexpr uint64_t EIGHT_ROWS = 1024, SWIZZLE_128 = 1;
    return (uint64_t)(start & 0x3ffff) >> 4 | (uint64_t)(panel_bytes >> 4) << 16 |
           EIGHT_ROWS >> 4 << 32 | SWIZZLE_128 << 62;
}

/* The matrix `bytes` further on, a multiple of 16: one addition, and no carry out of the address.
 */
static __device__ __forceinline__ WgmmaMatrix wgmma_further(WgmmaMatrix matrix, int bytes) {
    return matrix + (uint64_t)(bytes >> 4);
}

static __device__ __forceinline__ void shared_to_wgmma(void) {
#ifdef __CUDACC__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    emulate_fence_proxy();
#endif
}

static __device__ __forceinline__ void wgmma_fence(void) {
#ifdef __CUDACC__
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    emulate_wgmma_fence();
#endif
}

static __device__ __forceinline__ void wgmma_commit(void) {
#ifdef __CUDACC__
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    emulate_wgmma_commit();
#endif
}

#ifdef __CUDACC__
template <int PENDING> static __device__ __forceinline__ void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
#else
template <int PENDING> static inline void wgmma_wait(EMULATE_HERE) {
    emulate_wgmma_wait(PENDING, EMULATE_SITE("wgmma.wait_group"));
}
#endif

/* What operations use that are issued next, before their fence; and what those used that were
 * waited for, after the wait: the compiler must not move what reads or writes it across. */
template <int N> static __device__ __forceinline__ void wgmma_pin(float (&d)[N][4]) {
#ifdef __CUDACC__
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[n][i])::"memory");
    }
#else
    (void)d;
#endif
}
/* Of fragments, those from FROM to TO; 0: all. */
template <int FROM = 0, int TO = 0, int K>
static __device__ __forceinline__ void wgmma_pin(uint32_t (&fragments)[K][1][4]) {
#ifdef __CUDACC__
#pragma unroll
    for (int k = FROM; k < (TO ? TO : K); k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+r"(fragments[k][0][i])::"memory");
    }
#else
    (void)fragments;
#endif
}

/* True for the kernel's argument, which is positive: what is computed under it is computed there.
 * Without, ptxas puts the next wait first, and behind it all that was to be done meanwhile. */
static __device__ __forceinline__ bool wgmma_meanwhile(int positive) {
    return renew(positive) > 0;
}

/* d [64, N] = a [64, 16] b [16, N], added to d with `add`; pairs of T in, f32 accumulators. Of warp
 * w of the group, rows 16 w..., accumulators and fragments of a lie as mma's. a from registers or
 * from shared memory, b from shared memory: with k along the rows there, or, BY_K and A_BY_K, with
 * a row for each k, as transposed operands. */
template <typename T, int N> struct Wgmma;

#ifdef __CUDACC__
#define WGMMA_4(n)    "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define WGMMA_16(n)   WGMMA_4(n), WGMMA_4(n + 1), WGMMA_4(n + 2), WGMMA_4(n + 3)
#define WGMMA_OUT_32  WGMMA_16(0)
#define WGMMA_OUT_64  WGMMA_OUT_32, WGMMA_16(4)
#define WGMMA_OUT_128 WGMMA_OUT_64, WGMMA_16(8), WGMMA_16(12)
#define WGMMA_OUT_192 WGMMA_OUT_128, WGMMA_16(16), WGMMA_16(20)
#define WGMMA_D_32    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_D_64                                                                                 \
    WGMMA_D_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "     \
               "%31"
#define WGMMA_D_128                                                                                \
    WGMMA_D_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "     \
               "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "       \
               "%62, %63"
#define WGMMA_D_192                                                                                \
    WGMMA_D_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "    \
                "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "      \
                "%94, %95"
#define WGMMA_DO(name, n, add, operands)                                                           \
    "{ .reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" #n              \
    "k16.f32." name "." name " {" WGMMA_D_##n "}, " operands "; }"
/* tiles, fragments: the operands after the accumulators, and what says whether to add. */
#define WGMMA_INSTRUCTION(T, name, N, tiles, tiles_add, fragments, fragments_add)                  \
    template <> struct Wgmma<T, N> {                                                               \
        template <bool BY_K, bool A_BY_K = false>                                                  \
        static __device__ __forceinline__ void multiply_tiles(float (&d)[N / 8][4], WgmmaMatrix a, \
                                                              WgmmaMatrix b, bool add) {           \
            asm volatile(WGMMA_DO(name, N, tiles_add, tiles)                                       \
                         : WGMMA_OUT_##N                                                           \
                         : "l"(a), "l"(b), "r"((int)add), "n"((int)BY_K), "n"((int)A_BY_K)         \
                         : "memory");                                                              \
        }                                                                                          \
        template <bool BY_K>                                                                       \
        static __device__ __forceinline__ void multiply_fragments(float (&d)[N / 8][4],            \
                                                                  const uint32_t (&a)[4],          \
                                                                  WgmmaMatrix b, bool add) {       \
            asm volatile(WGMMA_DO(name, N, fragments_add, fragments)                               \
                         : WGMMA_OUT_##N                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),      \
                           "n"((int)BY_K)                                                          \
                         : "memory");                                                              \
        }                                                                                          \
    };
#define WGMMA_INSTRUCTIONS(T, name)                                                                \
    WGMMA_INSTRUCTION(T, name, 32, "%16, %17, p, 1, 1, %20, %19", "%18",                           \
                      "{%16, %17, %18, %19}, %20, p, 1, 1, %22", "%21")                            \
    WGMMA_INSTRUCTION(T, name, 64, "%32, %33, p, 1, 1, %36, %35", "%34",                           \
                      "{%32, %33, %34, %35}, %36, p, 1, 1, %38", "%37")                            \
    WGMMA_INSTRUCTION(T, name, 128, "%64, %65, p, 1, 1, %68, %67", "%66",                          \
                      "{%64, %65, %66, %67}, %68, p, 1, 1, %70", "%69")                            \
    WGMMA_INSTRUCTION(T, name, 192, "%96, %97, p, 1, 1, %100, %99", "%98",                         \
                      "{%96, %97, %98, %99}, %100, p, 1, 1, %102", "%101")
WGMMA_INSTRUCTIONS(bf16_t, "bf16")
WGMMA_INSTRUCTIONS(f16_t, "f16")
#else
template <typename T, int N> struct Wgmma {
    template <bool BY_K, bool A_BY_K = false>
    static inline void multiply_tiles(float (&d)[N / 8][4], WgmmaMatrix a, WgmmaMatrix b, bool add,
                                      EMULATE_HERE) {
        emulate_wgmma({d[0], nullptr, a, b, N, A_BY_K, BY_K, add, Low<T>::unpack},
                      EMULATE_SITE("wgmma"));
    }
    template <bool BY_K>
    static inline void multiply_fragments(float (&d)[N / 8][4], const uint32_t (&a)[4],
                                          WgmmaMatrix b, bool add, EMULATE_HERE) {
        emulate_wgmma({d[0], a, 0, b, N, false, BY_K, add, Low<T>::unpack}, EMULATE_SITE("wgmma"));
    }
};
#endif

#endif
