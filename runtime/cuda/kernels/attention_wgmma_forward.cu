#include "runtime/cuda/kernels/device.cuh"

#define FORWARD_KERNELS(suffix)                                                                    \
    KERNEL_FUNCTION attention_forward_64_wgmma_##suffix(AttentionForwardArgs a) {                  \
        (void)a;                                                                                   \
    }                                                                                              \
    KERNEL_FUNCTION attention_forward_128_wgmma_##suffix(AttentionForwardArgs a) {                 \
        (void)a;                                                                                   \
    }
FORWARD_KERNELS(bf16)
FORWARD_KERNELS(f16)
