#include "runtime/cuda/kernels/device.cuh"

#define BACKWARD_KERNEL(name)                                                                      \
    KERNEL_FUNCTION name(AttentionBackwardArgs a) {                                                \
        (void)a;                                                                                   \
    }
#define BACKWARD_KERNELS(suffix)                                                                   \
    BACKWARD_KERNEL(attention_keys_64_wgmma_##suffix)                                              \
    BACKWARD_KERNEL(attention_keys_128_wgmma_##suffix)                                             \
    BACKWARD_KERNEL(attention_queries_64_wgmma_##suffix)                                           \
    BACKWARD_KERNEL(attention_queries_128_wgmma_##suffix)
BACKWARD_KERNELS(bf16)
BACKWARD_KERNELS(f16)
