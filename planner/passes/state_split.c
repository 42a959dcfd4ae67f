/* Layers with a state where c divides sequences: each rank has all positions of some heads, as in
 * DeepSpeed-Ulysses (arXiv 2309.14509) and Megatron-LM's Mamba, between two all-to-alls.
 *
 * c divides the groups whose members share queries and keys, each part that t leaves; where these
 * are too few, the heads of each group: queries and keys are gathered then, and their gradients are
 * sums over c, as they are over t where it divides such heads. Where it divides neither evenly,
 * ranks gather all positions of all heads, and each does all of the work.
 *
 * Linear attention and convolutions work by heads so; and what lies between them, or beside them,
 * does where that saves messages: what reads nothing else by positions, and what is read by nothing
 * else and is no less than what would have to be sent for it.
 */
#include "planner/passes/pass.h"

#include <string.h>

StateSplit sharding_rule_state_split(const Graph *whole, const Mesh *mesh) {
    int64_t groups, heads, t = mesh->size[MESH_T], c = mesh->size[MESH_C];
    if (c == 1 || !sharding_find_heads(whole, &HEAD_KINDS[STATE_KIND], &groups, &heads)) {
        return SPLIT_NOTHING;
    }
    bool shared = sharding_rule_shared_heads(whole, mesh) >> STATE_KIND & 1;
    if (groups % (c * (shared ? 1 : t)) == 0) return SPLIT_GROUPS;
    return heads % (c * (shared ? t : 1)) == 0 ? SPLIT_HEADS : SPLIT_NOTHING;
}

const char *sharding_split_axis(StateSplit split) {
    const HeadKind *kind = &HEAD_KINDS[STATE_KIND];
    return split == SPLIT_GROUPS ? kind->shared : split == SPLIT_HEADS ? kind->each : NULL;
}

typedef struct Finder {
    const Graph *graph;
    int groups, split, sequence; /* axes: of states, what c divides */
    bool *by_heads, *may;        /* by id: found, and could be */
    int *n_users, *n_left;       /* by id: that read positions for states; that are not found */
} Finder;

static int sequence_at(const Finder *f, const Type *type) {
    for (int i = 0; i < type->rank; i++) {
        if (axis_is_sequence(f->graph->axes.names[type->axes[i]])) return i;
    }
    return -1;
}

/* Numbers of positions for states' groups or heads: what an all-to-all can take. */
static bool is_of_states(const Finder *f, const Type *type) {
    return sequence_at(f, type) >= 0 && type_find_axis(type, f->groups) > sequence_at(f, type);
}

static bool needs_all_positions(OpKind op) {
    return op == OP_CONVOLVE || op == OP_CONVOLVE_GRAD || op == OP_LINEAR_ATTENTION ||
           op == OP_LINEAR_ATTENTION_GRAD;
}

/* Elements of what the node reads by positions, for states: made by heads, or not. */
static double count_read(const Finder *f, const Node *node, bool by_heads) {
    double count = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        bool made = f->by_heads[node->inputs[i].node->id];
        if (made == by_heads && is_of_states(f, type)) count += (double)type_elements(type);
    }
    return count;
}

static double count_made(const Finder *f, const Node *node) {
    double count = 0;
    for (int o = 0; o < node->n_outputs; o++) {
        if (is_of_states(f, &node->types[o])) count += (double)type_elements(&node->types[o]);
    }
    return count;
}

/* Could it work by heads? It adds up no positions' heads, and has no rows of the model's but
 * numbers of positions, as places in documents are. */
static bool may_be_by_heads(const Finder *f, const Node *node) {
    bool split = false, states = false;
    if (node->phase > PHASE_BACKWARD || !(OPS[node->op].flags & KERNEL)) return false;
    if (OPS[node->op].flags & (LEAF | COLLECTIVE) || op_needs_whole(node, f->split)) return false;
    if (node->op == OP_ACCUMULATE || node->op == OP_ADD_N) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        split |= type_find_axis(type, f->split) >= 0;
        states |= is_of_states(f, type);
        if (sequence_at(f, type) >= 0 && type->rank > 2 && !is_of_states(f, type)) return false;
    }
    for (int o = 0; o < node->n_outputs; o++) {
        const Type *type = &node->types[o];
        if (sequence_at(f, type) < 0) continue;
        if (!is_of_states(f, type)) return false;
        if (split && type_find_axis(type, f->split) < 0) return false;
        states = true;
    }
    return states;
}

/* Gradients of parameters are made where what they are sums of is. */
static bool follows(const Finder *f, const Node *user) {
    return user->op == OP_ACCUMULATE || (f->may[user->id] && count_made(f, user) == 0);
}

/* To all counts of users of what the node reads. */
static void add_users(const Finder *f, const Node *node, int *counts, int number) {
    if (follows(f, node)) return;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!is_of_states(f, value_type(node->inputs[i]))) continue;
        counts[node->inputs[i].node->id] += number;
    }
}

/* Marks what is by heads for what it reads (or `by_users`: is read by); false: nothing new. */
static bool find_more(Finder *f, bool by_users) {
    const Graph *graph = f->graph;
    bool found = false;
    for (int k = 0; k < graph->n_nodes; k++) {
        const Node *node = graph->nodes[by_users ? graph->n_nodes - 1 - k : k];
        if (f->by_heads[node->id] || !f->may[node->id]) continue;
        double made = count_made(f, node), there = count_read(f, node, true);
        double sent = count_read(f, node, false);
        bool all_users = f->n_left[node->id] == 0;
        bool is = !by_users  ? there > sent
                  : made > 0 ? all_users && (there > 0 || f->n_users[node->id]) && sent <= made
                             : there > 0 && sent <= there;
        if (!is) continue;
        f->by_heads[node->id] = found = true;
        add_users(f, node, f->n_left, -1);
    }
    return found;
}

bool *sharding_find_head_work(const Graph *graph, StateSplit by, Arena *arena) {
    Finder f = {.graph = graph, .by_heads = ARENA_ARRAY(arena, bool, graph->n_nodes + 1)};
    const char *split = sharding_split_axis(by);
    const char *groups = HEAD_KINDS[STATE_KIND].shared;
    if (!split) return f.by_heads;
    f.split = axis_find(&graph->axes, split, (int)strlen(split));
    f.groups = axis_find(&graph->axes, groups, (int)strlen(groups));
    f.may = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    f.n_users = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
    f.n_left = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool states = is_of_states(&f, &node->types[0]);
        f.may[n] = may_be_by_heads(&f, node);
        f.by_heads[n] = needs_all_positions(node->op) && states;
        add_users(&f, node, f.n_users, 1);
        if (!f.by_heads[n]) add_users(&f, node, f.n_left, 1);
    }
    for (bool more = true; more;) {
        more = find_more(&f, false);
        more |= find_more(&f, true);
    }
    return f.by_heads;
}
