/* Names: what a checkpoint and an initialisation see. A logical name means one tensor on a stage;
 * the same parameter on several stages is a tied weight, and stays one weight only if its gradient
 * is summed over exactly those stages, or it is frozen on all of them. */
#include "ir/gradient.h"
#include "ir/teacher.h"
#include "planner/verify/verify.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LEAVES = 4000000 };

/* A named leaf that lives across steps, on one stage. */
typedef struct Leaf {
    const Node *node;
    const char *name;   /* logical */
    const Node *reduce; /* of a parameter: the stage_reduce of its gradient, if any */
    int stage;
} Leaf;

typedef struct Names {
    Verifier *v;
    Leaf *leaves; /* by op, name, stage */
    int count, capacity;
} Names;

static int by_name(const void *left, const void *right) {
    const Leaf *a = left, *b = right;
    if (a->node->op != b->node->op) return a->node->op < b->node->op ? -1 : 1;
    int order = strcmp(a->name, b->name);
    if (order) return order;
    return a->stage < b->stage ? -1 : a->stage > b->stage;
}

static const Graph *graph_of(const Names *names, int stage) {
    return names->v->plan->programs[names->v->plan->stages[stage].program].graph;
}

/* '#' becomes the block's number in the model. */
static const char *logical(Names *names, int stage, const Node *node, const char *name) {
    int first_block = names->v->plan->stages[stage].first_block[node->chunk];
    return name_of_block(name, first_block + node->block, names->v->scratch);
}

/* A number for '#', in its own name or its parameter's. */
static bool check_block(Names *names, const Leaf *leaf) {
    const Node *node = leaf->node;
    const char *name = node_string(node, ATTR_name);
    int first_block = names->v->plan->stages[leaf->stage].first_block[node->chunk];
    if (node->block >= 0 && first_block + node->block < name_blocks_before(name)) {
        verify_defect(names->v, node->loc,
                      "%s: '%s' takes off more blocks than there are before its own",
                      verify_stage_text(names->v, leaf->stage), name);
        return false;
    }
    if (node->block >= 0 || !(strchr(name, '#') || strchr(node_string(node, ATTR_of), '#'))) {
        return true;
    }
    verify_defect(names->v, node->loc,
                  "%s: '%s' is called like a block's value, and is of no block",
                  verify_stage_text(names->v, leaf->stage), name);
    return false;
}

static bool collect(Names *names) {
    const Plan *plan = names->v->plan;
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = graph_of(names, s);
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (!(OPS[node->op].flags & PERSISTENT)) continue;
            if (names->count == MAX_LEAVES) {
                verify_defect(names->v, node->loc, "more than %d persistent values", MAX_LEAVES);
                return false;
            }
            Leaf leaf = {.node = node, .stage = s};
            if (!check_block(names, &leaf)) return false;
            leaf.name = logical(names, s, node, node_string(node, ATTR_name));
            ARENA_PUSH(names->v->scratch, names->leaves, names->count, names->capacity, leaf);
        }
    }
    if (names->count) {
        qsort(names->leaves, (size_t)names->count, sizeof(*names->leaves), by_name);
    }
    return true;
}

static Leaf *find_param(Names *names, const char *name, int stage) {
    Node like = {.op = OP_PARAM};
    Leaf key = {.node = &like, .name = name, .stage = stage};
    if (!names->count) return NULL;
    return bsearch(&key, names->leaves, (size_t)names->count, sizeof(key), by_name);
}

/* Of the parameter's shape and f32, its copy in 16 bits, or a state or gradient in bf16, or a
 * state in 8 bits;
 * verify_update.c says how they may lie, verify_program.c which gradients may be so. */
static bool looks_like(const Node *param, const Node *leaf) {
    const DType dtype = leaf->types[0].dtype;
    if (!type_same_shape(&param->types[0], &leaf->types[0])) return false;
    if ((leaf->op == OP_STATE || leaf->op == OP_ACCUMULATOR) && dtype == DTYPE_BF16) return true;
    if (leaf->op == OP_STATE && dtype_is_moment(dtype)) return true;
    return node_is_copy(leaf) || dtype == DTYPE_F32;
}

/* Accumulators and optimizer states belong to a parameter of their stage, and look like it. */
static void check_owner(Names *names, const Leaf *leaf) {
    const char *of = node_string(leaf->node, ATTR_of);
    if (!of[0]) return;
    const char *owner = logical(names, leaf->stage, leaf->node, of);
    const Leaf *param = find_param(names, owner, leaf->stage);
    const char *stage = verify_stage_text(names->v, leaf->stage);
    if (!param) {
        verify_defect(names->v, leaf->node->loc, "%s: '%s' belongs to '%s', which is not here",
                      stage, leaf->name, owner);
    } else if (!looks_like(param->node, leaf->node)) {
        verify_defect(names->v, leaf->node->loc, "%s: '%s' has another shape than its '%s'", stage,
                      leaf->name, owner);
    }
}

