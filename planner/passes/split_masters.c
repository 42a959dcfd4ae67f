/* split_masters: with --masters split, a parameter's copy in bf16 is the upper half of the
 * parameter's own memory (ir/masters.h), which saves its 2 bytes an element; no bit of a step
 * changes.
 *
 * For parameters that only their optimizer reads, which also writes the copy, and that are divided
 * as the copy is: without ZeRO, or with stage 3. With stages 1 and 2 a rank has shards of masters
 * and whole copies. LAMB reads parameters twice. After insert_collectives, as messages read, too.
 *
 * Optimizers of other parameters come last then: a GPU updates neighbours of one kind at once.
 */
#include "ir/masters.h"
#include "planner/passes/pass.h"

/* Reads the parameter, and writes it and its copy at once. */
static const Node *copy_written_with(const Node *update, int operand) {
    bool whole = update->op == OP_ADAMW || update->op == OP_SGD || update->op == OP_LION ||
                 update->op == OP_MUON;
    const Node *last = update->inputs[update->n_inputs - 1].node;
    return whole && operand == 0 && node_is_copy(last) ? last : NULL;
}

static bool may_split(const Graph *graph, const Node *param, const Node *copy) {
    Type local = type_local(&param->types[0], &param->shardings[0], &graph->mesh);
    return param->op == OP_PARAM && param->types[0].dtype == DTYPE_F32 &&
           copy->types[0].dtype == DTYPE_BF16 && type_elements(&local) % MASTER_MULTIPLE == 0 &&
           sharding_equal(&param->shardings[0], &copy->shardings[0], param->types[0].rank);
}

/* By id of a parameter: the copy that would be its upper half; NULL: it has none, or others read
 * it. */
static const Node **find_uppers(const Graph *in, Arena *arena) {
    const Node **uppers = ARENA_ARRAY(arena, const Node *, in->n_nodes + 1);
    bool *others = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *param = node->inputs[i].node, *copy = copy_written_with(node, i);
            if (copy && may_split(in, param, copy)) {
                uppers[param->id] = copy;
            } else if (op_operand_precision(node->op, i) != OPERAND_UNREAD) {
                others[param->id] = true;
            }
        }
    }
    for (int n = 0; n < in->n_nodes; n++) {
        if (others[n]) uppers[n] = NULL;
    }
    return uppers;
}

static bool comes_last(const Node *node, const int *uses, const bool *is_upper) {
    const Node *last = node->n_inputs ? node->inputs[node->n_inputs - 1].node : NULL;
    if (!op_is_optimizer(node->op) || is_upper[last->id]) return false;
    for (int o = 0; o < node->n_outputs; o++) {
        if (uses[node->id * MAX_OUTPUTS + o]) return false;
    }
    return true;
}

Graph *pass_split_masters(const Graph *in, PassContext *ctx) {
    if (!ctx->options.split_masters) return (Graph *)in;
    const Node **uppers = find_uppers(in, ctx->arena);
    bool *is_upper = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    bool any = false;
    for (int n = 0; n < in->n_nodes; n++) {
        any |= uppers[n] != NULL;
        if (uppers[n]) is_upper[uppers[n]->id] = true;
    }
    if (!any) return (Graph *)in;
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    const int *uses = graph_count_uses(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        Node node = *in->nodes[n];
        if (comes_last(&node, uses, is_upper)) continue;
        if (is_upper[n]) {
            Attr *attrs = ARENA_ARRAY(ctx->arena, Attr, node.n_attrs + 1);
            for (int i = 0; i < node.n_attrs; i++) attrs[i] = node.attrs[i];
            attrs[node.n_attrs++] = attr_int(ATTR_upper, 1);
            node.attrs = attrs;
        }
        if (!value_map_copy(&map, &node, out, ctx->diag)) return NULL;
    }
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (!comes_last(node, uses, is_upper)) continue;
        if (!value_map_copy(&map, node, out, ctx->diag)) return NULL;
    }
    return out;
}
