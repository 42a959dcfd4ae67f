#include "tests/support/kernel_run.h"

#include "tests/support/gpu_run.h"

#include "runtime/cpu/blocks.h"
#include "runtime/cpu/quantize.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/shard.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void kernel_run_visit(const KernelRank *rank, Value value, KernelVisitor *visit, void *user) {
    Shard shard = shard_of(value_type(value), value_sharding(value),
                           &rank->run->reference->graph->mesh, rank->coord);
    Point point = {{0}};
    int64_t local = 0;
    do {
        Point whole = point;
        bool exists = true;
        for (int i = 0; i < shard.local.rank; i++) {
            int axis = shard.local.axes[i];
            whole.at[axis] = (int)span_at(&shard.span[i], point.at[axis]);
            exists &= point.at[axis] < shard.valid[i];
        }
        visit(user, local++, exists ? point_offset(&whole, &shard.whole) : -1);
    } while (point_next(&point, &shard.local));
}

typedef struct Fill {
    const KernelRank *rank;
    const Sharding *sharding;
    DType dtype;
    const double *from;
    void *to;
} Fill;

/* What the rank holds of a partial leaf: 1/2, 1/4, ..., so that sums are exact. */
static double share(const Fill *fill, double value) {
    const Mesh *mesh = &fill->rank->run->reference->graph->mesh;
    double part = 1;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (!(fill->sharding->partial >> axis & 1)) continue;
        int at = fill->rank->coord.at[axis];
        part *= ldexp(1, at + 1 < mesh->size[axis] ? -at - 1 : -at);
    }
    if (part == 1) return value;
    switch ((ReduceKind)fill->sharding->reduce) {
    case REDUCE_SUM: return value * part;
    case REDUCE_MAX: return part == 0.5 ? value : value - part;
    case REDUCE_LSE: return value + log(part);
    }
    return value;
}

static void fill_element(void *user, int64_t local, int64_t whole) {
    const Fill *fill = user;
    double value = whole < 0 ? 0 : share(fill, fill->from[whole]);
    if (fill->dtype == DTYPE_I32) {
        ((int32_t *)fill->to)[local] = (int32_t)value;
    } else {
        vec_put(fill->to, fill->dtype, local, (float)value);
    }
}

static void fill_leaf(KernelRank *rank, Value leaf) {
    const Reference *reference = rank->run->reference;
    void *buffer = rank->buffers[leaf.node->id * MAX_OUTPUTS + leaf.output];
    Type local = type_local(value_type(leaf), value_sharding(leaf), &reference->graph->mesh);
    const bool blocked = dtype_is_blocked(local.dtype); /* of f32, then */
    float *wide = blocked ? ARENA_ARRAY(reference->arena, float, type_elements(&local)) : NULL;
    Fill fill = {.rank = rank,
                 .sharding = value_sharding(leaf),
                 .dtype = blocked ? DTYPE_F32 : local.dtype,
                 .from = reference_value(reference, leaf),
                 .to = blocked ? wide : buffer};
    kernel_run_visit(rank, leaf, fill_element, &fill);
    if (blocked) weights_store(local.dtype, wide, buffer, type_elements(&local));
}

void kernel_run_set_leaf(KernelRun *run, Value leaf) {
    for (int r = 0; r < run->n_ranks; r++) fill_leaf(&run->ranks[r], leaf);
}

/* Aligned as the planner aligns, but no byte longer than the value. */
static void *new_buffer(int64_t bytes) {
    void *buffer = gpu_run_alloc((size_t)bytes);
    if (!buffer) exit(2);
    memset(buffer, 0xff, (size_t)bytes);
    return buffer;
}

/* Is the node the last to read its first operand? */
static bool is_last_reader(const Graph *graph, const Node *node) {
    for (int n = node->id + 1; n < graph->n_nodes; n++) {
        const Node *other = graph->nodes[n];
        for (int i = 0; i < other->n_inputs; i++) {
            if (value_equal(other->inputs[i], node->inputs[0])) return false;
        }
    }
    return true;
}

/* The operand whose memory output `o` takes, or -1. */
static int shared_operand(const KernelRun *run, const Node *node, int o) {
    int alias = op_alias(node, o), i = run->in_place + o;
    if (alias >= 0) return alias;
    if (run->together && node->op == OP_ROTARY && is_last_reader(run->reference->graph, node))
        return 0;
    if (run->in_place < 0 || i >= node->n_inputs || !op_may_reuse(node, i)) return -1;
    bool same =
        type_equal(value_type(node->inputs[i]), &node->types[o]) &&
        sharding_equal(value_sharding(node->inputs[i]), &node->shardings[o], node->types[o].rank);
    return same ? i : -1;
}

static bool lies_with_others(const KernelRun *run, const Node *node, int output) {
    return run->together && node->op == OP_ATTENTION_GRAD && output + 1 < node->n_outputs;
}

static int64_t output_bytes(const Graph *graph, const Node *node, int o) {
    return type_local_bytes(&node->types[o], &node->shardings[o], &graph->mesh);
}

