/* Binders of what sparse mixtures of experts are made of (runtime/cpu/route.h). */
#include "runtime/bind_route.h"

#include "ir/ops/route.h"
#include "runtime/cpu/bind.h"
#include "runtime/cpu/route.h"

typedef struct RowsArgs {
    int64_t rows, n, count;
    RouteGroups groups;
    const void *in[2];
    void *out;
} RowsArgs;

static const RowsArgs *new_rows(Binding *b, int64_t n, int64_t count) {
    RowsArgs *args = ARENA_NEW(b->arena, RowsArgs);
    *args = (RowsArgs){bind_rows(&b->in_local[0]), n,          count,
                       route_groups(b->node),      {b->in[0]}, b->out[0]};
    if (b->node->n_inputs > 1) args->in[1] = b->in[1];
    return args;
}

static int64_t last_dim(const Type *type) {
    return type->dims[type->rank - 1];
}

static bool run_top(const void *args) {
    const RowsArgs *a = args;
    route_top(a->rows, a->n, a->count, a->groups, a->in[0], a->out);
    return true;
}

bool cpu_bind_top(Binding *b, CpuCall *out) {
    const RowsArgs *args = new_rows(b, last_dim(&b->in_local[0]), last_dim(&b->out_local[0]));
    *out = (CpuCall){run_top, args};
    return true;
}

static bool run_take(const void *args) {
    const RowsArgs *a = args;
    route_take(a->rows, a->n, a->count, a->in[0], a->in[1], a->out);
    return true;
}

bool cpu_bind_take(Binding *b, CpuCall *out) {
    const RowsArgs *args = new_rows(b, last_dim(&b->in_local[0]), last_dim(&b->in_local[1]));
    *out = (CpuCall){run_take, args};
    return true;
}

static bool run_put(const void *args) {
    const RowsArgs *a = args;
    route_put(a->rows, a->n, a->count, a->in[0], a->in[1], a->out);
    return true;
}

bool cpu_bind_put(Binding *b, CpuCall *out) {
    const RowsArgs *args = new_rows(b, last_dim(&b->out_local[0]), last_dim(&b->in_local[0]));
    *out = (CpuCall){run_put, args};
    return true;
}

typedef struct RouteArgs {
    RouteShape shape;
    const void *in[4];
    void *out[3];
} RouteArgs;

static const RouteArgs *new_route(Binding *b) {
    RouteArgs *args = ARENA_NEW(b->arena, RouteArgs);
    RoutePlace place = bind_route_place(b);
    args->shape = (RouteShape){.batch = place.batch,
                               .seq = place.seq,
                               .choices = place.choices,
                               .experts = place.experts,
                               .slots = place.slots,
                               .from = place.from,
                               .first = place.first,
                               .local = place.local,
                               .valid = place.valid,
                               .model = place.model,
                               .dtype = b->in_local[0].dtype};
    for (int i = 0; i < b->node->n_inputs; i++) args->in[i] = b->in[i];
    for (int i = 0; i < b->node->n_outputs; i++) args->out[i] = b->out[i];
    return args;
}

static bool run_route(const void *args) {
    const RouteArgs *a = args;
    route_tables(&a->shape, a->in[0], a->out[0], a->out[1], a->out[2]);
    return true;
}

bool cpu_bind_route(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_route, new_route(b)};
    return true;
}

static bool run_dispatch(const void *args) {
    const RouteArgs *a = args;
    route_dispatch(&a->shape, a->in[0], a->in[2], a->in[3], a->out[0]);
    return true;
}

bool cpu_bind_dispatch(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_dispatch, new_route(b)};
    return true;
}

static bool run_combine(const void *args) {
    const RouteArgs *a = args;
    route_combine(&a->shape, a->in[0], a->in[1], a->in[3], a->out[0]);
    return true;
}

bool cpu_bind_combine(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_combine, new_route(b)};
    return true;
}

static bool run_slot_dot(const void *args) {
    const RouteArgs *a = args;
    route_slot_dot(&a->shape, a->in[0], a->in[1], a->in[3], a->out[0]);
    return true;
}

bool cpu_bind_slot_dot(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_slot_dot, new_route(b)};
    return true;
}
