#include "planner/cost/cost.h"

#include "ir/message_group.h"
#include "ir/op.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/copy_clock.h"
#include "planner/cost/measured_time.h"
#include "planner/cost/message_clock.h"
#include "planner/cost/node_cost.h"
#include "planner/cost/stage_weights.h"

#include <string.h>

static Placement placement_of(const Device *device, const Plan *plan) {
    const int *size = plan->mesh.size;
    return (Placement){device->cluster->node.n_devices,
                       size[MESH_T],
                       size[MESH_D],
                       size[MESH_P],
                       size[MESH_C],
                       size[MESH_E],
                       size[MESH_R]};
}

/* Ranks of one stage that share a node's way out. */
static int count_sharing(const Placement *placement) {
    int n_ranks = placement_width(placement);
    return n_ranks < placement->n_per_node ? n_ranks : placement->n_per_node;
}

double cost_message_us(const Device *device, const Plan *plan, int from, int to, double bytes,
                       double *out_latency_us) {
    if (!device->cluster) {
        *out_latency_us = device->link_latency_us;
        return device->link_latency_us + bytes / device->link_bytes_per_second * 1e6;
    }
    Placement placement = placement_of(device, plan);
    int first = from < to ? from : to;
    bool neighbours = from - to == 1 || to - from == 1; /* else from the last stage to the first */
    bool crosses = neighbours ? placement_border_crosses(&placement, first)
                              : mesh_rank_count(&plan->mesh) > placement.n_per_node;
    int sharing = crosses ? count_sharing(&placement) : 1;
    double us = message_us(device->cluster, bytes, crosses, sharing);
    *out_latency_us = message_us(device->cluster, 0, crosses, sharing);
    if (*out_latency_us > us) *out_latency_us = us;
    return us;
}

static double local_bytes(const Plan *plan, Value value) {
    return (double)type_local_bytes(value_type(value), value_sharding(value), &plan->mesh);
}

static int find_stage_comm(const Plan *plan, const char *name) {
    for (int i = 0; i < plan->n_comms; i++) {
        if (strcmp(plan->comms[i].name, name) == 0) return i;
    }
    return -1;
}

bool cost_collective(const Plan *plan, const Node *node, CollectiveCost *out) {
    if (!(OPS[node->op].flags & COLLECTIVE)) return false;
    *out = (CollectiveCost){.mesh_axis = -1, .stage_comm = -1, .n_ranks = 1};
    if (node->op == OP_STAGE_REDUCE) {
        out->stage_comm = find_stage_comm(plan, node_string(node, ATTR_comm));
        if (out->stage_comm >= 0) out->n_ranks = plan->comms[out->stage_comm].n_stages;
    } else {
        const char *axis = node_string(node, ATTR_mesh);
        out->mesh_axis = mesh_axis_find(axis, (int)strlen(axis));
        if (out->mesh_axis >= 0) out->n_ranks = mesh_size(&plan->mesh, out->mesh_axis);
    }
    if (out->n_ranks < 2) return false;
    bool both = node->op == OP_ALL_REDUCE || node->op == OP_STAGE_REDUCE; /* scatter and gather */
    Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
    out->n_steps = (both ? 2 : 1) * (out->n_ranks - 1);
    out->bytes = local_bytes(plan, whole) / out->n_ranks * out->n_steps;
    return true;
}

/* Local shapes of a node's inputs, in a buffer that grows with the widest node. */
typedef struct Shapes {
    Type *inputs;
    int capacity;
    Type outputs[MAX_OUTPUTS];
    double bytes;
} Shapes;

static void shapes_of(const Plan *plan, const Node *node, Arena *arena, Shapes *shapes) {
    if (node->n_inputs > shapes->capacity) {
        shapes->capacity = node->n_inputs * 2;
        shapes->inputs = ARENA_ARRAY(arena, Type, shapes->capacity);
    }
    shapes->bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        Value value = node->inputs[i];
        shapes->inputs[i] = type_local(value_type(value), value_sharding(value), &plan->mesh);
        shapes->bytes += local_bytes(plan, value);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        Value value = node_value((Node *)node, i);
        shapes->outputs[i] = type_local(value_type(value), value_sharding(value), &plan->mesh);
        shapes->bytes += local_bytes(plan, value);
    }
}

