#include "planner/cost.h"

#include "ir/op.h"
#include "planner/measured_time.h"

#include <string.h>

/* An AVX-512 core sustains about this in oneDNN's f32 products, a two-socket server's memory gives
 * each core about this share, and a message is a copy through the shared cache. */
const Device DEVICE_CPU_CORE = {
    .name = "one x86 core (assumed)",
    .flops_per_second = 60e9,
    .memory_bytes_per_second = 10e9,
    .call_us = 1,
    .link_latency_us = 5,
    .link_bytes_per_second = 5e9,
    .send_blocks = true,
};

/* Three quarters of the data sheet's 989 TFLOP/s and nine tenths of its 4.8 TB/s; NVLink. */
const Device DEVICE_H200_BF16 = {
    .name = "one H200 (assumed)",
    .flops_per_second = 740e12,
    .memory_bytes_per_second = 4.3e12,
    .call_us = 2,
    .link_latency_us = 8,
    .link_bytes_per_second = 350e9,
    .send_blocks = false,
};
static const Device DEVICE_H200_F32 = {
    .name = "one H200 in f32 (assumed)",
    .flops_per_second = 50e12,
    .memory_bytes_per_second = 4.3e12,
    .call_us = 2,
    .link_latency_us = 8,
    .link_bytes_per_second = 350e9,
    .send_blocks = false,
};

const Device *cost_device(const Plan *plan) {
    if (!plan->cuda) return &DEVICE_CPU_CORE;
    return plan->precision == DTYPE_BF16 ? &DEVICE_H200_BF16 : &DEVICE_H200_F32;
}

double cost_message_us(const Device *device, double bytes) {
    return device->link_latency_us + bytes / device->link_bytes_per_second * 1e6;
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
        if (out->mesh_axis >= 0) out->n_ranks = plan->mesh.size[out->mesh_axis];
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

static double collective_us(const Device *device, const CollectiveCost *message) {
    double latency_us =
        device->step_latency_us > 0 ? device->step_latency_us : device->link_latency_us;
    double rate = device->step_bytes_per_second > 0 ? device->step_bytes_per_second
                                                    : device->link_bytes_per_second;
    return message->n_steps * latency_us + message->bytes / rate * 1e6;
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

static Cost cost_node(const Plan *plan, const Node *node, const Device *device, Arena *arena,
                      Shapes *shapes) {
    Cost cost = {0};
    const OpInfo *op = &OPS[node->op];
    if (!(op->flags & KERNEL)) return cost; /* leaves and markers: nothing to run */
    CollectiveCost message;
    if (op->flags & COLLECTIVE) {
        if (!cost_collective(plan, node, &message)) return cost;
        cost.collective_us = collective_us(device, &message);
        cost.us = device->call_us + cost.collective_us;
        return cost;
    }
    shapes_of(plan, node, arena, shapes);
    cost.flops = op->flops(node, shapes->inputs, shapes->outputs);
    cost.traffic_bytes = shapes->bytes;
    double compute_us = cost.flops / flops_rate(device, node, &shapes->inputs[0], cost.flops) * 1e6;
    double memory_rate = device->memory.count ? rate_curve_at(&device->memory, cost.traffic_bytes)
                                              : device->memory_bytes_per_second;
    double memory_us = cost.traffic_bytes / memory_rate * 1e6;
    double measured_us =
        measured_node_us(device, node, shapes->inputs, shapes->outputs, cost.flops);
    cost.us = measured_us >= 0
                  ? measured_us
                  : device->call_us + (compute_us > memory_us ? compute_us : memory_us);
    return cost;
}

static void cost_add(Cost *sum, Cost cost) {
    sum->us += cost.us;
    sum->collective_us += cost.collective_us;
    sum->flops += cost.flops;
    sum->traffic_bytes += cost.traffic_bytes;
}

ProgramCost cost_program(const Plan *plan, int program, const Device *device, Arena *arena) {
    ProgramCost sum = {0};
    const Graph *graph = plan->programs[program].graph;
    Shapes shapes = {0};
    int part = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = graph->nodes[i];
        Cost cost = cost_node(plan, node, device, arena, &shapes);
        int chunk = node->chunk >= 0 && node->chunk < MAX_CHUNKS ? node->chunk : 0;
        if (node->phase == PHASE_FORWARD) cost_add(&sum.forward[chunk], cost);
        if (node->phase == PHASE_BACKWARD) cost_add(&sum.backward[chunk], cost);
        if (node->phase != PHASE_UPDATE) continue;
        CollectiveCost message;
        if (cost_collective(plan, node, &message)) {
            if (message.stage_comm >= 0 && part == 0) {
                part = 1;
                sum.joins_tied = true;
            } else if (message.mesh_axis == MESH_P) {
                part = 2;
                sum.joins_pipeline = true;
            }
        }
        cost_add(&sum.update[part], cost);
    }
    return sum;
}
