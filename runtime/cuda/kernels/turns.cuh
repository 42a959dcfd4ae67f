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

#ifndef __CUDACC__
#include "tests/emulate/bulk.h"
#endif

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

/* The same of `bytes` of shared memory, f32, a multiple of 16, by the engine that copies: nobody's
 * registers or instructions. Every thread that wrote them called shared_to_wgmma() before a barrier
 * behind which one thread starts this; it commits what it has started, and waits until all of that
 * is there, and the shared memory is free. PTX ISA 9.0, 9.7.9.25.4: cp.async.bulk. */
static __device__ __forceinline__ void turns_put_bulk(float4 *to, SharedAddress from,
                                                      int bytes TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(from), "r"(bytes)
                 : "memory");
#else
    emulate_bulk(to, (const void *)from, bytes, false, EMULATE_SITE("cp.async.bulk"));
#endif
}
static __device__ __forceinline__ void turns_add_bulk(float4 *to, SharedAddress from,
                                                      int bytes TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(from), "r"(bytes)
                 : "memory");
#else
    emulate_bulk(to, (const void *)from, bytes, true, EMULATE_SITE("cp.reduce.async.bulk"));
#endif
}
#ifdef __CUDACC__
static __device__ __forceinline__ void turns_wait_bulk(void) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#else
static inline void turns_wait_bulk(EMULATE_HERE) {
    emulate_bulk_wait(EMULATE_SITE("cp.async.bulk.wait_group"));
}
#endif

#endif