static double cluster_collective_us(const Device *device, const Plan *plan, const Node *node,
                                    const CollectiveCost *message, int n_joined) {
    Placement placement = placement_of(device, plan);
    CollectiveGroup group = {message->n_ranks, message->n_ranks, 1};
    if (message->mesh_axis >= 0) {
        group = placement_group(&placement, message->mesh_axis);
    } else if (mesh_rank_count(&plan->mesh) > placement.n_per_node) { /* stages far apart */
        group = (CollectiveGroup){message->n_ranks, 1, count_sharing(&placement)};
    }
    CollectiveKind kind = collective_kind(node->op);
    double bytes = message->bytes / message->n_steps * message->n_ranks; /* the whole tensor */
    return collective_group_us(device->cluster, kind, bytes, n_joined, &group);
}

static double ring_us(const Device *device, const CollectiveCost *message, int n_joined) {
    double latency_us =
        device->step_latency_us > 0 ? device->step_latency_us : device->link_latency_us;
    double rate = device->step_bytes_per_second > 0 ? device->step_bytes_per_second
                                                    : device->link_bytes_per_second;
    return (n_joined > 1 ? 2 : 1) * message->n_steps * latency_us + message->bytes / rate * 1e6;
}

/* What has a curve of its own is measured whole: reading its operands is part of it. */
static double flops_rate(const Device *device, const Node *node, const Type *input, double flops) {
    bool narrow = node->n_inputs > 0 && input->dtype != DTYPE_F32;
    const RateCurve *curves = node->op == OP_MATMUL           ? device->product
                              : node->op == OP_ATTENTION      ? device->attention
                              : node->op == OP_ATTENTION_GRAD ? device->attention_grad
                                                              : NULL;
    if (curves && !curves[narrow].count) narrow = false;
    if (!curves || !curves[narrow].count || flops <= 0) return device->flops_per_second;
    return rate_curve_at(&curves[narrow], flops);
}

/* One program while its nodes are priced. */
typedef struct Pricing {
    const Plan *plan;
    int program;
    const Graph *graph;
    const Device *device;
    Arena *arena;
    Shapes shapes;
    NodePricer pricer; /* with a cluster */
} Pricing;

/* All messages of a group are priced with its first. */
static void price_collective(const Pricing *p, const Node *node, Cost *cost) {
    CollectiveCost message, other;
    if (!cost_collective(p->plan, node, &message) || node_is_joined(node)) return;
    int end = message_group_end(p->graph, node->id), n_joined = end - node->id;
    for (int k = node->id + 1; k < end; k++) {
        if (cost_collective(p->plan, p->graph->nodes[k], &other)) message.bytes += other.bytes;
    }
    if (p->device->cluster) {
        cost->us = cost->collective_us =
            cluster_collective_us(p->device, p->plan, node, &message, n_joined);
    } else {
        cost->collective_us = ring_us(p->device, &message, n_joined);
        cost->us = p->device->call_us + cost->collective_us;
    }
}

static double roofline_us(const Device *device, const Node *node, const Type *input,
                          const Cost *cost) {
    double compute_us = cost->flops / flops_rate(device, node, input, cost->flops) * 1e6;
    double memory_rate = device->memory.count ? rate_curve_at(&device->memory, cost->traffic_bytes)
                                              : device->memory_bytes_per_second;
    double memory_us = cost->traffic_bytes / memory_rate * 1e6;
    return device->call_us + (compute_us > memory_us ? compute_us : memory_us);
}

/* The bytes that a node reads in the host's memory, or writes there, whichever are more; and both.
 */
static double host_bytes(const Pricing *p, const Node *node, double *out_all) {
    const Buffer *buffers = p->plan->programs[p->program].buffers;
    double read = 0, written = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        Value in = node->inputs[i];
        const Buffer *buffer = &buffers[in.node->id * MAX_OUTPUTS + in.output];
        if (op_operand_precision(node->op, i) == OPERAND_UNREAD) continue;
        if (region_is_host(buffer->region)) read += (double)buffer->bytes;
    }
    for (int o = 0; o < node->n_outputs; o++) {
        const Buffer *buffer = &buffers[node->id * MAX_OUTPUTS + o];
        if (region_is_host(buffer->region)) written += (double)buffer->bytes;
    }
    *out_all = read + written;
    return read > written ? read : written;
}

