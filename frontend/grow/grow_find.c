/* What becomes of each parameter. */
#include "frontend/grow/grow_blocks.h"
#include "frontend/grow/grow_scales.h"
#include "ir/op.h"
#include "runtime/checkpoint/tensor_values.h"

#include <inttypes.h>
#include <string.h>

static const char *type_text(Arena *arena, const Graph *graph, const Type *type) {
    const char *text = "";
    for (int i = 0; i < type->rank; i++) {
        text = arena_printf(arena, "%s%s%s=%" PRId64, text, i ? ", " : "",
                            graph->axes.names[type->axes[i]], type->dims[i]);
    }
    return arena_printf(arena, "[%s]", text);
}

static bool refuse_axis(const Growing *g, const GrowParam *p, int dim, const char *why) {
    const Type *into = &p->node->types[0], *from = &p->from->types[0];
    diag_error(g->diag, p->node->loc, "%s %s out of %s %s: '%s' %s", p->name,
               type_text(g->arena, g->large, into), p->from_name,
               type_text(g->arena, g->small, from), g->large->axes.names[into->axes[dim]], why);
    return false;
}

static bool find_dim(Growing *g, GrowParam *p, int dim, int from_dim, bool in_experts) {
    const Type *into = &p->node->types[0], *from = &p->from->types[0];
    const int axis = into->axes[dim], other = from->axes[from_dim];
    const int64_t large = into->dims[dim], small = from->dims[from_dim];
    GrowDim *out = &p->dims[dim];
    *out = (GrowDim){GROW_SAME, small};
    if (g->axis_from[axis] < 0) g->axis_from[axis] = other;
    if (g->axis_from[axis] != other) {
        return refuse_axis(
            g, p, dim,
            arena_printf(g->arena, "is where the small one has '%s'", g->small->axes.names[other]));
    }
    if (large == small) return true;
    if (axis == AXIS_VOCAB && large > small && dim == 0 && into->rank <= 2) {
        out->kind = GROW_TOKENS;
        growing_because(g, "tokens that are new have a share of the probabilities: logits of the "
                           "others are what they were");
    } else if (axis_is_sequence(g->large->axes.names[axis])) {
        return refuse_axis(g, p, dim,
                           "is of learned positions: import or train the small model with as many");
    } else if (axis != AXIS_VOCAB && large % small == 0) {
        const bool beside = g->is_experts[axis] || g->is_routes[axis];
        out->kind = beside ? GROW_EXPERTS : GROW_CLONE;
    } else if (in_experts && small % large == 0) {
        out->kind = GROW_SLICE;
        g->n_slices = small / large;
    } else if (axis == AXIS_VOCAB) {
        return refuse_axis(g, p, dim, "can only grow, and only as the first of two axes");
    } else {
        const char *parts = in_experts ? ", or a whole part of it" : "";
        return refuse_axis(g, p, dim,
                           arena_printf(g->arena,
                                        "can be %" PRId64 " or a multiple, as %" PRId64
                                        " or %" PRId64 "%s",
                                        small, 2 * small, 3 * small, parts));
    }
    return true;
}

static bool find_dims(Growing *g, GrowParam *p) {
    const Type *into = &p->node->types[0], *from = &p->from->types[0];
    const bool mixed = into->rank == from->rank + 1 && g->is_experts[into->axes[0]];
    if (into->rank != from->rank && !mixed) {
        diag_error(g->diag, p->node->loc, "%s %s cannot be made out of %s %s", p->name,
                   type_text(g->arena, g->large, into), p->from_name,
                   type_text(g->arena, g->small, from));
        return false;
    }
    if (mixed) p->dims[0] = (GrowDim){GROW_MIXTURE, 1};
    for (int i = mixed; i < into->rank; i++) {
        if (!find_dim(g, p, i, i - mixed, mixed)) return false;
    }
    return true;
}

static bool check_tensor(const Growing *g, const Safetensors *file, const Node *param,
                         const char *name) {
    const Type *type = &param->types[0];
    SourceLoc loc = {g->options->path, 0};
    SafetensorsInfo info;
    DType dtype;
    if (!safetensors_find(file, name, &info)) {
        diag_error(g->diag, loc, "has no tensor '%s', which its model has", name);
        return false;
    }
    bool same = info.n_dims == type->rank;
    for (int i = 0; same && i < type->rank; i++) same = info.shape[i] == type->dims[i];
    if (same && tensor_dtype(&info, &dtype)) return true;
    diag_error(g->diag, loc, "tensor '%s' is not %s in f32, bf16 or f16, as its model has it", name,
               type_text(g->arena, g->small, type));
    for (int i = 0; i < type->rank; i++) {
        if (!axis_is_sequence(g->small->axes.names[type->axes[i]])) continue;
        diag_note(g->diag, NO_LOC,
                  "learned positions do not grow: --set seq as in the small model");
    }
    return false;
}

