#include "frontend/commands/train_pairs.h"

#include "ir/op.h"
#include "ir/ops/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_reference(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_INPUT) continue;
        if (strcmp(node_string(node, ATTR_name), INPUT_REFERENCE) == 0) return true;
    }
    return false;
}

TrainPairs train_pairs_of(const Plan *plan, Arena *arena) {
    TrainPairs pairs = {.how = {.seq = (size_t)plan->seq}};
    for (int p = 0; p < plan->n_programs; p++) {
        pairs.reads |= graph_has_pairs(plan->programs[p].graph);
        pairs.asks_reference |= has_reference(plan->programs[p].graph);
    }
    if (!pairs.reads) return pairs;
    pairs.tokens = ARENA_ARRAY(arena, int32_t, 2 * plan->seq);
    pairs.labels = ARENA_ARRAY(arena, int32_t, 2 * plan->seq);
    return pairs;
}

void train_pairs_print(const PreferenceTotals *totals) {
    int64_t n = totals->n_pairs;
    if (n == 0) return;
    printf("pairs   %" PRId64 ", prompts of %.1f tokens in the mean, answers of %.1f\n", n,
           (double)totals->n_prompt / (double)n, (double)totals->n_answer / (double)(2 * n));
    if (totals->n_prompts || totals->n_answers) {
        printf("        %" PRId64 " prompts lose their beginning, %" PRId64
               " pairs the end of an answer: they are longer than a row\n",
               totals->n_prompts, totals->n_answers);
    }
    if (totals->n_equal) {
        printf("        %" PRId64 " more are twice the same answer: left out\n", totals->n_equal);
    }
}
