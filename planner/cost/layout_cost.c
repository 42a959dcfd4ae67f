#include "planner/cost/layout_cost.h"

#include "ir/ops/route.h"
#include "planner/cost/count_leaves.h"
#include "planner/cost/device_time.h"
#include "planner/cost/message_clock.h"
#include "planner/cost/node_cost.h"
#include "planner/passes/pass.h"

#include <math.h>
#include <string.h>

int64_t value_bytes_of_batch(Value value, int batch, int n_more, const Mesh *mesh) {
    Type type = *value_type(value);
    int at = type_find_axis(&type, batch);
    if (at >= 0) type.dims[at] *= n_more;
    return type_local_bytes(&type, value_sharding(value), mesh);
}

static BatchScaler make_scaler(const Graph *graph, Arena *arena) {
    Graph *scaled = ARENA_NEW(arena, Graph);
    BatchScaler scaler = {graph, arena, scaled, NULL, NULL, 0};
    int batch = axis_find(&graph->axes, "batch", 5), n_outputs = 0;
    for (int n = 0; n < graph->n_nodes; n++) n_outputs += graph->nodes[n]->n_outputs;
    scaler.dims = ARENA_ARRAY(arena, int64_t *, n_outputs + 1);
    scaler.lengths = ARENA_ARRAY(arena, int64_t, n_outputs + 1);
    *scaled = *graph;
    scaled->arena = arena;
    scaled->nodes = ARENA_ARRAY(arena, Node *, graph->n_nodes + 1);
    Node *copies = ARENA_ARRAY(arena, Node, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = scaled->nodes[n] = &copies[n];
        *node = *graph->nodes[n];
        node->inputs = ARENA_ARRAY(arena, Value, node->n_inputs + 1);
        for (int i = 0; i < node->n_inputs; i++) {
            Value from = graph->nodes[n]->inputs[i];
            node->inputs[i] = node_value(&copies[from.node->id], from.output);
        }
        for (int o = 0; o < node->n_outputs; o++) {
            int at = type_find_axis(&node->types[o], batch);
            if (at < 0) continue;
            scaler.lengths[scaler.n] = node->types[o].dims[at];
            scaler.dims[scaler.n++] = &node->types[o].dims[at];
        }
    }
    return scaler;
}

void batch_scaler_end(BatchScaler *scaler) {
    arena_destroy(scaler->arena);
    *scaler = (BatchScaler){0};
}

Graph *batch_scaler_graph(BatchScaler *scaler, const Graph *of, int b) {
    if (scaler->of != of) {
        batch_scaler_end(scaler);
        *scaler = make_scaler(of, arena_create());
    }
    for (int i = 0; i < scaler->n; i++) *scaler->dims[i] = scaler->lengths[i] * b;
    return scaler->graph;
}

Graph *graph_scale_batch(const Graph *graph, int b, Arena *arena) {
    BatchScaler scaler = make_scaler(graph, arena);
    return batch_scaler_graph(&scaler, graph, b);
}

typedef struct Pricer {
    const ModelCosts *costs;
    const Lowered *lowered;
    const Program *program; /* scaled */
    const double *mask_elements;
    LayoutCost *out;
    Arena *work;
    NodePricer nodes;
} Pricer;

SegmentCost *lowered_segment(const Lowered *lowered, int node, LayoutCost *out) {
    int segment = lowered->segment[node], shared = lowered->places.shared[node];
    if (shared >= 0) return &out->shared[shared].cost;
    return segment == SEGMENT_BEFORE  ? &out->before
           : segment == SEGMENT_AFTER ? &out->after
                                      : &out->kinds[segment];
}

static SegmentCost *segment_of(const Pricer *p, int node) {
    return lowered_segment(p->lowered, node, p->out);
}

static const Buffer *buffer_of(const Pricer *p, Value value) {
    return &p->program->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

/* A part's share of a split layout's frame: `forward` is kept from there, `weights` to the W;
 * `live` is what is alive at the moment, `peak` the most. */
typedef struct FrameShare {
    int64_t forward, weights, live, peak;
} FrameShare;

/* Does the value take over the room of an operand? */
static bool is_in_place(const Pricer *p, const Node *node, const Buffer *buffer) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Buffer *from = buffer_of(p, node->inputs[i]);
        if (from->region == REGION_FRAME && from->offset_bytes == buffer->offset_bytes) return true;
    }
    return false;
}

