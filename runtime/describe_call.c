#include "runtime/describe_call.h"

#include "ir/message_group.h"

#include <stdio.h>

/* What people call the tensor that a message carries: the parameter, or what is summed for it; ""
 * for activations. */
static const char *tensor_name(const RankContext *rank, const Node *message, Arena *arena) {
    const Node *made = message->n_inputs ? message->inputs[0].node : NULL;
    const Node *named = made && node_attr(made, ATTR_name) ? made : NULL;
    if (!(OPS[message->op].flags & COLLECTIVE)) return "";
    for (int i = 0; made && !named && i < made->n_inputs; i++) {
        const Node *input = made->inputs[i].node;
        if (input->op == OP_ACCUMULATOR || input->op == OP_PARAM) named = input;
    }
    if (!named) return "";
    int first = named->block == NO_BLOCK ? 0 : rank->stage->first_block[named->chunk];
    return arena_printf(arena, " of %s", node_logical_name(named, first, arena));
}

void describe_call(const RankContext *rank, const Node *node, TaskKind task, int chunk, int micro,
                   char *out, size_t size) {
    const char *word = task_kind_word(task);
    if (!node) {
        snprintf(out, size, "%s%d.%d input", word, chunk, micro);
        return;
    }
    Arena *arena = arena_create();
    int n_more = message_group_end(rank->program->graph, node->id) - node->id - 1;
    const char *more = n_more > 0 ? arena_printf(arena, " and %d more", n_more) : "";
    snprintf(out, size, "%s%d.%d %s%s%s, %s:%d", word, node->chunk, micro, OPS[node->op].name,
             tensor_name(rank, node, arena), more, node->loc.file ? node->loc.file : "?",
             node->loc.line);
    arena_destroy(arena);
}
