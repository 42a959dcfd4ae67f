/* CUDA binders of weights in blocks, as products read them (kernels/widen.cu), and of weights that
 * are rounded to blocks (kernels/round_blocks.cu). */
#include "ir/ops/round_blocks.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/move.h"

_Static_assert((int)ROUND_BLOCK == (int)ROUND_NUMBERS, "blocks of kernels are the plan's");

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

/* Dimensions are outermost first; a map's first counts fastest. */
static IndexMap map_places(int n, const int64_t *dims, const int64_t *strides) {
    IndexMap map = {0};
    for (int i = n - 1; i >= 0; i--) index_map_add(&map, dims[i], strides[i]);
    return map;
}

static bool is_next(int n, const int64_t *strides) {
    return n > 0 && strides[n - 1] == 1;
}

bool cuda_bind_round_blocks(Binding *b) {
    const RoundForm form = round_form_find(node_string(b->node, ATTR_blocks));
    const RoundLayout l = round_layout(b->node, &b->in_local[0]);
    RoundBlocksArgs args = {.count = type_elements(&b->out_local[0]),
                            .from = b->in[0],
                            .to = b->out[0],
                            .dtype = (int32_t)b->out_local[0].dtype,
                            .eight = form == ROUND_Q8_0,
                            .by_rows = is_next(l.n_other, l.other_strides),
                            .row = map_places(l.n_row, l.row_dims, l.row_strides),
                            .other = map_places(l.n_other, l.other_dims, l.other_strides)};
    const KernelId kernel = form == ROUND_F16 ? KERNEL_round_f16 : KERNEL_round_blocks;
    if (form != ROUND_F16) {
        args.count /= ROUND_BLOCK;
        args.each = fast_divisor(args.by_rows ? l.n_rows : l.length / ROUND_BLOCK);
    }
    Grid grid = {cuda_blocks(args.count, ROUND_THREADS), 1, 1};
    return cuda_push_launch(b, kernel, grid, ROUND_THREADS, 0, &args, sizeof(args));
}