/* What is kept for a W is that one's, whoever made it. `last`: by value, its last reader. */
static FrameShare *share_of(const Pricer *p, FrameShare *shares, Value value, const int *last) {
    const Node *node = value.node;
    const Node *reader = p->program->graph->nodes[last[node->id * MAX_OUTPUTS + value.output]];
    bool kept = reader->phase == PHASE_WEIGHTS;
    return &shares[2 + p->lowered->segment[kept ? reader->id : node->id]]; /* BEFORE is -2 */
}

/* What a node makes in the frame, and what dies with it. */
static void play_frame(Pricer *p, const Node *node, const int *last, FrameShare *shares) {
    int64_t taken = 0; /* of what dies */
    for (int o = 0; node->phase < PHASE_WEIGHTS && o < node->n_outputs; o++) {
        Value value = node_value((Node *)node, o);
        const Buffer *buffer = buffer_of(p, value);
        FrameShare *share = share_of(p, shares, value, last);
        if (buffer->region != REGION_FRAME) continue;
        if (buffer->class == CLASS_INPUT) {
            p->out->input_bytes += buffer->bytes;
            continue;
        }
        const Node *reader = p->program->graph->nodes[last[node->id * MAX_OUTPUTS + o]];
        FrameShare *made = &shares[2 + p->lowered->segment[node->id]];
        if (node->phase == PHASE_FORWARD) made->forward += buffer->bytes;
        if (reader->phase == PHASE_WEIGHTS) share->weights += buffer->bytes;
        share->live += buffer->bytes;
        if (is_in_place(p, node, buffer)) taken += buffer->bytes;
        if (share->live - taken > share->peak) share->peak = share->live - taken;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        bool again = false, dies = last[input.node->id * MAX_OUTPUTS + input.output] == node->id;
        for (int k = 0; k < i; k++) again |= value_equal(node->inputs[k], input);
        const Buffer *buffer = buffer_of(p, input);
        if (!dies || again || buffer->region != REGION_FRAME || buffer->class == CLASS_INPUT) {
            continue;
        }
        share_of(p, shares, input, last)->live -= buffer->bytes;
    }
}

/* Of each part what a micro-batch keeps after its forward, and after its backward. */
static void count_split_frames(Pricer *p) {
    const Graph *graph = p->program->graph;
    FrameShare *shares = ARENA_ARRAY(p->work, FrameShare, 3 + p->costs->n_kinds);
    int *last = ARENA_ARRAY(p->work, int, graph->n_nodes *MAX_OUTPUTS + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            last[node->inputs[i].node->id * MAX_OUTPUTS + node->inputs[i].output] = n;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) play_frame(p, graph->nodes[n], last, shares);
    for (int k = 0; k < 2 + p->costs->n_kinds; k++) {
        SegmentCost *segment = k == 0   ? &p->out->before
                               : k == 1 ? &p->out->after
                                        : &p->out->kinds[k - 2];
        const FrameShare *of = &shares[k];
        segment->kept_bytes = of->forward;
        segment->weights_bytes = of->weights;
        segment->peak_bytes = of->peak;
    }
}

/* Values that share a storage are counted once: where it is first used. */
static void count_memory(Pricer *p) {
    const Graph *graph = p->program->graph;
    int64_t frame_end = 0;
    if (p->lowered->split) count_split_frames(p);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        SegmentCost *segment = segment_of(p, n);
        for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
            Value value =
                i < node->n_inputs ? node->inputs[i] : node_value(node, i - node->n_inputs);
            const Buffer *buffer = buffer_of(p, value);
            int64_t end = buffer->offset_bytes + buffer->bytes;
            if (buffer->region == REGION_SCRATCH && end > segment->scratch_bytes) {
                segment->scratch_bytes = end;
            }
        }
        for (int o = 0; !p->lowered->split && o < node->n_outputs; o++) {
            const Buffer *buffer = buffer_of(p, node_value(node, o));
            if (buffer->region != REGION_FRAME || buffer->offset_bytes < frame_end) continue;
            frame_end = buffer->offset_bytes + buffer->bytes;
            if (buffer->class == CLASS_INPUT) {
                p->out->input_bytes += buffer->bytes;
            } else {
                segment->kept_bytes += buffer->bytes;
            }
        }
    }
}