/* Notes at each parameter of the stage which collective sums its gradient over stages. */
static void find_reductions(Names *names, int stage) {
    const Graph *graph = graph_of(names, stage);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_STAGE_REDUCE) continue;
        const Node *from = gradient_accumulator(node->inputs[0]);
        if (!from || !node_string(from, ATTR_of)[0]) continue;
        const char *owner = logical(names, stage, from, node_string(from, ATTR_of));
        Leaf *param = find_param(names, owner, stage);
        if (param) param->reduce = node;
    }
}

static const StageComm *find_comm(const Plan *plan, const char *name) {
    for (int c = 0; c < plan->n_comms; c++) {
        if (strcmp(plan->comms[c].name, name) == 0) return &plan->comms[c];
    }
    return NULL;
}

static bool same_leaf(const Names *names, const Leaf *a, const Leaf *b) {
    const Type *x = &a->node->types[0], *y = &b->node->types[0];
    const Graph *graph_a = graph_of(names, a->stage), *graph_b = graph_of(names, b->stage);
    if (x->dtype != y->dtype || x->rank != y->rank) return false;
    if (node_is_frozen(a->node) != node_is_frozen(b->node)) return false;
    for (int i = 0; i < x->rank; i++) {
        const char *axis = graph_a->axes.names[x->axes[i]];
        if (x->dims[i] != y->dims[i] || strcmp(axis, graph_b->axes.names[y->axes[i]]) != 0) {
            return false;
        }
    }
    return sharding_equal(&a->node->shardings[0], &b->node->shardings[0], x->rank);
}

/* Does it begin and learn alike? Names apart, which are said by block. */
static bool same_rules(const Node *a, const Node *b) {
    bool same = a->n_attrs == b->n_attrs;
    for (int i = 0; same && i < a->n_attrs; i++) {
        const Attr *other = node_attr(b, a->attrs[i].key);
        same = a->attrs[i].key == ATTR_name || (other && attr_equal(&a->attrs[i], other));
    }
    return same;
}

/* leaves[first .. first + count): one parameter on `count` stages, ascending. */
static void check_tied(Names *names, int first, int count) {
    const Leaf *leaves = &names->leaves[first];
    Verifier *v = names->v;
    for (int i = 0; i < count; i++) {
        const char *stage = verify_stage_text(v, leaves[i].stage);
        if (!same_leaf(names, &leaves[0], &leaves[i])) {
            verify_defect(v, leaves[i].node->loc,
                          "%s: '%s' has another shape or sharding than on %s", stage,
                          leaves[i].name, verify_stage_text(v, leaves[0].stage));
            return;
        }
        if (!same_rules(leaves[0].node, leaves[i].node)) {
            verify_defect(v, leaves[i].node->loc,
                          "%s: '%s' begins or learns in another way than on %s", stage,
                          leaves[i].name, verify_stage_text(v, leaves[0].stage));
            return;
        }
        if (node_is_frozen(leaves[i].node)) continue;
        if (!leaves[i].reduce) {
            verify_defect(v, leaves[i].node->loc,
                          "%s: '%s' is on %d stages, but its gradient is not summed over them",
                          stage, leaves[i].name, count);
            return;
        }
        const StageComm *comm = find_comm(v->plan, node_string(leaves[i].reduce, ATTR_comm));
        bool same = comm && comm->n_stages == count;
        for (int k = 0; same && k < count; k++) same = comm->stages[k] == leaves[k].stage;
        if (same) continue;
        verify_defect(v, leaves[i].reduce->loc,
                      "%s: the gradient of '%s' is summed over '%s', whose stages are not those %d "
                      "that hold the weight",
                      stage, leaves[i].name, node_string(leaves[i].reduce, ATTR_comm), count);
        return;
    }
}

void verify_names(Verifier *v) {
    Names names = {.v = v};
    if (!collect(&names)) return;
    for (int s = 0; s < v->plan->n_stages; s++) find_reductions(&names, s);
    for (int i = 0, count; i < names.count; i += count) {
        const Leaf *leaf = &names.leaves[i];
        for (count = 1; i + count < names.count; count++) {
            const Leaf *next = &names.leaves[i + count];
            if (next->node->op != leaf->node->op || strcmp(next->name, leaf->name) != 0) break;
            if (next->stage != next[-1].stage) continue;
            verify_defect(v, next->node->loc, "%s: two values are called '%s'",
                          verify_stage_text(v, next->stage), next->name);
            return;
        }
        if (leaf->node->op == OP_PARAM && count > 1) check_tied(&names, i, count);
        for (int k = 0; k < count; k++) check_owner(&names, &leaf[k]);
    }
}