/* What a kernel does near takes less time, as far as it is bound by memory, which updates are. */
static void add_bus(const Pricing *p, const Node *node, Cost *cost) {
    double all, most = host_bytes(p, node, &all), rate = p->device->host_bytes_per_second;
    if (most == 0 || rate <= 0) return;
    double near = cost->traffic_bytes > all ? 1 - all / cost->traffic_bytes : 0;
    double bus_us = most / rate * 1e6;
    cost->us = cost->us * near > bus_us ? cost->us * near : bus_us;
}

static Cost cost_node(Pricing *p, const Node *node) {
    Cost cost = {0};
    const OpInfo *op = &OPS[node->op];
    if (!(op->flags & KERNEL)) return cost; /* leaves and markers: nothing to run */
    if (op->flags & COLLECTIVE) {
        price_collective(p, node, &cost);
        return cost;
    }
    shapes_of(p->plan, node, p->arena, &p->shapes);
    cost.flops = op->flops(node, p->shapes.inputs, p->shapes.outputs);
    cost.traffic_bytes = p->shapes.bytes;
    if (p->device->cluster) {
        PhaseCost on_cluster = {0};
        node_cost_add(&on_cluster, &p->pricer, node);
        cost.us = on_cluster.product_us + on_cluster.attention_us + on_cluster.memory_us;
    } else {
        const Shapes *shapes = &p->shapes;
        double us = measured_node_us(p->device, node, shapes->inputs, shapes->outputs, cost.flops);
        cost.us = us >= 0 ? us : roofline_us(p->device, node, &shapes->inputs[0], &cost);
    }
    add_bus(p, node, &cost);
    return cost;
}

static void cost_add(Cost *sum, Cost cost) {
    sum->us += cost.us;
    sum->data_us += cost.data_us;
    sum->collective_us += cost.collective_us;
    sum->flops += cost.flops;
    sum->traffic_bytes += cost.traffic_bytes;
}

/* Do gradients travel over d while the backward goes on? Then `node`, in the update, is one's
 * message. */
static bool is_beside_backward(const Device *device, const Node *node,
                               const CollectiveCost *message) {
    return device->cluster && device->cluster->software.overlaps_gradients &&
           mesh_is_data(message->mesh_axis) && node->op != OP_ALL_GATHER && node->types[0].rank > 0;
}

static void add_update(ProgramCost *sum, Pricing *p, const Node *node, int chunk, Cost cost,
                       int *part) {
    CollectiveCost message;
    if (cost_collective(p->plan, node, &message)) {
        if (is_beside_backward(p->device, node, &message)) {
            cost_add(&sum->data[chunk], cost);
            sum->n_data[chunk] += !node_is_joined(node);
            return;
        }
        if (message.stage_comm >= 0 && *part == 0) {
            *part = 1;
            sum->joins_tied = true;
        } else if (message.mesh_axis == MESH_P) {
            *part = 2;
            sum->joins_pipeline = true;
        }
    }
    cost_add(&sum->update[*part], cost);
}

/* Weights that the last update left divided, on their way to all ranks. */
static void add_once(ProgramCost *sum, const Node *node, int chunk, Cost cost) {
    bool gather = OPS[node->op].flags & COLLECTIVE;
    if (gather) {
        cost.data_us = cost.us;
        cost.collective_us = 0;
        sum->n_gathers[chunk] += !node_is_joined(node);
    }
    cost_add(&sum->once[chunk], cost);
}

/* Messages over d in one task: ends_us is the first gather's and the last reduction's. */
typedef struct TaskMessages {
    double all_us, first_us, last_us;
} TaskMessages;