LayoutCost *layout_cost_count_parameters(const Lowered *lowered, int n_kinds, Arena *arena) {
    const Graph *graph = lowered->plan->programs[0].graph;
    Arena *work = arena_create();
    LayoutCost *out = ARENA_NEW(arena, LayoutCost);
    *out = (LayoutCost){.t = lowered->t, .c = lowered->c, .e = lowered->e};
    out->kinds = ARENA_ARRAY(arena, SegmentCost, n_kinds + 1);
    out->n_shared = lowered->places.n_weights;
    out->shared = ARENA_ARRAY(arena, SharedWeight, out->n_shared + 1);
    const LeafCounter by = leaf_counter_create(graph, &out->shapes, lowered->plan->offload, work);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!(OPS[node->op].flags & PERSISTENT)) continue;
        if (node->op == OP_ACCUMULATOR && !node_string(node, ATTR_of)[0]) continue; /* the loss */
        leaf_counter_add(&by, node, lowered_segment(lowered, n, out));
        if (!lowered->places.tied[n]) continue;
        leaf_counter_add(&by, node, &out->after); /* lowered_segment said before */
        leaf_counter_add(&by, node, &out->tied);
    }
    arena_destroy(work);
    return out;
}

/* Parts that nothing was counted of yet become those of the parameters, with their calls. */
static void put_parameters(const LayoutCost *leaves, LayoutCost *out, int n_kinds) {
    out->shapes = leaves->shapes;
    out->zero_bytes = leaves->zero_bytes;
    memcpy(out->update_calls, leaves->update_calls, sizeof(out->update_calls));
    out->before = leaves->before;
    out->after = leaves->after;
    out->tied = leaves->tied;
    for (int k = 0; k < n_kinds; k++) out->kinds[k] = leaves->kinds[k];
    for (int i = 0; i < out->n_shared; i++) out->shared[i].cost = leaves->shared[i].cost;
}

/* FLOPs of forward and backward as the model has them: neither recomputation is counted, nor words
 * that fill up a vocabulary. */
static double model_flops(const Node *node, const Mesh *mesh) {
    Type inputs[8], outputs[MAX_OUTPUTS];
    Mesh unfilled = *mesh;
    unfilled.vocab_multiple = 0;
    if (node->n_inputs > 8 || !op_multiplies(node->op)) return 0;
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] =
            type_local(value_type(node->inputs[i]), value_sharding(node->inputs[i]), &unfilled);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = type_local(&node->types[o], &node->shardings[o], &unfilled);
    }
    return op_model_flops(node, inputs, outputs);
}

static PhaseCost *phase_of(Pricer *p, const Node *node) {
    SegmentCost *segment = segment_of(p, node->id);
    return node->phase == PHASE_FORWARD    ? &segment->forward
           : node->phase == PHASE_BACKWARD ? &segment->backward
                                           : &segment->weights;
}

static double known_us(const PhaseCost *cost) {
    return cost->product_us + cost->attention_us + cost->memory_us + cost->collective_us;
}

/* One phase of one part of the model, by its clock. */
typedef struct PhaseClock {
    MessageClock clock;
    PhaseCost *phase;
} PhaseClock;

static void price_nodes(Pricer *p, Arena *work) {
    const Graph *graph = p->program->graph;
    int n_clocks = (2 + p->costs->n_kinds) * N_PHASES;
    PhaseClock *clocks = ARENA_ARRAY(work, PhaseClock, n_clocks + 1);
    MessageTimes times = message_times_create(graph, work);
    const Cluster *cluster = p->costs->cluster;
    bool again = cluster->software.attention == ATTENTION_MATERIALISED &&
                 p->out->recompute == RECOMPUTE_SELECTIVE;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        PhaseCost *phase = phase_of(p, node);
        PhaseClock *by = &clocks[(2 + p->lowered->segment[n]) * N_PHASES + (int)node->phase];
        double before_us = known_us(phase); /* BEFORE is -2 */
        node_cost_add(phase, &p->nodes, node);
        message_clock_add(&by->clock, &times, node, known_us(phase) - before_us);
        by->phase = phase;
        if (again && node->op == OP_ATTENTION_GRAD) {
            node_cost_add_attention_again(phase, &p->nodes, node);
        }
    }
    for (int i = 0; cluster->software.overlaps_block && i < n_clocks; i++) {
        PhaseCost *phase = clocks[i].phase;
        if (clocks[i].clock.message_us == 0) continue;
        phase->within_us = message_clock_hidden_us(&clocks[i].clock);
        if (p->out->lanes < 2 || i < 2 * N_PHASES) continue; /* lanes of no block */
        double edge_us = message_clock_edge_us(&clocks[i].clock);
        phase->within_us += edge_us;
        phase->edge_us = (1 - cluster->software.overlap_slowdown) * edge_us;
    }
}

