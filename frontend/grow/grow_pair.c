#include "frontend/grow/grow_pair.h"

#include "ir/op.h"

#include <inttypes.h>
#include <string.h>

typedef struct Work {
    Value large, small;
} Work;

typedef struct Pairing {
    Growing *g;
    Work *work;
    int n_work, capacity;
} Pairing;

void growing_because(Growing *g, const char *reason) {
    for (int i = 0; i < g->grown->n_reasons; i++) {
        if (strcmp(g->grown->reasons[i], reason) == 0) return;
    }
    if (g->grown->n_reasons == GROW_MOST_REASONS) return;
    g->grown->reasons[g->grown->n_reasons++] = reason;
}

static const char *axis_of(const Graph *graph, int axis) {
    return graph->axes.names[axis];
}

/* The small graph's value of block `block` that other blocks read and that is like `value`. */
static Value find_passed(const Growing *g, int block, Value value) {
    const Type *like = value_type(value);
    for (int i = 0; i < g->small->n_nodes; i++) {
        const Node *reader = g->small->nodes[i];
        for (int k = 0; k < reader->n_inputs; k++) {
            const Value passed = reader->inputs[k];
            const Type *type = value_type(passed);
            if (passed.node->block != block || reader->block == block) continue;
            bool same = type->rank == like->rank && type->dtype == like->dtype;
            for (int d = 0; same && d < type->rank; d++) {
                same =
                    strcmp(axis_of(g->small, type->axes[d]), axis_of(g->large, like->axes[d])) == 0;
            }
            if (same) return passed;
        }
    }
    return NO_VALUE;
}

static bool refuse(const Growing *g, const Node *large, const Node *small) {
    diag_error(g->diag, large->loc,
               "%s here, where the small model has %s: it cannot become a part of this model",
               OPS[large->op].name, OPS[small->op].name);
    if (small->loc.file) diag_note(g->diag, small->loc, "%s made here", OPS[small->op].name);
    return false;
}

/* `large`, which `reader` reads, is to be paired with `small`, which the small graph reads there.
 * Another block of the large graph is of the small block that it is made of. */
static bool push(Pairing *p, const Node *reader, Value large, Value small) {
    const int block = large.node->block;
    if (block != reader->block && block != NO_BLOCK) {
        const int from = p->g->grown->block_of[block];
        const bool is_added = reader->block != NO_BLOCK && p->g->grown->block_added[reader->block];
        const Passed passed = {large, small, reader};
        if (!is_added) {
            ARENA_PUSH(p->g->arena, p->g->passed, p->g->n_passed, p->g->passed_capacity, passed);
        }
        if (small.node->block != from) small = find_passed(p->g, from, large);
        if (!small.node) return refuse(p->g, large.node, reader);
    }
    const Work work = {large, small};
    ARENA_PUSH(p->g->arena, p->work, p->n_work, p->capacity, work);
    return true;
}

/* What differs with sizes, or is no part of what is computed. */
bool grow_may_differ(const Node *node, AttrKey key) {
    switch (ATTRS[key].kind) {
    case ATTR_AXIS:
    case ATTR_AXES: return true; /* by name, or another's: sizes say it */
    default: break;
    }
    switch ((int)node->op) {
    case OP_PARAM: return true;
    case OP_SCALE:
    case OP_CONST: return key == ATTR_value;
    case OP_DROPOUT: return key == ATTR_p || key == ATTR_key;
    case OP_ATTENTION: return key == ATTR_p || key == ATTR_key || key == ATTR_scale;
    case OP_TOP: return key == ATTR_count;
    case OP_ROUTE: return key == ATTR_experts || key == ATTR_slots;
    default: return false;
    }
}

static bool same_attrs(const Node *a, const Node *b) {
    for (int i = 0; i < a->n_attrs; i++) {
        const Attr *attr = &a->attrs[i], *other = node_attr(b, attr->key);
        if (grow_may_differ(a, attr->key)) continue;
        if (!other || !attr_equal(attr, other)) return false;
    }
    return true;
}

/* A sum with zeros, a product with ones: which operand stays; -1: it is none. */
static int passed_operand(const Node *node, const Node *small) {
    const char *init = node->op == OP_ADD ? "zeros" : node->op == OP_MUL ? "ones" : NULL;
    if (!init || node->op == small->op) return -1;
    for (int k = 0; k < 2; k++) {
        const Node *param = node->inputs[k].node;
        if (param->op == OP_PARAM && strcmp(node_string(param, ATTR_init), init) == 0) {
            return 1 - k;
        }
    }
    return -1;
}

