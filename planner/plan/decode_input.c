#include "planner/plan/plan.h"

#include <string.h>

static const char *const NAMES[N_DECODE_INPUTS] = {
    [DECODE_TOKENS] = "tokens", [DECODE_PLACES] = "places",
    [DECODE_ROWS] = "rows",     [DECODE_LAST] = "last",
    [DECODE_STARTS] = "starts", [DECODE_DOCUMENT_PLACES] = "document_places",
    [DECODE_PIXELS] = "pixels", [DECODE_OCCURRENCES] = "occurrences",
};

const char *decode_input_name(DecodeInput input) {
    return NAMES[input];
}

int decode_input_find(const char *name) {
    for (int i = 0; i < N_DECODE_INPUTS; i++) {
        if (strcmp(NAMES[i], name) == 0) return i;
    }
    return -1;
}

const Node *decode_input_of(const Graph *graph, int chunk, DecodeInput input) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_INPUT && node->chunk == chunk &&
            strcmp(node_string(node, ATTR_name), NAMES[input]) == 0) {
            return node;
        }
    }
    return NULL;
}