/* The type's number among those that were met, from 1 on; the last is for all that do not fit. */
static int find_shape(const Type **shapes, int *n_shapes, const Type *type) {
    for (int k = 0; k < *n_shapes; k++) {
        if (type_equal(shapes[k], type)) return k + 1;
    }
    if (*n_shapes < MUON_SHAPES) shapes[(*n_shapes)++] = type;
    return *n_shapes;
}

static bool has_muon(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_MUON_MOMENTUM) return true;
    }
    return false;
}

/* What lies between a momentum of Muon's and its step goes with the state, wherever it runs. */
static void price_muon(Pricer *p, Arena *work) {
    const Graph *graph = p->program->graph;
    const Cluster *cluster = p->costs->cluster;
    if (!has_muon(graph)) return;
    const Node **state = ARENA_ARRAY(work, const Node *, graph->n_nodes + 1); /* by node id */
    double *us = ARENA_ARRAY(work, double, graph->n_nodes + 1);               /* by state's id */
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_MUON) continue;
        if (node->op == OP_MUON_MOMENTUM) {
            state[n] = node->inputs[0].node;
            continue;
        }
        for (int i = 0; i < node->n_inputs && !state[n]; i++) {
            state[n] = state[node->inputs[i].node->id];
        }
        if (!state[n]) continue;
        PhaseCost cost = {0};
        node_cost_add(&cost, &p->nodes, node);
        us[state[n]->id] +=
            software_phase_us(&cluster->software, cost.product_us + cost.memory_us,
                              cost.collective_us, cost.n_ops, cost.n_collectives, p->out->t, false);
    }
    const Type *shapes[MUON_SHAPES + 1];
    int n_shapes = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *leaf = graph->nodes[n];
        if (us[n] <= 0) continue;
        int shape = leaf->block == NO_BLOCK ? 0 : find_shape(shapes, &n_shapes, &leaf->types[0]);
        int64_t bytes = type_local_bytes(&leaf->types[0], &leaf->shardings[0], &graph->mesh);
        if (dtype_is_low(p->lowered->plan->precision)) bytes /= 2;
        muon_cost_note(&segment_of(p, n)->muon, shape, us[n], (double)bytes);
    }
}

/* LAMB's moments read the parameter, and its step all three again. */
static void count_norms(Pricer *p) {
    const Graph *graph = p->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_LAMB_MOMENTS) continue;
        const Node *state = node->inputs[1].node;
        segment_of(p, state->id)->norm_bytes +=
            3 * type_local_bytes(&state->types[0], &state->shardings[0], &graph->mesh);
    }
}

/* A product that no rank of t has a part of is done by each; the model asks for it once. */
static bool is_over_t(const Node *node, const Mesh *mesh) {
    for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
        bool input = i < node->n_inputs;
        Value value = input ? node->inputs[i] : node_value((Node *)node, i - node->n_inputs);
        const Sharding *sharding = value_sharding(value);
        for (int k = 0; k < value_type(value)->rank; k++) {
            if (mesh_axes(mesh, sharding->mesh[k]) >> MESH_T & 1) return true;
        }
    }
    return false;
}

/* Words for a part of the positions (part_loss). */
static bool makes_words(const Node *node, int rows) {
    bool product = node->op == OP_MATMUL && rows >= 0;
    return product && type_find_axis(&node->types[0], rows) >= 0 &&
           type_find_axis(&node->types[0], AXIS_VOCAB) >= 0;
}

static void count_model_flops(Pricer *p, Arena *work) {
    const Graph *graph = p->program->graph;
    RouteSet routes = route_find_all(graph, work);
    int rows = axis_find(&graph->axes, LOSS_ROWS, (int)strlen(LOSS_ROWS));
    bool before = false; /* parts' logits, in the forward: those of the backward are made again */
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        bool words = makes_words(node, rows);
        before |= words && node->phase == PHASE_FORWARD;
        if (words && before && node->phase != PHASE_FORWARD) continue;
        double flops = model_flops(node, &graph->mesh) * route_active_share(&routes, node);
        segment_of(p, n)->model_flops += is_over_t(node, &graph->mesh) ? flops : flops / p->out->t;
    }
}

/* What software without Perilune's habits keeps besides: masks of dropout, and scores of attention:
 * softmax's result, its mask, and what dropout makes of it (Korthikanti et al. 2022, section 4.1).
 */
