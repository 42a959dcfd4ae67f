/* Collectives over mesh axes and across stages, and the slice that needs no message. */
#include "runtime/cpu/bind.h"

#include <string.h>

typedef struct MessageArgs {
    CommGroup *group;
    int member;
    ReduceKind reduce;
    DType dtype;
    const void *in;
    void *out;
    size_t count;                                /* all_reduce */
    size_t outer, axis_local, axis_total, inner; /* the others */
    SliceRun runs[2];
    int n_runs;
    bool to_strips; /* all_to_all: axis_local rows of `inner` elements */
} MessageArgs;

static MessageArgs *new_args(Binding *b) {
    MessageArgs *args = ARENA_NEW(b->arena, MessageArgs);
    args->in = b->in[0];
    args->out = b->out[0];
    args->dtype = b->out_local[0].dtype;
    args->reduce = (ReduceKind)bind_input_sharding(b, 0)->reduce;
    args->count = (size_t)type_elements(&b->out_local[0]);
    return args;
}

/* The group along the node's mesh axis. */
static bool set_group(Binding *b, MessageArgs *args) {
    const char *name = node_string(b->node, ATTR_mesh);
    int mesh = mesh_axis_find(name, (int)strlen(name));
    if (mesh < 0 || !cpu_context(b)->groups->mesh[mesh])
        return bind_fail(b, "names a mesh axis of one rank");
    args->group = cpu_context(b)->groups->mesh[mesh];
    args->member = cpu_context(b)->groups->member[mesh];
    return true;
}

/* Sizes around the node's axis; `whole` has it whole, `part` one rank's shard of it. */
static bool set_axis(Binding *b, MessageArgs *args, const Type *whole, const Type *part) {
    int at = type_find_axis(whole, node_axis(b->node, ATTR_axis));
    if (at < 0) return bind_fail(b, "names an axis that the operand does not have");
    args->outer = args->inner = 1;
    for (int i = 0; i < whole->rank; i++) {
        if (i < at) args->outer *= (size_t)whole->dims[i];
        if (i > at) args->inner *= (size_t)whole->dims[i];
    }
    args->axis_total = (size_t)whole->dims[at];
    args->axis_local = (size_t)part->dims[at];
    if (dtype_is_blocked(part->dtype)) { /* parts are whole blocks: bytes */
        int64_t inner = (int64_t)args->inner;
        args->axis_local = (size_t)dtype_size(part->dtype, part->dims[at] * inner);
        args->axis_total = (size_t)dtype_size(part->dtype, whole->dims[at] * inner);
        args->inner = 1;
        args->dtype = DTYPE_FP8;
    }
    return true;
}

static bool run_all_reduce(const void *args) {
    const MessageArgs *a = args;
    return comm_all_reduce(a->group, a->member, a->reduce, a->dtype, a->in, a->out, a->count);
}

bool cpu_bind_all_reduce(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    *out = (CpuCall){run_all_reduce, args};
    return set_group(b, args);
}

bool cpu_bind_stage_reduce(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    *out = (CpuCall){run_all_reduce, args};
    for (int i = 0; i < cpu_context(b)->groups->n_stage; i++) {
        if (strcmp(cpu_context(b)->groups->stage_names[i], node_string(b->node, ATTR_comm)) != 0)
            continue;
        args->group = cpu_context(b)->groups->stage[i];
        args->member = cpu_context(b)->groups->stage_member[i];
        args->reduce = REDUCE_SUM;
        return args->group != NULL || bind_fail(b, "names a communicator of other stages");
    }
    return bind_fail(b, "names an unknown communicator");
}

static bool run_all_gather(const void *args) {
    const MessageArgs *a = args;
    return comm_all_gather(a->group, a->member, a->dtype, a->in, a->out, a->outer, a->axis_local,
                           a->axis_total, a->inner);
}

bool cpu_bind_all_gather(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    *out = (CpuCall){run_all_gather, args};
    return set_group(b, args) && set_axis(b, args, &b->out_local[0], &b->in_local[0]);
}

static bool run_reduce_scatter(const void *args) {
    const MessageArgs *a = args;
    return comm_reduce_scatter(a->group, a->member, a->reduce, a->dtype, a->in, a->out, a->outer,
                               a->axis_local, a->axis_total, a->inner);
}

bool cpu_bind_reduce_scatter(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    *out = (CpuCall){run_reduce_scatter, args};
    return set_group(b, args) && set_axis(b, args, &b->in_local[0], &b->out_local[0]);
}

static bool run_all_to_all(const void *args) {
    const MessageArgs *a = args;
    return comm_all_to_all(a->group, a->member, a->dtype, a->in, a->out, a->outer, a->axis_local,
                           a->inner, a->to_strips);
}

bool cpu_bind_all_to_all(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    const char *name = node_string(b->node, ATTR_mesh);
    ExchangeSizes exchange;
    *out = (CpuCall){run_all_to_all, args};
    if (!set_group(b, args)) return false;
    int n = mesh_size(&b->graph->mesh, mesh_axis_find(name, (int)strlen(name)));
    if (!bind_exchange(b, n, &exchange)) return false;
    args->outer = (size_t)exchange.outer;
    args->axis_local = (size_t)exchange.rows;
    args->inner = (size_t)exchange.width;
    args->to_strips = exchange.to_strips;
    return true;
}

static bool run_slice(const void *args) {
    const MessageArgs *a = args;
    size_t row = a->inner * (size_t)dtype_bytes(a->dtype);
    for (size_t o = 0; o < a->outer; o++) {
        char *to = (char *)a->out + o * a->axis_local * row;
        const char *from = (const char *)a->in + o * a->axis_total * row;
        size_t done = 0;
        for (int k = 0; k < a->n_runs; k++) {
            const SliceRun *run = &a->runs[k];
            memcpy(to + (size_t)run->to * row, from + (size_t)run->from * row,
                   (size_t)run->count * row);
            done += (size_t)run->count;
        }
        memset(to + done * row, 0, (a->axis_local - done) * row);
    }
    return true;
}

bool cpu_bind_slice(Binding *b, CpuCall *out) {
    MessageArgs *args = new_args(b);
    *out = (CpuCall){run_slice, args};
    if (!set_axis(b, args, &b->in_local[0], &b->out_local[0])) return false;
    int at = type_find_axis(&b->node->types[0], node_axis(b->node, ATTR_axis));
    args->n_runs = bind_slice_runs(b, at, args->runs);
    return true;
}
