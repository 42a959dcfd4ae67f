#include "planner/cost/shared_weights.h"

#include "ir/op.h"
#include "ir/param_index.h"

#include <string.h>

/* The parameter that a leaf of no block belongs to; the leaf itself, if it is or has none. */
static const Node *param_of(const ParamIndex *params, const Node *leaf) {
    const char *of = node_string(leaf, ATTR_of);
    const Node *param = of[0] ? param_index_find(params, NO_BLOCK, of) : NULL;
    return param ? param : leaf;
}

static bool is_loose_leaf(const Node *node) {
    return OPS[node->op].flags & LEAF && node->block == NO_BLOCK;
}

/* Blocks come one after the other: a kind that is noted already was noted last. */
static void note_reader(WeightReaders *readers, int segment, Arena *arena) {
    readers->before |= segment == SEGMENT_BEFORE;
    readers->after |= segment == SEGMENT_AFTER;
    if (segment < 0) return;
    if (readers->n_kinds && readers->kinds[readers->n_kinds - 1] == segment) return;
    ARENA_PUSH(arena, readers->kinds, readers->n_kinds, readers->capacity, segment);
}

/* By id of a leaf: who reads it, or a copy of it. What a block's backward reads its forward does.
 */
static WeightReaders *find_readers(const Graph *graph, const int *segment, const ParamIndex *params,
                                   Arena *arena) {
    WeightReaders *readers = ARENA_ARRAY(arena, WeightReaders, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        if (segment[n] >= 0 && node->phase != PHASE_FORWARD) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (!is_loose_leaf(from)) continue;
            const Node *param = node_is_copy(from) ? param_of(params, from) : from;
            note_reader(&readers[param->id], segment[n], arena);
        }
    }
    return readers;
}

static bool same_readers(const WeightReaders *a, const WeightReaders *b) {
    return a->before == b->before && a->after == b->after && a->n_kinds == b->n_kinds &&
           memcmp(a->kinds, b->kinds, sizeof(int) * (size_t)a->n_kinds) == 0;
}

static int find_weight(LeafPlaces *places, const WeightReaders *readers, Arena *arena) {
    for (int i = places->n_weights - 1; i >= 0; i--) {
        if (same_readers(&places->weights[i], readers)) return i;
    }
    ARENA_PUSH(arena, places->weights, places->n_weights, places->capacity, *readers);
    return places->n_weights - 1;
}

LeafPlaces find_leaf_places(const Graph *graph, const int *segment, Arena *arena) {
    LeafPlaces places = {.before = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                         .tied = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                         .shared = ARENA_ARRAY(arena, int, graph->n_nodes + 1)};
    ParamIndex params = param_index_create(graph, arena);
    const WeightReaders *readers = find_readers(graph, segment, &params, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        places.shared[n] = -1;
        if (!is_loose_leaf(node)) continue;
        const WeightReaders *who = &readers[param_of(&params, node)->id];
        if (who->n_kinds && OPS[node->op].flags & PERSISTENT) {
            places.shared[n] = find_weight(&places, who, arena);
        }
        places.before[n] = who->before || who->n_kinds;
        places.tied[n] = who->before && who->after && !who->n_kinds;
    }
    return places;
}

SharedWeight *make_shared_weights(const LeafPlaces *places, const ModelCosts *costs, Arena *arena) {
    SharedWeight *weights = ARENA_ARRAY(arena, SharedWeight, places->n_weights + 1);
    for (int i = 0; i < places->n_weights; i++) {
        const WeightReaders *readers = &places->weights[i];
        bool *reads = ARENA_ARRAY(arena, bool, costs->n_kinds + 1);
        int *count = ARENA_ARRAY(arena, int, costs->n_blocks + 1);
        for (int k = 0; k < readers->n_kinds; k++) reads[readers->kinds[k]] = true;
        for (int b = 0; b < costs->n_blocks; b++) {
            count[b + 1] = count[b] + reads[costs->kind_of_block[b]];
        }
        weights[i] =
            (SharedWeight){.before = readers->before, .after = readers->after, .n_readers = count};
    }
    return weights;
}

int find_weight_chunks(const SharedWeight *weight, const int *split, Path path, int n_chunks,
                       int *out_chunk) {
    int n_total = path.p * n_chunks, n_stages = 0;
    for (int s = 0; s < path.p; s++) out_chunk[s] = -1;
    for (int g = 0, first = 0; g < n_total; first += split[g++]) {
        bool reads = weight->n_readers[first + split[g]] > weight->n_readers[first];
        reads |= (g == 0 && weight->before) || (g + 1 == n_total && weight->after);
        int stage = path_stage(path, g);
        if (!reads || out_chunk[stage] >= 0) continue;
        out_chunk[stage] = g;
        n_stages++;
    }
    return n_stages;
}