static void add_kept_by_software(Pricer *p) {
    const ClusterSoftware *software = &p->costs->cluster->software;
    const Graph *graph = p->program->graph;
    LayoutCost *out = p->out;
    if (out->recompute == RECOMPUTE_FULL) return;
    if (software->keeps_masks) {
        double share = (double)out->micro_batch / (out->sequence_parallel ? out->t : 1);
        int n_kinds = p->costs->n_kinds;
        for (int k = 0; k < n_kinds; k++) {
            out->kinds[k].kept_bytes += (int64_t)(p->mask_elements[k] * share);
        }
        out->before.kept_bytes += (int64_t)(p->mask_elements[n_kinds] * share);
    }
    bool scores = software->attention == ATTENTION_MATERIALISED;
    for (int n = 0; scores && out->recompute == RECOMPUTE_NONE && n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op != OP_ATTENTION) continue;
        double bytes = software->attention_dropout ? 5 : 2;
        segment_of(p, n)->kept_bytes +=
            (int64_t)(bytes * attention_score_elements(graph->nodes[n], &graph->mesh));
    }
}

/* Of `bytes` that are read or written. What is offloaded is both, over the bus, and of what LAMB
 * reads again its share. */
static double update_us(const Cluster *cluster, const SegmentCost *segment, double bytes) {
    double offloaded = (double)segment->offloaded_bytes, state = (double)segment->optimizer_bytes;
    double again = state > 0 ? (double)segment->norm_bytes * offloaded / state : 0;
    double near = bytes - 2 * offloaded - again;
    double near_us = near > 0 ? device_memory_us(&cluster->device, near) : 0;
    return fmax(near_us, device_host_us(cluster, offloaded + again));
}

static void close_phases(const Pricer *p, SegmentCost *segment) {
    const ClusterSoftware *software = &p->costs->cluster->software;
    phase_cost_close(&segment->forward, software, p->out->t, false);
    phase_cost_close(&segment->backward, software, p->out->t, true);
    phase_cost_close(&segment->weights, software, p->out->t, true);
}

static void close_segment(const Pricer *p, SegmentCost *segment) {
    const Cluster *cluster = p->costs->cluster;
    double copied = (double)(segment->parameter_bytes - segment->upper_bytes);
    double state = (double)segment->optimizer_bytes;
    close_phases(p, segment);
    /* The norm reads gradients, the optimizer reads them again and reads and writes the rest. */
    double bytes = 2 * (double)segment->gradient_bytes + 2 * state + copied;
    bytes += (double)segment->norm_bytes;
    segment->update_us = update_us(cluster, segment, bytes);
    if (!segment->low_gradients) return;
    double less =
        2.0 * (double)segment->low_gradients * (dtype_bytes(DTYPE_F32) - dtype_bytes(DTYPE_BF16));
    segment->low_update_us = segment->update_us - update_us(cluster, segment, bytes - less);
}

static void add_crossing(Crossing *sum, int64_t bytes) {
    sum->bytes += bytes;
    if (bytes > sum->largest) sum->largest = bytes;
    sum->n_values++;
}

/* Where documents begin and end is found anew in every chunk that reads it (assign_chunks), and
 * kept. */
static void measure_documents(const Pricer *p) {
    const Graph *graph = p->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!op_reads_tokens(node->op) || node->block != NO_BLOCK) continue;
        p->out->n_documents++;
        p->out->documents_bytes =
            type_local_bytes(&node->types[0], &node->shardings[0], &graph->mesh);
    }
}

/* What crosses from one block to the next: the most that others read of a block. (What a block
 * reads of others would not do: the only one of its kind reads the embedding, which may be divided
 * in another way.) */
static void find_crossings(const Graph *graph, int n_kinds, int batch, int n_more, Arena *arena,
                           Crossing most[N_PHASES]) {
    Crossing *of[N_PHASES];
    for (int i = 0; i < N_PHASES; i++) of[i] = ARENA_ARRAY(arena, Crossing, n_kinds + 1);
    bool *seen = ARENA_ARRAY(arena, bool, (graph->n_nodes + 1) * MAX_OUTPUTS);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            Value in = node->inputs[i];
            int at = in.node->id * MAX_OUTPUTS + in.output, block = in.node->block;
            if (block == NO_BLOCK || block == node->block || seen[at]) continue;
            if (node->phase == PHASE_UPDATE || in.node->phase != node->phase) continue;
            if (OPS[in.node->op].flags & LEAF || op_is_number(in.node->op)) continue;
            if (in.node->op == OP_ACCUMULATE) continue; /* each stage has its own */
            seen[at] = true;
            Crossing *crossing = &of[node->phase][block];
            add_crossing(crossing, value_bytes_of_batch(in, batch, n_more, &graph->mesh));
            if (crossing->bytes >= most[node->phase].bytes) most[node->phase] = *crossing;
        }
    }
}

