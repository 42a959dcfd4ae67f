/* Matrix products without tensor cores and without shared memory: for comparison, and for tools
 * that look at every access and cannot follow a library's kernels. */
#include "runtime/cuda/kernels/device.cuh"

/* Sums in f32 of RUN products are added up, so that chains of additions stay short. */
template <typename T> static __device__ __forceinline__ void product(const ProductArgs &p) {
    enum { RUN = 64 };
    const int64_t at = (int64_t)blockIdx.x * PRODUCT_THREADS + threadIdx.x;
    const int64_t row = at / p.n, column = at - row * p.n, batch = row / p.m;
    if (batch >= p.batch) return;
    const T *a = (const T *)p.a + batch * p.m * p.k + (row - batch * p.m) * p.a_m;
    const T *b = (const T *)p.b + batch * p.k * p.n + column * p.b_n;
    float sum = 0;
    for (int64_t k = 0; k < p.k;) {
        const int64_t end = p.k - k < RUN ? p.k : k + RUN;
        float part = 0;
        for (; k < end; k++) part += load(a + k * p.a_k) * load(b + k * p.b_k);
        sum += part;
    }
    if (p.add) sum += load_as(p.out_dtype, p.d, at);
    store_as(p.out_dtype, p.d, at, sum);
}

KERNEL_FUNCTION __launch_bounds__(PRODUCT_THREADS) product_f32(ProductArgs p) {
    product<float>(p);
}
KERNEL_FUNCTION __launch_bounds__(PRODUCT_THREADS) product_bf16(ProductArgs p) {
    product<bf16_t>(p);
}
KERNEL_FUNCTION __launch_bounds__(PRODUCT_THREADS) product_f16(ProductArgs p) {
    product<f16_t>(p);
}
