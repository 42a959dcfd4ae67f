/* Tensor cores, shared memory, asynchronous copies: with low.cuh's and device.cuh's, the only
 * inline PTX. Each function has an emulated twin for the host (tests/emulate/warp.h), which states
 * the layouts of fragments. All but the copies are for whole warps: every lane calls them together.
 * sm_80 and later.
 *
 * PTX ISA 9.0: mma.sync.m16n8k16, ldmatrix, stmatrix, cp.async.
 */
#ifndef RUNTIME_CUDA_KERNELS_TENSOR_CUH
#define RUNTIME_CUDA_KERNELS_TENSOR_CUH

#include "runtime/cuda/kernels/device.cuh"

/* An address in shared memory; adding bytes moves it. */
#ifdef __CUDACC__
typedef uint32_t SharedAddress;
#define TENSOR_HERE
#else
typedef uintptr_t SharedAddress;
#define TENSOR_HERE , EMULATE_HERE
#endif

static __device__ __forceinline__ SharedAddress shared_address(const void *p) {
#ifdef __CUDACC__
    return (SharedAddress)__cvta_generic_to_shared(p);
#else
    return (SharedAddress)p;
#endif
}

/* d += a b, pairs of T in, f32 accumulators: a [16, 16] by rows, b [16, 8] by columns. */
#ifdef __CUDACC__
template <typename T>
static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]);
#define MMA_INSTRUCTION(T, name)                                                                   \
    template <>                                                                                    \
    __device__ __forceinline__ void mma<T>(float(&d)[4], const uint32_t(&a)[4],                    \
                                           const uint32_t(&b)[2]) {                                \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
MMA_INSTRUCTION(bf16_t, "bf16")
MMA_INSTRUCTION(f16_t, "f16")
#else
template <typename T>
static inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] TENSOR_HERE) {
    emulate_mma<Low<T>>(d, a, b, EMULATE_SITE("mma"));
}
#endif

/* Four 8 x 8 matrices of 16-bit elements: lane l names row l % 8 of matrix l / 8, 16 bytes at a
 * multiple of 16. r[i]: this lane's pair of matrix i. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4],
                                                   SharedAddress row TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#else
    emulate_ldmatrix(r, (const void *)row, false, EMULATE_SITE("ldmatrix.x4"));
#endif
}

/* As ldmatrix_x4, each matrix transposed. */
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4],
                                                         SharedAddress row TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#else
    emulate_ldmatrix(r, (const void *)row, true, EMULATE_SITE("ldmatrix.x4.trans"));
#endif
}

/* Two matrices: only the addresses of lanes 0-15 count. */
static __device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2],
                                                   SharedAddress row TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
#else
    emulate_ldmatrix(r, (const void *)row, false, EMULATE_SITE("ldmatrix.x2"));
#endif
}

static __device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2],
                                                         SharedAddress row TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
#else
    emulate_ldmatrix(r, (const void *)row, true, EMULATE_SITE("ldmatrix.x2.trans"));
#endif
}

/* The reverse of ldmatrix_x4: each matrix's rows to where lanes say. sm_90. */
static __device__ __forceinline__ void stmatrix_x4(SharedAddress row,
                                                   const uint32_t (&r)[4] TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#else
    emulate_stmatrix(r, (void *)row, EMULATE_SITE("stmatrix.x4"));
#endif
}

/* Starts a copy of 16 bytes from global to shared memory, past L1; both at multiples of 16. The
 * first `bytes` (0 to 16) are copied, the rest becomes zero: with 0, `from` is not read. */
static __device__ __forceinline__ void copy_async_16(SharedAddress to, const void *from,
                                                     int bytes TENSOR_HERE) {
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#else
    emulate_copy_async((void *)to, from, bytes, 16 - bytes, EMULATE_SITE("cp.async"));
#endif
}

/* This thread's copies since the last commit become a group. */
static __device__ __forceinline__ void copy_async_commit(void) {
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulate_copy_async_commit();
#endif
}

/* Waits until at most PENDING of this thread's newest groups are under way. What other threads
 * copied is there after a barrier. */
template <int PENDING> static __device__ __forceinline__ void copy_async_wait(void) {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
    emulate_copy_async_wait(PENDING);
#endif
}

/* The same value, but the compiler must think it a new one: what follows from it is computed again
 * where it is needed, not kept in registers throughout a loop. */
static __device__ __forceinline__ int renew(int x) {
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

#endif
