/* narrow, pad, concat, shift, rename, regroup, of_pairs: rows copied between pitches; stack:
 * operands one after another. */
#include "ir/ops/parts.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

bool cuda_push_rows(Binding *b, const MoveRows *rows) {
    LaunchCommand launch;
    if (rows->width == 0) return true;
    if (!move_rows_launch(rows, b->arena, &launch)) return bind_fail(b, "is too large");
    return cuda_push_launch(b, launch.kernel, launch.grid, launch.threads, 0, launch.args,
                            launch.args_bytes);
}

/* One launch copies and fills up what follows; what comes before takes one of its own, which copies
 * nothing. */
static bool push_move(Binding *b, const PartMove *m, const void *in, void *out) {
    int64_t unit = m->inner * dtype_bytes(b->out_local[0].dtype);
    int64_t end = m->fills ? m->n_out : m->to + m->count;
    MoveRows copy = {.in = (const char *)in + m->from * unit,
                     .out = (char *)out + m->to * unit,
                     .n_parts = 1,
                     .n_rows = m->outer,
                     .width = (end - m->to) * unit,
                     .limit = m->count * unit,
                     .in_row = m->n_in * unit,
                     .out_row = m->n_out * unit,
                     .fill = (uint32_t)m->fill};
    MoveRows before = copy;
    before.in = in;
    before.out = out;
    before.width = m->fills ? m->to * unit : 0;
    before.limit = 0;
    return cuda_push_rows(b, &before) && cuda_push_rows(b, &copy);
}

static bool bind_parts(Binding *b) {
    PartMove moves[MAX_PARTS];
    int n_moves = parts_moves(b->node, b->in_local, &b->out_local[0], moves);
    for (int i = 0; i < n_moves; i++) {
        if (!push_move(b, &moves[i], b->in[i], b->out[0])) return false;
    }
    return true;
}

bool cuda_bind_narrow(Binding *b) {
    return bind_parts(b);
}

bool cuda_bind_pad(Binding *b) {
    return bind_parts(b);
}

bool cuda_bind_concat(Binding *b) {
    return bind_parts(b);
}

bool cuda_bind_shift(Binding *b) {
    return bind_parts(b);
}

/* What no operand fills goes with the last launch. */
bool cuda_bind_stack(Binding *b) {
    int64_t count = node_int(b->node, ATTR_count, 0), n_inputs = b->node->n_inputs;
    int64_t bytes = type_elements(&b->in_local[0]) * dtype_bytes(b->out_local[0].dtype);
    int64_t unit = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 2;
    KernelId kernel = unit == 16 ? KERNEL_stack_16 : unit == 4 ? KERNEL_stack_4 : KERNEL_stack_2;
    uint32_t blocks = cuda_blocks(bytes / unit, COPY_THREADS);
    for (int64_t first = 0, next; first < n_inputs; first = next) {
        next = n_inputs - first > STACK_OPERANDS ? first + STACK_OPERANDS : n_inputs;
        StackArgs args = {.out = (char *)b->out[0] + first * bytes,
                          .n = bytes / unit,
                          .n_operands = (int32_t)(next - first)};
        for (int64_t k = first; k < next; k++) args.in[k - first] = b->in[k];
        int64_t rows = (next < n_inputs ? next : count) - first;
        if (rows > UINT16_MAX) return bind_fail(b, "is too large");
        if (!cuda_push_launch(b, kernel, (Grid){blocks, (uint32_t)rows, 1}, COPY_THREADS, 0, &args,
                              sizeof(args))) {
            return false;
        }
    }
    return true;
}

bool cuda_bind_rename(Binding *b) {
    return bind_parts(b);
}

bool cuda_bind_regroup(Binding *b) {
    return bind_parts(b);
}

bool cuda_bind_of_pairs(Binding *b) {
    const Type *in = &b->in_local[0];
    if (in->dims[type_find_axis(in, node_axis(b->node, ATTR_axis))] % 2 != 0) {
        return bind_fail(b, "needs whole pairs: the micro-batch must be even");
    }
    return bind_parts(b);
}