/* The last result's memory, with the others' behind it. */
static void make_together(const Graph *graph, const Node *node, void **buffers) {
    int64_t bytes = 0;
    for (int o = 0; o < node->n_outputs; o++) bytes += output_bytes(graph, node, o);
    char *at = new_buffer(bytes);
    for (int o = node->n_outputs - 1; o >= 0; o--) {
        buffers[o] = at;
        at += output_bytes(graph, node, o);
    }
}

static void make_buffers(KernelRun *run, KernelRank *rank) {
    const Graph *graph = run->reference->graph;
    rank->buffers = ARENA_ARRAY(run->reference->arena, void *, graph->n_nodes *MAX_OUTPUTS + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        for (int o = 0; o < node->n_outputs; o++) {
            int operand = shared_operand(run, node, o);
            if (run->together && node->op == OP_ATTENTION_GRAD) {
                make_together(graph, node, &rank->buffers[n * MAX_OUTPUTS]);
                break;
            }
            if (operand >= 0) {
                Value from = node->inputs[operand];
                int at = from.node->id * MAX_OUTPUTS + from.output;
                rank->buffers[n * MAX_OUTPUTS + o] = rank->buffers[at];
                run->overwritten[at] = true;
                continue;
            }
            rank->buffers[n * MAX_OUTPUTS + o] = new_buffer(output_bytes(graph, node, o));
            if (OPS[node->op].flags & LEAF) fill_leaf(rank, node_value(node, o));
        }
    }
}

Binding kernel_run_binding(const KernelRun *run, const KernelRank *rank, Node *node, Diag *diag) {
    const Reference *ref = run->reference;
    const Graph *graph = ref->graph;
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = ref->arena,
                 .diag = diag,
                 .coord = rank->coord,
                 .block = node->block,
                 .micro = ref->micro,
                 .n_micro = ref->n_micro,
                 .overwrite = ref->overwrite,
                 .in = ARENA_ARRAY(ref->arena, void *, node->n_inputs + 1),
                 .in_local = ARENA_ARRAY(ref->arena, Type, node->n_inputs + 1)};
    for (int i = 0; i < node->n_inputs; i++) {
        Value in = node->inputs[i];
        b.in[i] = rank->buffers[in.node->id * MAX_OUTPUTS + in.output];
        b.in_local[i] = type_local(value_type(in), value_sharding(in), &graph->mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out[o] = rank->buffers[node->id * MAX_OUTPUTS + o];
        b.out_local[o] = type_local(&node->types[o], &node->shardings[o], &graph->mesh);
    }
    return b;
}

static bool bind_node(KernelRun *run, KernelRank *rank, Node *node, Diag *diag) {
    Binding b = kernel_run_binding(run, rank, node, diag);
    rank->cpu = (CpuContext){rank->products, &run->state, &rank->groups};
    b.backend = &rank->cpu;
    b.workspace_bytes = op_workspace_bytes(node, b.in_local);
    if (b.workspace_bytes) b.workspace = arena_alloc(b.arena, (size_t)b.workspace_bytes);
    return cpu_bind(&b, &rank->calls[rank->n_calls++]);
}

/* One group per line of the mesh along each axis, and one across all ranks for every name that a
 * stage_reduce gives. */
static void make_groups(KernelRun *run) {
    const Mesh *mesh = &run->reference->graph->mesh;
    static const char *const STAGES[] = {"all"};
    CommGroup *all = comm_group_create(run->world, run->n_ranks, "all");
    for (int r = 0; r < run->n_ranks; r++) {
        KernelRank *rank = &run->ranks[r];
        for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
            if (!mesh_has_messages(mesh, axis)) continue;
            int leader = mesh_rank(mesh, mesh_member_coord(mesh, rank->coord, axis, 0));
            rank->groups.member[axis] = mesh_member(mesh, rank->coord, axis);
            rank->groups.mesh[axis] =
                leader == r
                    ? comm_group_create(run->world, mesh_size(mesh, axis), mesh_axis_name(axis))
                    : run->ranks[leader].groups.mesh[axis];
            if (leader == r && mesh_deals(axis)) comm_group_set_dealing(rank->groups.mesh[axis]);
        }
        rank->groups.n_stage = 1;
        rank->groups.stage_names = (const char **)STAGES;
        rank->groups.stage = ARENA_NEW(run->reference->arena, CommGroup *);
        rank->groups.stage[0] = all;
        rank->groups.stage_member = ARENA_NEW(run->reference->arena, int);
        rank->groups.stage_member[0] = r;
    }
}

