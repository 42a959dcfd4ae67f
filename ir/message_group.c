#include "ir/message_group.h"

#include "ir/op.h"

#include <string.h>

bool node_is_joined(const Node *node) {
    return node_int(node, ATTR_joined, 0) != 0;
}

int message_group_begin(const Graph *graph, int n) {
    while (n > 0 && node_is_joined(graph->nodes[n])) n--;
    return n;
}

int message_group_end(const Graph *graph, int n) {
    int end = n + 1;
    while (end < graph->n_nodes && node_is_joined(graph->nodes[end])) end++;
    return end;
}

const char *message_group_defect(const Graph *graph, const Node *node) {
    const Attr *joined = node_attr(node, ATTR_joined);
    if (!joined) return NULL;
    if (joined->i != 1) return "'joined' is 1 or not there";
    if (node->op == OP_ALL_REDUCE && node->phase != PHASE_UPDATE) {
        return "is joined to another message outside the update";
    }
    const Node *before = node->id > 0 ? graph->nodes[node->id - 1] : NULL;
    if (!before || before->op != node->op) {
        return "is joined to the node before it, which is no message of its kind";
    }
    if (strcmp(node_string(before, ATTR_mesh), node_string(node, ATTR_mesh)) != 0) {
        return "is joined to a message of another communicator";
    }
    bool once = node_is_once(before) && node_is_once(node); /* of all blocks of the task */
    bool same_task = before->chunk == node->chunk && (before->block == node->block || once);
    if (node_is_once(before) != node_is_once(node)) {
        return "is joined to a message of other micro-batches";
    }
    if (before->phase != node->phase || !(same_task || node->phase == PHASE_UPDATE)) {
        return "is joined to a message of another task or block";
    }
    int first = before->id;
    while (first > 0 && node->id - first < MESSAGE_GROUP_MOST &&
           node_is_joined(graph->nodes[first])) {
        first--;
    }
    if (node->id - first >= MESSAGE_GROUP_MOST) return "is one of too many messages of a group";
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].node->id >= first) return "reads what its own group of messages brings";
    }
    return NULL;
}
