/* CUDA binders of what sparse mixtures of experts are made of (kernels/route.cu). */
#include "runtime/bind_route.h"

#include "ir/ops/route.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

static int64_t last_dim(const Type *type) {
    return type->dims[type->rank - 1];
}

bool cuda_bind_top(Binding *b) {
    enum { WARPS = 8 };
    const Type *scores = &b->in_local[0];
    const RouteGroups groups = route_groups(b->node);
    RouteTopArgs args = {.rows = bind_rows(scores),
                         .n = (int32_t)last_dim(scores),
                         .count = (int32_t)last_dim(&b->out_local[0]),
                         .groups = groups.count,
                         .kept = groups.kept,
                         .best = groups.best,
                         .scores = b->in[0],
                         .chosen = b->out[0]};
    if (last_dim(scores) > INT32_MAX) return bind_fail(b, "has too many to choose from");
    Grid grid = {cuda_blocks(args.rows, WARPS), 1, 1};
    return cuda_push_launch(b, KERNEL_route_top, grid, 32 * WARPS, 0, &args, sizeof(args));
}

static bool push_take(Binding *b, KernelId kernel, const Type *wide, const Type *narrow,
                      const Type *out) {
    enum { THREADS = 256 };
    RouteTakeArgs args = {.rows = bind_rows(wide),
                          .n = (int32_t)last_dim(wide),
                          .count = (int32_t)last_dim(narrow),
                          .x = b->in[0],
                          .index = b->in[1],
                          .out = b->out[0]};
    if (last_dim(wide) > INT32_MAX || last_dim(narrow) > INT32_MAX) {
        return bind_fail(b, "has rows too wide for its CUDA kernel");
    }
    Grid grid = {cuda_blocks(type_elements(out), THREADS), 1, 1};
    return cuda_push_launch(b, kernel, grid, THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_take(Binding *b) {
    return push_take(b, KERNEL_route_take, &b->in_local[0], &b->in_local[1], &b->out_local[0]);
}

bool cuda_bind_put(Binding *b) {
    return push_take(b, KERNEL_route_put, &b->out_local[0], &b->in_local[0], &b->out_local[0]);
}

bool cuda_bind_route(Binding *b) {
    enum { MOST_SEQUENCES = 65535 }; /* of a grid's second dimension */
    RoutePlace p = bind_route_place(b);
    RouteTablesArgs args = {.batch = p.batch,
                            .choices_each = p.seq * p.choices,
                            .experts = (int32_t)p.experts,
                            .slots = (int32_t)p.slots,
                            .from = (int32_t)p.from,
                            .first = (int32_t)p.first,
                            .local = (int32_t)p.local,
                            .valid = (int32_t)p.valid,
                            .chosen = b->in[0],
                            .slots_out = b->out[0],
                            .tokens = b->out[1],
                            .counts = b->out[2]};
    if (p.batch > MOST_SEQUENCES) return bind_fail(b, "has more sequences than a grid");
    Grid grid = {cuda_grid_size(p.experts + p.local - p.valid), cuda_grid_size(p.batch), 1};
    return cuda_push_launch(b, KERNEL_route_tables, grid, ROUTE_THREADS, 0, &args, sizeof(args));
}

/* A warp per row. */
static bool push_rows(Binding *b, const KernelsByDtype *kernels, int64_t rows,
                      RouteRowsArgs *args) {
    RoutePlace p = bind_route_place(b);
    args->batch = p.batch;
    args->seq = p.seq;
    args->model = p.model;
    args->choices = (int32_t)p.choices;
    args->slots = (int32_t)p.slots;
    args->first = (int32_t)p.first;
    args->local = (int32_t)p.local;
    args->valid = (int32_t)p.valid;
    args->x = b->in[0];
    args->out = b->out[0];
    Grid grid = {cuda_blocks(rows, ROUTE_ROW_WARPS), 1, 1};
    return cuda_push_launch(b, kernel_for_dtype(kernels, b->in_local[0].dtype), grid,
                            32 * ROUTE_ROW_WARPS, 0, args, sizeof(*args));
}

static const float *gates_of(const Binding *b) {
    return b->node->n_inputs > 3 ? b->in[3] : NULL;
}

bool cuda_bind_dispatch(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(route_dispatch);
    RouteRowsArgs args = {.table = b->in[2], .gates = gates_of(b)};
    return push_rows(b, &KERNELS_OF, bind_rows(&b->out_local[0]), &args);
}

bool cuda_bind_combine(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(route_combine);
    RouteRowsArgs args = {.table = b->in[1], .gates = gates_of(b)};
    return push_rows(b, &KERNELS_OF, bind_rows(&b->out_local[0]), &args);
}

bool cuda_bind_slot_dot(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(route_dot);
    RouteRowsArgs args = {.table = b->in[1], .y = b->in[3]};
    return push_rows(b, &KERNELS_OF, type_elements(&b->out_local[0]), &args);
}
