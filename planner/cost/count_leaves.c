#include "planner/cost/count_leaves.h"

#include "ir/op.h"
#include "planner/cost/count_calls.h"
#include "planner/plan/offload.h"
#include "planner/plan/zero.h"

#include <string.h>

/* A parameter that is trained. */
static void count_weight(const LeafCounter *by, const Node *node, bool has_copy, int64_t n_local,
                         SegmentCost *segment, ExpertWeights *experts) {
    int64_t elements = type_elements(&node->types[0]);
    bool counts = elements >= by->least, is_expert = experts == &segment->experts;
    bool whole = by->has_copies && !has_copy && elements < ZERO_LEAST_UNCOPIED;
    int shape = counts ? weight_shapes_find(by->shapes, by->graph, node, is_expert, whole) : -1;
    if (shape >= 0) segment->of_shape[shape] += n_local;
    segment->n_parameters += n_local;
    experts->n_parameters += n_local;
    segment->n_weights += counts;
    experts->n_weights += counts;
    segment->n_small += !counts;
    experts->n_small += !counts;
    if (n_local > segment->largest_weight) segment->largest_weight = n_local;
}

/* A frozen parameter, or its copy in 16 bits. */
static void count_frozen(const LeafCounter *by, const Node *node, int64_t bytes,
                         SegmentCost *segment, ExpertWeights *experts) {
    bool counts = type_elements(&node->types[0]) >= by->least;
    segment->frozen_bytes += bytes;
    experts->frozen_bytes += bytes;
    segment->n_frozen += counts;
    experts->n_frozen += counts;
    if (bytes > segment->largest_frozen) segment->largest_frozen = bytes;
}

static void count_gradient(int64_t n_local, bool low, SegmentCost *segment,
                           ExpertWeights *experts) {
    segment->gradient_bytes += n_local * dtype_bytes(DTYPE_F32);
    experts->gradient_bytes += n_local * dtype_bytes(DTYPE_F32);
    segment->low_gradients += low ? n_local : 0;
    experts->low_gradients += low ? n_local : 0;
}

void leaf_counter_add(const LeafCounter *by, const Node *node, SegmentCost *segment) {
    const Graph *graph = by->graph;
    bool has_copy = by->has_copy[node->id];
    ExpertWeights others = {0},
                  *experts = is_expert_leaf(graph, node) ? &segment->experts : &others;
    int64_t bytes = type_local_bytes(&node->types[0], &node->shardings[0], &graph->mesh);
    const Node *param = node_is_copy(node)
                            ? param_index_find(&by->params, node->block, node_string(node, ATTR_of))
                            : node;
    if (param && node_is_frozen(param)) {
        count_frozen(by, node, bytes, segment, experts);
        return;
    }
    if (by->may_offload[node->id]) {
        segment->offloaded_bytes += bytes * by->offload / 100;
        experts->offloaded_bytes += bytes * by->offload / 100;
    }
    switch (node->op) {
    case OP_PARAM:
        *(has_copy ? &segment->optimizer_bytes : &segment->parameter_bytes) += bytes;
        *(has_copy ? &experts->optimizer_bytes : &experts->parameter_bytes) += bytes;
        count_weight(by, node, has_copy, bytes / dtype_bytes(node->types[0].dtype), segment,
                     experts);
        break;
    case OP_STATE:
        *(node_is_copy(node) ? &segment->parameter_bytes : &segment->optimizer_bytes) += bytes;
        *(node_is_copy(node) ? &experts->parameter_bytes : &experts->optimizer_bytes) += bytes;
        if (!node_is_upper(node)) break;
        segment->upper_bytes += bytes;
        experts->upper_bytes += bytes;
        break;
    case OP_ACCUMULATOR:
        count_gradient(bytes / dtype_bytes(node->types[0].dtype),
                       node->types[0].dtype == DTYPE_BF16, segment, experts);
        break;
    default: break;
    }
}

LeafCounter leaf_counter_create(const Graph *graph, WeightShapes *shapes, int offload,
                                Arena *work) {
    LeafCounter by = {.graph = graph,
                      .params = param_index_create(graph, work),
                      .shapes = shapes,
                      .may_offload = offload_candidates(graph, work),
                      .offload = offload};
    int64_t largest = 0;
    bool *has_copy = ARENA_ARRAY(work, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int64_t elements = node->op == OP_PARAM ? type_elements(&node->types[0]) : 0;
        if (elements > largest) largest = elements;
        if (!node_is_copy(node)) continue;
        const Node *param = param_index_find(&by.params, node->block, node_string(node, ATTR_of));
        if (param) has_copy[param->id] = true;
        by.has_copies = true;
    }
    for (int n = 0; n < graph->n_nodes; n++) { /* of one name all, as the first */
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        has_copy[n] =
            has_copy[param_index_find(&by.params, node->block, node_string(node, ATTR_name))->id];
    }
    by.has_copy = has_copy;
    by.least = largest / ZERO_LEAST_SHARE;
    return by;
}
