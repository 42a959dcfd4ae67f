#include "planner/cost/offload_cost.h"

#include "planner/cost/device_time.h"
#include "planner/cost/layout_cost.h"
#include "planner/cost/node_cost.h"
#include "planner/passes/pass.h"

#include <math.h>

OffloadCost *offload_cost_create(int n_kinds, Arena *arena) {
    OffloadCost *offload = ARENA_NEW(arena, OffloadCost);
    offload->kinds = ARENA_ARRAY(arena, OffloadBlock, n_kinds + 1);
    offload->pair_scratch = ARENA_ARRAY(arena, int64_t, n_kinds + 1);
    offload->chain_scratch = ARENA_ARRAY(arena, int64_t, n_kinds + 1);
    return offload;
}

typedef struct OffloadPricer {
    const Cluster *cluster;
    const Program *program; /* scaled */
    NodePricer nodes;
    OffloadBlock *blocks; /* [of the chain] */
    double *done_us;      /* by id of a fetch: since its block's first */
    double *work_us;      /* by block: of its backward, up to now */
} OffloadPricer;

static const Buffer *buffer_of(const OffloadPricer *p, Value value) {
    return &p->program->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

/* Its block is that whose backward reads it. */
static void add_fetch(OffloadPricer *p, const Node *node) {
    OffloadBlock *block = &p->blocks[node->block];
    const Value from = node->inputs[0].node->inputs[0]; /* what went */
    int64_t bytes = buffer_of(p, node_value((Node *)node, 0))->bytes;
    double us = device_host_us(p->cluster, (double)bytes);
    *(from.node->block == node->block ? &block->own_us : &block->in_us) += us;
    p->done_us[node->id] = block->own_us + block->in_us;
    block->host_bytes += bytes;
    block->n_calls += 2; /* there, and back */
}

static void add_backward(OffloadPricer *p, const Node *node) {
    OffloadBlock *block = &p->blocks[node->block];
    double *work_us = &p->work_us[node->block];
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        if (from->op != OP_FETCH) continue;
        block->back_us = fmax(block->back_us, p->done_us[from->id] - *work_us);
    }
    PhaseCost cost = {0};
    node_cost_add(&cost, &p->nodes, node);
    *work_us += cost.product_us + cost.attention_us + cost.memory_us + cost.collective_us;
}

static int64_t scratch_end(const OffloadPricer *p, const Node *node) {
    int64_t most = 0;
    for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
        bool input = i < node->n_inputs;
        const Value value = input ? node->inputs[i] : node_value((Node *)node, i - node->n_inputs);
        const Buffer *buffer = buffer_of(p, value);
        int64_t end = buffer->offset_bytes + buffer->bytes;
        if (buffer->region == REGION_SCRATCH && end > most) most = end;
    }
    return most;
}

/* Of each kind a block that others surround, if there is one that is not the last. */
static void choose_blocks(const OffloadPricer *p, const ThinModel *chain, OffloadCost *out) {
    out->first = p->blocks[0];
    for (int b = chain->n_kept - 2; b >= 0; b--) {
        OffloadBlock *kind = &out->kinds[chain->kind_of_kept[b]];
        if (b > 0 || kind->n_calls == 0) *kind = p->blocks[b];
    }
}

void offload_cost_price(const ModelCosts *costs, const Plan *plan, const ThinModel *chain,
                        int n_more, int which, OffloadCost *out) {
    Arena *work = arena_create();
    Program program = {.graph = graph_scale_batch(plan->programs[0].graph, n_more, work)};
    const Graph *graph = program.graph;
    int64_t *scratch = which == OFFLOAD_PAIR ? out->pair_scratch : out->chain_scratch;
    plan_places(&program, 1, plan->cuda, 0, work);
    OffloadPricer p = {.cluster = costs->cluster,
                       .program = &program,
                       .nodes = node_pricer_create(costs->cluster, graph, work),
                       .blocks = ARENA_ARRAY(work, OffloadBlock, chain->n_kept + 1),
                       .done_us = ARENA_ARRAY(work, double, graph->n_nodes + 1),
                       .work_us = ARENA_ARRAY(work, double, chain->n_kept + 1)};
    for (int b = 0; b < chain->n_kept; b++) p.blocks[b].back_us = -INFINITY;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->block == NO_BLOCK) continue;
        int64_t end = scratch_end(&p, node), *most = &scratch[chain->kind_of_kept[node->block]];
        if (end > *most) *most = end;
        if (node->op == OP_FETCH) {
            add_fetch(&p, node);
        } else if (node->phase == PHASE_BACKWARD) {
            add_backward(&p, node);
        }
    }
    if (which == OFFLOAD_CHAIN) choose_blocks(&p, chain, out);
    arena_destroy(work);
}