void kernel_run_prepare(KernelRun *run, const Reference *reference, int in_place, bool together) {
    const Graph *graph = reference->graph;
    *run = (KernelRun){.reference = reference,
                       .state = {reference->seed, reference->step, reference->train,
                                 (float)reference->label_share},
                       .n_ranks = mesh_rank_count(&graph->mesh),
                       .in_place = in_place,
                       .together = together};
    if (run->n_ranks > KERNEL_MAX_RANKS) BUG("%d ranks", run->n_ranks);
    run->overwritten = ARENA_ARRAY(reference->arena, bool, graph->n_nodes *MAX_OUTPUTS + 1);
    run->world = comm_world_create(run->n_ranks);
    comm_world_set_timeout(run->world, 20);
    for (int r = 0; r < run->n_ranks; r++) {
        run->ranks[r] = (KernelRank){.run = run, .coord = mesh_coord(&graph->mesh, r)};
    }
    make_groups(run);
    for (int r = 0; r < run->n_ranks; r++) make_buffers(run, &run->ranks[r]);
}

bool kernel_run_create(KernelRun *run, const Reference *reference, int in_place, Diag *diag) {
    const Graph *graph = reference->graph;
    kernel_run_prepare(run, reference, in_place, false);
    for (int r = 0; r < run->n_ranks; r++) {
        KernelRank *rank = &run->ranks[r];
        rank->products = gemm_plans_create();
        rank->calls = ARENA_ARRAY(reference->arena, CpuCall, graph->n_nodes + 1);
        for (int n = 0; n < graph->n_nodes; n++) {
            unsigned flags = OPS[graph->nodes[n]->op].flags;
            if (flags & (LEAF | EFFECT)) continue;
            if (!bind_node(run, rank, graph->nodes[n], diag)) return false;
        }
    }
    return true;
}

static void *run_rank(void *user) {
    KernelRank *rank = user;
    for (int i = 0; i < rank->n_calls && !rank->failed; i++) {
        rank->failed = !rank->calls[i].run(rank->calls[i].args);
    }
    if (rank->failed) comm_world_abort(rank->run->world, "a kernel failed");
    return NULL;
}

bool kernel_run_step(KernelRun *run) {
    pthread_t threads[KERNEL_MAX_RANKS];
    bool good = true;
    for (int r = 1; r < run->n_ranks; r++) {
        if (pthread_create(&threads[r], NULL, run_rank, &run->ranks[r])) exit(2);
    }
    run_rank(&run->ranks[0]);
    for (int r = 1; r < run->n_ranks; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < run->n_ranks; r++) good &= !run->ranks[r].failed;
    return good;
}

void kernel_run_destroy(KernelRun *run) {
    const Graph *graph = run->reference->graph;
    for (int r = 0; r < run->n_ranks; r++) {
        gemm_plans_destroy(run->ranks[r].products);
        for (int n = 0; run->ranks[r].buffers && n < graph->n_nodes; n++) {
            for (int o = 0; o < graph->nodes[n]->n_outputs; o++) {
                if (shared_operand(run, graph->nodes[n], o) >= 0 ||
                    lies_with_others(run, graph->nodes[n], o))
                    continue;
                gpu_run_free(run->ranks[r].buffers[n * MAX_OUTPUTS + o]);
            }
        }
    }
    comm_world_destroy(run->world);
}

typedef struct Comparison {
    const void *x;
    DType dtype;
    const double *reference;
    double floor_abs, worst;
    bool pads_are_zero;
} Comparison;

static void compare_element(void *user, int64_t local, int64_t whole) {
    Comparison *c = user;
    double x = c->dtype == DTYPE_FP8 ? (double)fp8_widen(((const uint8_t *)c->x)[local])
                                     : (double)vec_get(c->x, c->dtype, local);
    double error = fabs(x);
    if (whole >= 0) {
        double expected = c->reference[whole];
        bool same = x == expected || (isnan(x) && isnan(expected)); /* infinities too */
        double away = fabs(x - expected) - reference_rounding(c->dtype, expected);
        error = same || away <= 0 ? 0 : away / (fabs(expected) + c->floor_abs);
    } else if (!c->pads_are_zero || x == 0) {
        return;
    }
    if (isnan(error) || (whole < 0 && c->pads_are_zero)) error = INFINITY;
    if (error > c->worst) c->worst = error;
}

double kernel_run_error(const KernelRun *run, Value value, double floor_abs, bool pads_are_zero) {
    const double *reference = reference_exact(run->reference, value);
    DType dtype = value_type(value)->dtype;
    int64_t n = type_elements(value_type(value));
    double squares = 0, worst = 0;
    if (value_sharding(value)->partial || dtype == DTYPE_I32) return 0;
    if (dtype_is_blocked(dtype)) return 0; /* what is widened from it tells */
    for (int64_t i = 0; i < n; i++) squares += reference[i] * reference[i];
    for (int r = 0; r < run->n_ranks; r++) {
        Comparison c = {.x = run->ranks[r].buffers[value.node->id * MAX_OUTPUTS + value.output],
                        .dtype = dtype,
                        .reference = reference,
                        .floor_abs = sqrt(squares / (double)n) + floor_abs,
                        .pads_are_zero = pads_are_zero};
        kernel_run_visit(&run->ranks[r], value, compare_element, &c);
        if (c.worst > worst) worst = c.worst;
    }
    return worst;
}
