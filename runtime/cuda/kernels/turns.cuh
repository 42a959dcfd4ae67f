/* Sums in global memory that several blocks make in one order: a counter says whose turn it is.
 *
 * A block waits for its turn, adds, and says that it is the next one's. Blocks that run have taken
 * all turns that others wait for: they take work in one order, by a counter, and wait only for work
 * that was taken before theirs, so the first of all that is under way waits for none. On the host
 * blocks run one after the other: a turn that has not come never will.
 *
 * sm_70 and later; sums of four, sm_90.
 */
#ifndef RUNTIME_CUDA_KERNELS_TURNS_CUH
#define RUNTIME_CUDA_KERNELS_TURNS_CUH

#include "runtime/cuda/kernels/tensor.cuh"

/* The counter now: a look ahead, that of a turn which may not have come. Behind turns_fence, what
 * was added in the turns that it tells of is seen. */
static __device__ __forceinline__ uint32_t turns_look(const uint32_t *counter) {
#ifdef __CUDACC__
    uint32_t turn;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(turn)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    return turn;
#else
    return *counter;
#endif
}

/* Until it is `turn`'s, or a later one's. */
static __device__ __forceinline__ void turns_wait(const uint32_t *counter,
                                                  uint32_t turn TENSOR_HERE) {
#ifdef __CUDACC__
    uint32_t now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(now)
                     : "l"(__cvta_generic_to_global(counter))
                     : "memory");
    } while (now < turn);
#else
    if (*counter < turn)
        emulate_fail(EMULATE_SITE("turns_wait"), "waits for what no block before it does");
#endif
}

/* What this block's threads did before a barrier behind which one of them calls this comes before
 * what that one says with turns_pass; what turns_look told of, before what they do after a barrier.
 */
static __device__ __forceinline__ void turns_fence(void) {
#ifdef __CUDACC__
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

/* It is `turn`'s from now on. */
static __device__ __forceinline__ void turns_pass(uint32_t *counter, uint32_t turn) {
#ifdef __CUDACC__
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
                 "r"(turn)
                 : "memory");
#else
    *counter = turn;
#endif
}

/* *to = x or += x, in L2: nobody waits for it. 16 bytes at a multiple of 16. */
static __device__ __forceinline__ void turns_put(float4 *to, const float (&x)[4]) {
    __stcg(to, make_float4(x[0], x[1], x[2], x[3]));
}
static __device__ __forceinline__ void turns_add(float4 *to, const float (&x)[4]) {
#ifdef __CUDACC__
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(to)),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#else
    *to = make_float4(to->x + x[0], to->y + x[1], to->z + x[2], to->w + x[3]);
#endif
}

#endif