/* All of the small model's parameters are in the file, and become some of the large one. */
static bool check_small(const Growing *g, const bool *is_used) {
    Safetensors *file = safetensors_open(g->options->path, g->diag);
    bool good = file != NULL;
    for (int i = 0; good && i < g->small->n_nodes; i++) {
        const Node *node = g->small->nodes[i];
        if (node->op != OP_PARAM) continue;
        const char *name = node_logical_name(node, 0, g->arena);
        good = check_tensor(g, file, node, name);
        g->grown->n_before += type_elements(&node->types[0]);
        if (good && !is_used[node->id]) {
            diag_error(g->diag, (SourceLoc){g->options->path, 0},
                       "'%s' %s has no place in the larger model: its settings have to keep what "
                       "the small one has",
                       name, type_text(g->arena, g->small, &node->types[0]));
            good = false;
        }
    }
    for (int i = 0; good && i < safetensors_count(file); i++) {
        g->grown->n_states += tensor_is_state(safetensors_at(file, i));
    }
    if (file) safetensors_close(file);
    return good;
}

/* What is in both but not read on the way to the outputs is copied as it is. */
static const Node *find_alike(const Growing *g, const Node *param) {
    const char *name = node_string(param, ATTR_name);
    const int block = param->block == NO_BLOCK ? NO_BLOCK : g->grown->block_of[param->block];
    for (int i = 0; i < g->small->n_nodes; i++) {
        const Node *node = g->small->nodes[i];
        if (node->op == OP_PARAM && node->block == block &&
            strcmp(node_string(node, ATTR_name), name) == 0) {
            return node;
        }
    }
    return NULL;
}

/* Experts with slices of one layer belong together: their routes are alike, and as equal ones are
 * chosen in the order of their numbers, all of them are, or none. */
static void find_alike_routes(Growing *g, GrowParam *p) {
    if (g->n_slices <= 1) return;
    for (int i = 0; i < p->node->types[0].rank; i++) {
        if (!g->is_routes[p->node->types[0].axes[i]]) continue;
        p->side_axis = i;
        p->n_alike = g->n_slices;
    }
}

/* What outputs that are paired are made of, by node. */
static bool *find_needed(const Growing *g) {
    bool *needed = ARENA_ARRAY(g->arena, bool, g->large->n_nodes + 1);
    for (int i = g->large->n_nodes - 1; i >= 0; i--) {
        needed[i] = g->large->nodes[i]->op == OP_OUTPUT && g->kinds[i] != PAIR_NONE;
    }
    for (int i = g->large->n_nodes - 1; i >= 0; i--) {
        const Node *node = g->large->nodes[i];
        for (int k = 0; needed[i] && k < node->n_inputs; k++) {
            needed[node->inputs[k].node->id] = true;
        }
    }
    return needed;
}

/* A bias that begins as zeros is no other's, too. */
static bool check_passed(const Growing *g) {
    for (int i = 0; i < g->large->n_nodes; i++) {
        const Node *node = g->large->nodes[i];
        if (g->kinds[i] != PAIR_PASS || node->n_inputs != 2) continue;
        const Value param = node->inputs[1 - g->operands[i]];
        if (!growing_pair(g, param).node) continue;
        diag_error(g->diag, node->loc, "%s is new here and something else's in the small model",
                   node_string(param.node, ATTR_name));
        return false;
    }
    return true;
}

static bool find_params(Growing *g, bool *is_used) {
    const bool *needed = find_needed(g);
    int n = 0;
    if (!check_passed(g)) return false;
    for (int i = 0; i < g->large->n_nodes; i++) n += g->large->nodes[i]->op == OP_PARAM;
    g->grown->params = ARENA_ARRAY(g->arena, GrowParam, n + 1);
    for (int i = 0; i < g->large->n_nodes; i++) {
        const Node *node = g->large->nodes[i];
        if (node->op != OP_PARAM) continue;
        GrowParam *p = &g->grown->params[g->grown->n_params++];
        const Value pair = growing_pair(g, (Value){(Node *)node, 0});
        *p = (GrowParam){.node = node, .scale = 1, .from = pair.node, .n_alike = 1};
        p->name = node_logical_name(node, 0, g->arena);
        g->grown->n_after += type_elements(&node->types[0]);
        if (!p->from && !needed[i]) p->from = find_alike(g, node);
        if (!p->from) continue;
        p->from_name = node_logical_name(p->from, 0, g->arena);
        is_used[p->from->id] = true;
        if (!find_dims(g, p)) return false;
        for (int d = 0; !pair.node && d < node->types[0].rank; d++) {
            if (p->dims[d].kind == GROW_SAME) continue;
            return refuse_axis(g, p, d,
                               "cannot grow: the outputs do not depend on this parameter, so "
                               "nothing says what is to become of it");
        }
    }
    for (int i = 0; i < n; i++) {
        if (!g->grown->params[i].from) find_alike_routes(g, &g->grown->params[i]);
    }
    return true;
}