static bool reads_combine(const Node *node) {
    return node->op == OP_ADD &&
           (node->inputs[0].node->op == OP_COMBINE || node->inputs[1].node->op == OP_COMBINE);
}

static bool pair_mixture(Pairing *p, const Node *large, Value small) {
    Growing *g = p->g;
    g->kinds[large->id] = PAIR_MIX;
    return push(p, large, large->inputs[0], small);
}

static bool pair_operands(Pairing *p, const Node *large, const Node *small) {
    Growing *g = p->g;
    if (large->op != small->op || large->n_inputs != small->n_inputs || !same_attrs(large, small) ||
        !same_attrs(small, large)) {
        if (large->op != small->op || large->op == OP_PARAM) return refuse(g, large, small);
        diag_error(g->diag, large->loc,
                   "this %s does something else than the small model's: a setting that is not of "
                   "sizes differs",
                   OPS[large->op].name);
        if (small->loc.file) diag_note(g->diag, small->loc, "the small model's is made here");
        return false;
    }
    g->kinds[large->id] = PAIR_SAME;
    for (int k = 0; k < large->n_inputs; k++) {
        if (!push(p, large, large->inputs[k], small->inputs[k])) return false;
    }
    return true;
}

static bool pair_one(Pairing *p, Work work) {
    Growing *g = p->g;
    const Node *large = work.large.node, *small = work.small.node;
    Value *pair = &g->pairs[large->id * MAX_OUTPUTS + work.large.output];
    if (pair->node) {
        if (value_equal(*pair, work.small)) return true;
        diag_error(g->diag, large->loc,
                   "%s %s would have to be two things of the small model at once: both share a "
                   "weight, or neither does (as by the setting 'tied')",
                   OPS[large->op].name,
                   large->op == OP_PARAM ? node_string(large, ATTR_name) : "here");
        return false;
    }
    *pair = work.small;
    const bool again = g->kinds[large->id] != PAIR_NONE;
    if (again) return true; /* another result of the node */
    if (large->op == OP_COMBINE && small->op != OP_COMBINE) {
        return pair_mixture(p, large, work.small);
    }
    if (large->op == OP_DISPATCH && small->op != OP_DISPATCH) {
        g->kinds[large->id] = PAIR_PASS;
        return push(p, large, large->inputs[0], work.small);
    }
    if (reads_combine(large) && small->op != OP_ADD) {
        g->kinds[large->id] = PAIR_SHARE;
        return push(p, large, large->inputs[0], work.small) &&
               push(p, large, large->inputs[1], work.small);
    }
    const int stays = passed_operand(large, small);
    if (stays >= 0) {
        g->kinds[large->id] = PAIR_PASS;
        g->operands[large->id] = stays;
        return push(p, large, large->inputs[stays], work.small);
    }
    if (work.large.output != work.small.output) return refuse(g, large, small);
    return pair_operands(p, large, small);
}

static const Node *find_output(const Graph *graph, const char *name) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = graph->nodes[i];
        if (node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), name) == 0) return node;
    }
    return NULL;
}

static void find_experts(Growing *g) {
    for (int i = 0; i < g->large->n_nodes; i++) {
        const Node *node = g->large->nodes[i];
        if (node->op != OP_ROUTE) continue;
        const Attr *to = node_attr(node, ATTR_to);
        g->is_experts[to->axes.items[0]] = true;
        g->is_routes[to->axes.items[2]] = true;
    }
}

bool grow_pair_graphs(Growing *g) {
    Pairing p = {.g = g, .work = ARENA_ARRAY(g->arena, Work, 64), .capacity = 64};
    int n_outputs = 0;
    find_experts(g);
    for (int a = 0; a < g->large->axes.count; a++) {
        const char *name = g->large->axes.names[a];
        g->axis_from[a] = axis_find(&g->small->axes, name, (int)strlen(name));
    }
    for (int i = 0; i < g->large->n_nodes; i++) {
        const Node *output = g->large->nodes[i], *small = NULL;
        if (output->op != OP_OUTPUT || value_type(output->inputs[0])->rank == 0) continue;
        small = find_output(g->small, node_string(output, ATTR_name));
        if (!small) continue;
        n_outputs++;
        g->kinds[output->id] = PAIR_SAME;
        if (!push(&p, output, output->inputs[0], small->inputs[0])) return false;
    }
    if (n_outputs == 0) {
        diag_error(g->diag, NO_LOC, "grow: the models have no output in common, as logits");
        return false;
    }
    while (p.n_work > 0) {
        const Work work = p.work[--p.n_work];
        if (!pair_one(&p, work)) return false;
    }
    return true;
}
