/* CUDA binders of linear attention and convolutions. */
#include "runtime/cuda/bind.h"

bool cuda_bind_linear_attention(Binding *b) {
    return bind_fail(b, "has no CUDA kernel yet");
}

bool cuda_bind_linear_attention_grad(Binding *b) {
    return bind_fail(b, "has no CUDA kernel yet");
}

bool cuda_bind_convolve(Binding *b) {
    return bind_fail(b, "has no CUDA kernel yet");
}

bool cuda_bind_convolve_grad(Binding *b) {
    return bind_fail(b, "has no CUDA kernel yet");
}