/* --- who is chosen, and who finds room --- */

static void check_route(Growing *g, const Node *route) {
    const Type *slots = &route->types[1], *chosen = value_type(route->inputs[0]);
    const int64_t top = chosen->dims[chosen->rank - 1], seq = chosen->dims[chosen->rank - 2];
    const int64_t room = node_int(route, ATTR_slots, slots->dims[slots->rank - 1]);
    const Node *choice = route->inputs[0].node;
    const Value pair = growing_pair(g, route->inputs[0]),
                slot_pair = growing_pair(g, (Value){(Node *)route, 1});
    const bool is_alike =
        slot_pair.node && type_elements(value_type(slot_pair)) == type_elements(slots);
    if (room < seq && !is_alike)
        growing_because(g, "experts that may be full: with capacity=0 none is");

    if (!pair.node) {
        if (g->n_slices > 1 && top % g->n_slices != 0) {
            growing_because(g, arena_printf(g->arena,
                                            "slices of a layer that not all meet: %" PRId64
                                            " experts of a token are no multiple of %" PRId64
                                            " slices",
                                            top, g->n_slices));
        }
        return;
    }
    const int64_t small_top = value_type(pair)->dims[chosen->rank - 1];
    const Value scores = choice->inputs[0], small_scores = growing_pair(g, scores);
    if (choice->op != OP_TOP || !small_scores.node) return;
    const int64_t experts = value_type(scores)->dims[value_type(scores)->rank - 1];
    const int64_t few = value_type(small_scores)->dims[value_type(small_scores)->rank - 1];
    if (top * few == small_top * experts &&
        (experts == few || node_int(choice, ATTR_groups, 1) == 1))
        return;
    growing_because(g, "copies of experts that are not all chosen where the one was: top_k would "
                       "have to grow as experts do, without groups");
}

bool grow_find(Arena *arena, const GrowOptions *options, Grown *out, Diag *diag) {
    const Graph *large = options->into->graph;
    const int n = large->n_nodes;
    *out = (Grown){0};
    Growing g = {.arena = arena,
                 .options = options,
                 .large = large,
                 .small = options->from->graph,
                 .grown = out,
                 .diag = diag,
                 .pairs = ARENA_ARRAY(arena, Value, (size_t)n * MAX_OUTPUTS),
                 .kinds = ARENA_ARRAY(arena, PairKind, n + 1),
                 .operands = ARENA_ARRAY(arena, int, n + 1),
                 .passed = ARENA_ARRAY(arena, Passed, 64),
                 .passed_capacity = 64,
                 .n_slices = 1};
    bool *is_used = ARENA_ARRAY(arena, bool, g.small->n_nodes + 1);
    bool *zero = ARENA_ARRAY(arena, bool, n + 1);
    double *scales = ARENA_ARRAY(arena, double, n + 1);
    memset(g.pairs, 0, sizeof(Value) * (size_t)n * MAX_OUTPUTS);
    memset(g.kinds, 0, sizeof(PairKind) * (size_t)(n + 1));
    memset(g.operands, 0, sizeof(int) * (size_t)(n + 1));
    memset(is_used, 0, sizeof(bool) * (size_t)(g.small->n_nodes + 1));
    memset(zero, 0, sizeof(bool) * (size_t)(n + 1));
    if (!grow_blocks(&g) || !grow_pair_graphs(&g) || !find_params(&g, is_used) ||
        !check_small(&g, is_used) || !grow_find_scales(&g, scales) || !grow_identity(&g, zero)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (large->nodes[i]->op == OP_ROUTE) check_route(&g, large->nodes[i]);
    }
    if (options->noise > 0) growing_because(&g, "noise");
    for (int i = 0; i < out->n_params; i++) {
        out->params[i].scale = scales[out->params[i].node->id];
        out->params[i].zero = zero[out->params[i].node->id];
    }
    return true;
}
