/* Messages over mesh axes and across stages. */
#include "runtime/cuda/bind.h"

#include <string.h>

static CollectiveCommand new_collective(const Binding *b, CollectiveKind kind) {
    return (CollectiveCommand){.kind = kind,
                               .reduce = (ReduceKind)bind_input_sharding(b, 0)->reduce,
                               .dtype = b->in_local[0].dtype,
                               .in = b->in[0],
                               .out = b->out[0],
                               .count = type_elements(&b->out_local[0]),
                               .workspace = b->workspace,
                               .workspace_bytes = b->workspace_bytes};
}

/* The group along the node's mesh axis. */
static bool find_group(const Binding *b, CollectiveCommand *c) {
    const char *name = node_string(b->node, ATTR_mesh);
    int mesh = mesh_axis_find(name, (int)strlen(name));
    if (mesh < 0) return bind_fail(b, "names an unknown mesh axis");
    return cuda_find_group(b, mesh, NULL, c);
}

/* Sizes around the node's axis; `whole` has it whole, `part` one rank's shard of it. */
static bool set_axis(const Binding *b, CollectiveCommand *c, const Type *whole, const Type *part) {
    int at = type_find_axis(whole, node_axis(b->node, ATTR_axis));
    if (at < 0) return bind_fail(b, "names an axis that the operand does not have");
    c->axis_total = whole->dims[at];
    c->axis_local = part->dims[at];
    c->inner = bind_stride(whole, at);
    c->outer = type_elements(whole) / (c->inner * c->axis_total);
    if (dtype_is_blocked(part->dtype)) { /* parts are whole blocks: bytes */
        c->dtype = DTYPE_FP8;
        c->axis_local = dtype_size(part->dtype, c->axis_local * c->inner);
        c->axis_total = dtype_size(part->dtype, c->axis_total * c->inner);
        c->count = c->outer * c->axis_total;
        c->inner = 1;
    }
    return true;
}

bool cuda_bind_all_reduce(Binding *b) {
    CollectiveCommand c = new_collective(b, ALL_REDUCE);
    return find_group(b, &c) && cuda_push_collective(b, &c);
}

bool cuda_bind_stage_reduce(Binding *b) {
    CollectiveCommand c = new_collective(b, ALL_REDUCE);
    c.reduce = REDUCE_SUM;
    return cuda_find_group(b, -1, node_string(b->node, ATTR_comm), &c) &&
           cuda_push_collective(b, &c);
}

bool cuda_bind_all_gather(Binding *b) {
    CollectiveCommand c = new_collective(b, ALL_GATHER);
    return find_group(b, &c) && set_axis(b, &c, &b->out_local[0], &b->in_local[0]) &&
           cuda_push_collective(b, &c);
}

bool cuda_bind_all_to_all(Binding *b) {
    CollectiveCommand c = new_collective(b, ALL_TO_ALL);
    ExchangeSizes exchange;
    if (!find_group(b, &c) || !bind_exchange(b, c.n_members, &exchange)) return false;
    c.outer = exchange.outer;
    c.axis_local = exchange.rows;
    c.axis_total = c.n_members * exchange.rows;
    c.inner = exchange.width;
    c.to_strips = exchange.to_strips;
    return cuda_push_collective(b, &c);
}

bool cuda_bind_reduce_scatter(Binding *b) {
    CollectiveCommand c = new_collective(b, REDUCE_SCATTER);
    return find_group(b, &c) && set_axis(b, &c, &b->in_local[0], &b->out_local[0]) &&
           cuda_push_collective(b, &c);
}
