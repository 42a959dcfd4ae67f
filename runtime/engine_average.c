/* Averages of weights (planner/passes/append_averages.c) in the weights' place, between two steps.
 *
 * One parameter after the other is brought together whole, as is its average, and each is set where
 * the other was: so the copies that products read follow, whoever has which part of them. Both are
 * f32, so another exchange gives every bit back.
 */
#include "runtime/engine_internal.h"

#include <stdlib.h>
#include <string.h>

void engine_set_most_norm(Engine *engine, double norm) {
    if (!engine->skips_spikes) BUG("the plan leaves out no steps for their norm");
    engine->most_norm_squared = (float)(norm * norm);
}

bool engine_is_average(const Node *node) {
    return node->op == OP_STATE &&
           strncmp(node_string(node, ATTR_name), EMA_PREFIX, strlen(EMA_PREFIX)) == 0;
}

bool engine_prepare_averages(Engine *engine, Diag *diag) {
    int64_t most = 0;
    for (int p = 0; p < engine->plan->n_programs; p++) {
        const Graph *graph = engine->plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            int64_t elements = type_elements(&graph->nodes[n]->types[0]);
            if (engine_is_average(graph->nodes[n]) && elements > most) most = elements;
        }
    }
    for (int i = 0; i < 2 && most > 0; i++) {
        engine->swapped[i] = malloc((size_t)most * sizeof(float));
        if (engine->swapped[i]) continue;
        diag_error(diag, NO_LOC, "cannot allocate %.1f MiB for averages of weights",
                   (double)most * sizeof(float) / (1 << 20));
        return false;
    }
    return true;
}

/* Without a loss scale the first step is one. */
static bool has_begun(Engine *engine, const LogicalList *list) {
    if (!engine->scales_loss) return true;
    for (int i = 0; i < list->count; i++) {
        float count;
        if (strcmp(list->items[i].name, UPDATES_NAME) != 0) continue;
        engine_assemble(engine, list->items[i].stage, node_value((Node *)list->items[i].node, 0),
                        &count);
        return count > 0;
    }
    return true;
}

static const Logical *find_logical(const LogicalList *list, const char *name) {
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) return &list->items[i];
    }
    return NULL;
}

/* Of this process' ranks: what belongs to the parameter. */
static void set_both(Engine *engine, const char *name, const char *average_name,
                     const float *weights, const float *average, Arena *arena) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes && engine_is_local(rank); n++) {
            Node *node = graph->nodes[n];
            bool averaged = engine_is_average(node);
            if (!averaged && node->op != OP_PARAM) continue;
            if (strcmp(engine_leaf_name(rank, node, arena), averaged ? average_name : name) != 0) {
                continue;
            }
            const WholeTensor whole = {averaged ? average : weights, DTYPE_F32};
            engine_set_leaf(engine, rank, node, &whole, arena);
        }
    }
}

bool engine_swap_averages(Engine *engine, Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = engine_list_leaves(engine, true);
    bool good = true, begun = has_begun(engine, &list);
    for (int i = 0; i < list.count && good && begun; i++) {
        const Logical *average = &list.items[i];
        if (!engine_is_average(average->node)) continue;
        const char *name = average->name + strlen(EMA_PREFIX);
        const Logical *param = find_logical(&list, name);
        if (!param) BUG("'%s' is the average of no parameter", average->name);
        float *to = engine->swapped[0], *from = engine->swapped[1];
        engine_assemble(engine, average->stage, node_value((Node *)average->node, 0), to);
        engine_assemble(engine, param->stage, node_value((Node *)param->node, 0), from);
        good = !engine_job_failed(engine, diag);
        if (good) set_both(engine, name, average->name, to, from, arena);
    }
    arena_destroy(arena);
    return good && !engine_copy_failed(engine, diag);
}
