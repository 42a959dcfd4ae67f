/* CUDA binders of biases by relative position (kernels/relative.cu). */
#include "runtime/bind_relative.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

static bool fill_args(const Binding *b, RelativeArgs *args) {
    RelativePlace p = bind_relative_place(b);
    *args = (RelativeArgs){.outer = p.outer,
                           .heads = p.heads,
                           .seq = p.seq,
                           .keys = p.keys,
                           .split = p.queries.split,
                           .first = p.queries.first,
                           .second = p.queries.second,
                           .causal = p.buckets.causal,
                           .n = p.buckets.n,
                           .hidden = RELATIVE_HIDDEN};
    _Static_assert((int)RELATIVE_MOST == (int)RELATIVE_MOST_BUCKETS,
                   "what the kernel has room for");
    for (int k = 0; k <= p.buckets.n; k++) args->from[k] = p.buckets.from[k];
    if (p.keys <= INT32_MAX / 2 && p.seq <= INT32_MAX / 2) return true;
    return bind_fail(b, "has sequences too long for its CUDA kernel");
}

bool cuda_bind_relative_bias(Binding *b) {
    RelativeArgs args;
    if (!fill_args(b, &args)) return false;
    args.scores = b->in[0];
    args.table = b->in[1];
    args.out = b->out[0];
    Grid grid = {cuda_grid_size(args.outer * args.heads * args.seq), 1, 1};
    return cuda_push_launch(b, KERNEL_relative_bias, grid, RELATIVE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_relative_bias_grad(Binding *b) {
    RelativeArgs args;
    if (!fill_args(b, &args)) return false;
    args.scores = b->in[0];
    args.out = b->out[0];
    Grid grid = {cuda_grid_size(type_elements(&b->out_local[0])), 1, 1};
    return cuda_push_launch(b, KERNEL_relative_bias_grad, grid, RELATIVE_THREADS, 0, &args,
                            sizeof(args));
}
