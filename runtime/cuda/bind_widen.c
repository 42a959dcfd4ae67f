/* CUDA binder of weights in blocks, as products read them (kernels/widen.cu). */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

bool cuda_bind_widen(Binding *b) {
    enum { EACH = 8 }; /* numbers of a thread */
    static const KernelsByDtype NF4 = KERNELS_BY_DTYPE(widen_nf4);
    static const KernelsByDtype INT8 = KERNELS_BY_DTYPE(widen_int8);
    const KernelsByDtype *kernels = b->in_local[0].dtype == DTYPE_NF4 ? &NF4 : &INT8;
    WidenArgs args = {.n = type_elements(&b->out_local[0]), .from = b->in[0], .to = b->out[0]};
    Grid grid = {cuda_blocks(args.n, EACH * WIDEN_THREADS), 1, 1};
    return cuda_push_launch(b, kernel_for_dtype(kernels, b->out_local[0].dtype), grid,
                            WIDEN_THREADS, 0, &args, sizeof(args));
}
