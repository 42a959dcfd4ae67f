/* Running the chunks of a plan for decoding, and its caches. */
#include "runtime/engine_internal.h"

#include <string.h>

static const Node *find_logits(const RankContext *rank, int chunk) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_OUTPUT && node->chunk == chunk) return node;
    }
    BUG("a chunk without logits");
}

int64_t engine_decoded_numbers(const Engine *engine, int chunk) {
    return type_elements(value_type(find_logits(&engine->ranks[0], chunk)->inputs[0]));
}

bool engine_decode(Engine *engine, int chunk, const int32_t *const inputs[N_DECODE_INPUTS],
                   float *out_logits, Diag *diag) {
    const RankContext *rank = engine_own_rank(engine); /* its group has the same logits */
    if (!engine->plan->context) BUG("the plan is not for decoding");
    engine->input = (StepInput){.chunk = chunk, .label_share = 1};
    memcpy(engine->input.decode, inputs, sizeof(engine->input.decode));
    if (!engine->backend->run(engine, JOB_DECODE, diag)) return false;
    Value logits = find_logits(rank, chunk)->inputs[0];
    Shard shard =
        shard_of(value_type(logits), value_sharding(logits), &engine->plan->mesh, rank->coord);
    const void *from = executor_address(rank, logits, 0);
    shard_gather(&shard, engine->backend->view(engine, from, (size_t)type_bytes(&shard.local)),
                 out_logits);
    return true;
}

static bool is_cache(const Node *node) {
    return node->op == OP_STATE && !node_is_copy(node);
}

/* What is seen, whichever positions have it. */
static bool is_of_images(const Graph *graph, const Node *cache) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_CACHE_READ && node->inputs[0].node == cache) return true;
    }
    return false;
}

/* [sequences, context, ...]: each position has a place of its own, where it is appended. */
static bool keeps_positions(const Graph *graph, const Node *cache) {
    if (is_of_images(graph, cache)) return false;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_CACHE_APPEND && node->inputs[0].node == cache) return true;
    }
    return false;
}

bool engine_keeps_states(const Engine *engine) {
    const Graph *graph = engine->ranks[0].program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (is_cache(node) && !keeps_positions(graph, node) && !is_of_images(graph, node))
            return true;
    }
    return false;
}

int64_t engine_sequences(const Engine *engine) {
    const RankContext *rank = &engine->ranks[0];
    return value_type(find_logits(rank, DECODE_WRITE)->inputs[0])->dims[0];
}

/* A rank's part of the sequence. */
static void copy_sequence(Engine *engine, const RankContext *rank, int64_t from, int64_t to,
                          int64_t count) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!is_cache(node)) continue;
        const Type local = type_local(&node->types[0], &node->shardings[0], &engine->plan->mesh);
        const Type *type = &local;
        size_t all = (size_t)(type_elements(type) / type->dims[0] * dtype_bytes(type->dtype));
        unsigned char *cache = executor_address(rank, node_value((Node *)node, 0), 0);
        bool positions = keeps_positions(graph, node);
        engine->backend->copy(engine, cache + (size_t)to * all, cache + (size_t)from * all,
                              positions ? all / (size_t)type->dims[1] * (size_t)count : all);
    }
}

void engine_copy_sequence(Engine *engine, int64_t from, int64_t to, int64_t count) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        if (engine_is_local(rank)) copy_sequence(engine, rank, from, to, count);
    }
}