Crossing measure_border(const Graph *graph, int n_kinds, int batch, int n_more, Arena *arena) {
    Crossing most[N_PHASES] = {{0}};
    find_crossings(graph, n_kinds, batch, n_more, arena, most);
    return most[PHASE_FORWARD];
}

static void put_border(const Pricer *p, Arena *arena) {
    Crossing most[N_PHASES] = {{0}};
    find_crossings(p->program->graph, p->costs->n_kinds, -1, 1, arena, most);
    const Crossing *forward = &most[PHASE_FORWARD];
    int64_t slot = (forward->largest + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    p->out->border_bytes = forward->bytes;
    p->out->n_border_values = forward->n_values;
    p->out->n_border_gradients = most[PHASE_BACKWARD].n_values;
    p->out->border_padding_bytes = slot * forward->n_values - forward->bytes;
}

static void add_phase(PhaseCost *sum, const PhaseCost *other) {
    sum->us += other->us;
    sum->product_us += other->product_us;
    sum->attention_us += other->attention_us;
    sum->memory_us += other->memory_us;
    sum->collective_us += other->collective_us;
    sum->exchange_us += other->exchange_us;
    sum->within_us += other->within_us;
    sum->beside_us += other->beside_us;
    sum->host_us += other->host_us;
    sum->flops += other->flops;
    sum->collective_bytes += other->collective_bytes;
    sum->n_ops += other->n_ops;
    sum->n_collectives += other->n_collectives;
}

void layout_cost_compare(const ModelCosts *costs, const LayoutCost *none, LayoutCost *out) {
    bool all = out->recompute == RECOMPUTE_FULL && costs->cluster->software.recomputes_all;
    out->before.model_flops = none->before.model_flops;
    out->after.model_flops = none->after.model_flops;
    for (int k = 0; k < costs->n_kinds; k++) {
        SegmentCost *kind = &out->kinds[k];
        kind->model_flops = none->kinds[k].model_flops;
        if (!all) continue;
        kind->forward = none->kinds[k].forward;
        kind->backward = none->kinds[k].backward;
        add_phase(&kind->backward, &kind->forward);
    }
}

void layout_cost_time(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                      LayoutCost *out) {
    Arena *work = arena_create();
    const Graph *one = lowered->plan->programs[0].graph;
    Program program = {.graph = batch_scaler_graph(scaler, one, out->micro_batch / out->lanes)};
    Pricer p = {.costs = costs,
                .lowered = lowered,
                .program = &program,
                .out = out,
                .work = work,
                .nodes = node_pricer_create(costs->cluster, program.graph, work)};
    price_nodes(&p, work);
    close_phases(&p, &out->before);
    close_phases(&p, &out->after);
    for (int k = 0; k < costs->n_kinds; k++) close_phases(&p, &out->kinds[k]);
    arena_destroy(work);
}

void layout_cost_price(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                       const double *mask_elements, LayoutCost *out) {
    Arena *work = arena_create();
    const Graph *one = lowered->plan->programs[0].graph;
    Program program = {.graph = batch_scaler_graph(scaler, one, out->micro_batch / out->lanes)};
    plan_places(&program, 1, lowered->plan->cuda, 0, work);
    Pricer p = {costs,
                lowered,
                &program,
                mask_elements,
                out,
                work,
                node_pricer_create(costs->cluster, program.graph, work)};
    put_parameters(lowered->leaves, out, costs->n_kinds);
    price_nodes(&p, work);
    count_model_flops(&p, work);
    count_memory(&p);
    price_muon(&p, work);
    count_norms(&p);
    add_kept_by_software(&p);
    close_segment(&p, &out->before);
    close_segment(&p, &out->after);
    close_segment(&p, &out->tied);
    for (int i = 0; i < out->n_shared; i++) close_segment(&p, &out->shared[i].cost);
    for (int k = 0; k < costs->n_kinds; k++) close_segment(&p, &out->kinds[k]);
    put_border(&p, work);
    measure_documents(&p);
    out->workspace_bytes = program_workspace(program.graph, lowered->plan->cuda).total;
    arena_destroy(work);
}