static bool add_task_message(TaskMessages *messages, const Plan *plan, const Node *node,
                             const Cost *cost) {
    CollectiveCost message;
    if (!cost_collective(plan, node, &message)) return false;
    if (!mesh_is_data(message.mesh_axis)) return false;
    if (node_is_joined(node)) return true; /* the first of its group has all their time */
    bool gather = node->op == OP_ALL_GATHER;
    if (gather && messages->first_us == 0) messages->first_us = cost->us;
    if (!gather) messages->last_us = cost->us;
    messages->all_us += cost->us;
    return true;
}

/* Without a cluster ranks are threads on one processor, and nothing overlaps. */
static void close_task(Cost *task, const TaskMessages *messages, const MessageClock *clock,
                       const CopyClock *copies, const Device *device) {
    double us = messages->all_us;
    if (device->cluster) task->us += copy_clock_waits_us(copies);
    if (device->cluster && device->cluster->software.overlaps_block) {
        double hidden_us = message_clock_hidden_us(clock);
        hidden_us *= 1 - device->cluster->software.overlap_slowdown;
        task->us -= hidden_us;
        task->collective_us -= hidden_us;
    }
    if (device->cluster) {
        us = exposed_us(&device->cluster->software, us, messages->first_us + messages->last_us,
                        task->us);
    }
    task->us += us;
    task->data_us += us;
}

static Pricing start_pricing(const Plan *plan, int program, const Device *device, Arena *arena) {
    const Graph *graph = plan->programs[program].graph;
    Pricing p = {
        .plan = plan, .program = program, .graph = graph, .device = device, .arena = arena};
    if (!device->cluster) return p;
    p.pricer = node_pricer_create(device->cluster, graph, arena);
    return p;
}

double *cost_nodes(const Plan *plan, int program, const Device *device, Arena *arena) {
    const Graph *graph = plan->programs[program].graph;
    Pricing p = start_pricing(plan, program, device, arena);
    double *us = ARENA_ARRAY(arena, double, graph->n_nodes + 1);
    for (int i = 0; i < graph->n_nodes; i++) us[i] = cost_node(&p, graph->nodes[i]).us;
    return us;
}

ProgramCost cost_program(const Plan *plan, int program, const Device *device, Arena *arena) {
    ProgramCost sum = {0};
    const Graph *graph = plan->programs[program].graph;
    Pricing p = start_pricing(plan, program, device, arena);
    TaskMessages messages[PHASE_UPDATE][MAX_CHUNKS] = {{{0}}};
    MessageClock clocks[PHASE_UPDATE][MAX_CHUNKS] = {{{0}}};
    MessageTimes times = message_times_create(graph, arena);
    CopyClock copies[PHASE_UPDATE][MAX_CHUNKS] = {{{0}}};
    double *copied_us = ARENA_ARRAY(arena, double, graph->n_nodes + 1);
    Cost *tasks[PHASE_UPDATE] = {sum.forward, sum.backward, sum.weights};
    int part = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = graph->nodes[i];
        Cost cost = cost_node(&p, node);
        int chunk = node->chunk >= 0 && node->chunk < MAX_CHUNKS ? node->chunk : 0;
        if (node->phase == PHASE_UPDATE) {
            add_update(&sum, &p, node, chunk, cost, &part);
            continue;
        }
        if (node_is_once(node)) {
            add_once(&sum, node, chunk, cost);
            continue;
        }
        if (add_task_message(&messages[node->phase][chunk], plan, node, &cost)) continue;
        copy_clock_add(&copies[node->phase][chunk], copied_us, node, cost.us);
        if (device->cluster && op_copies_host(node->op)) continue; /* beside the work */
        cost_add(&tasks[node->phase][chunk], cost);
        message_clock_add(&clocks[node->phase][chunk], &times, node, cost.us);
    }
    for (int c = 0; c < plan->n_chunks; c++) {
        double slowed_us = device->cluster ? device->cluster->software.overlap_slowdown : 0;
        sum.update[0].us += slowed_us * sum.data[c].us; /* of the work beside them */
        for (int phase = 0; phase < PHASE_UPDATE; phase++) {
            close_task(&tasks[phase][c], &messages[phase][c], &clocks[phase][c], &copies[phase][c],
                       device);
        }
    }
    return sum;
}
