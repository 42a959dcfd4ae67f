#include "planner/cost/shared_weights.h"

#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

/* Parameters of no block, by name. */
typedef struct ParamNames {
    int count;
    const Node **params;
} ParamNames;

static int by_name(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    return strcmp(node_string(a, ATTR_name), node_string(b, ATTR_name));
}

static ParamNames sort_params(const Graph *graph, Arena *arena) {
    ParamNames names = {.params = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1)};
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && node->block == NO_BLOCK) names.params[names.count++] = node;
    }
    qsort(names.params, (size_t)names.count, sizeof(*names.params), by_name);
    return names;
}

/* The parameter that a leaf of no block belongs to; the leaf itself, if it is or has none. */
static const Node *param_of(const ParamNames *names, const Node *leaf) {
    const char *of = node_string(leaf, ATTR_of);
    int low = 0, high = of[0] ? names->count : 0;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = strcmp(node_string(names->params[middle], ATTR_name), of);
        if (order == 0) return names->params[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return leaf;
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
static WeightReaders *find_readers(const Graph *graph, const int *segment, const ParamNames *names,
                                   Arena *arena) {
    WeightReaders *readers = ARENA_ARRAY(arena, WeightReaders, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        if (segment[n] >= 0 && node->phase != PHASE_FORWARD) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (!is_loose_leaf(from)) continue;
            const Node *param = node_is_copy(from) ? param_of(names, from) : from;
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
    ParamNames names = sort_params(graph, arena);
    const WeightReaders *readers = find_readers(graph, segment, &names, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        places.shared[n] = -1;
        if (!is_loose_leaf(node)) continue;
        const WeightReaders *who = &readers[param_of(&names, node)->id];
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

int find_weight_chunks(const SharedWeight *weight, const int *split, int p, int n_chunks,
                       int *out_chunk) {
    int n_total = p * n_chunks, n_stages = 0;
    for (int s = 0; s < p; s++) out_chunk[s] = -1;
    for (int g = 0, first = 0; g < n_total; first += split[g++]) {
        bool reads = weight->n_readers[first + split[g]] > weight->n_readers[first];
        reads |= (g == 0 && weight->before) || (g + 1 == n_total && weight->after);
        if (!reads || out_chunk[g % p] >= 0) continue;
        out_chunk[g % p] = g;
        n_stages++;
    }
    return n_stages;
}
