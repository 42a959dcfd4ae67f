/* recompute: values of a block are computed again in its backward instead of being kept for it.
 *
 *   full       of a block only what enters it is kept (Chen et al. 2016, by blocks)
 *   selective  results of products, attention and messages are kept; the rest is computed again
 *              where that makes frames smaller (Korthikanti et al. 2022, section 5; attention is
 *              blockwise here and keeps no scores, so what is left is what elementwise ops, norms
 *              and casts make)
 *
 * Works on the finished program of a stage: a copy is the very node of the forward, with its
 * shardings, its fused expression and its message, so it gives the same bits whatever rounds what;
 * dropout draws the same mask because its key knows neither phase nor time. Copies belong to
 * phase backward (or weights, for what that reads) of their block and chunk and stand before the
 * first node that reads them: one block's values at a time live in scratch. What no backward node
 * asks for is not computed again (the last product of a GPT block). What only the backward read of
 * a fused node's results goes.
 */
#include "planner/plan/recompute.h"

#include "ir/expr.h"
#include "planner/passes/pass.h"

#include <stdlib.h>
#include <string.h>

static const char *const MODES[N_RECOMPUTES] = {"none", "selective", "full"};

const char *recompute_mode_name(Recompute mode) {
    return mode < N_RECOMPUTES ? MODES[mode] : "?";
}

int recompute_mode_find(const char *name, int length) {
    for (int mode = 0; mode < N_RECOMPUTES; mode++) {
        if ((int)strlen(MODES[mode]) == length && memcmp(MODES[mode], name, (size_t)length) == 0) {
            return mode;
        }
    }
    return -1;
}

static bool is_behind(const Node *node) {
    return node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS;
}

typedef struct Recomputer {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    ValueMap map;
    bool *may;     /* by id: may be computed again */
    bool *keep;    /* by value: kept although its node may be computed again */
    bool *needed;  /* by value: read in the backward, or to compute again what is */
    Node **copies; /* by id: in `out` */
    int *wanted;   /* ids of one closure */
    int n_wanted;
    bool *is_wanted; /* by id */
} Recomputer;

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

/* A partial sum that enters a block and is completed there: its sum is what enters. */
static bool completes_entering(const Node *node) {
    return (node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER) &&
           node->inputs[0].node->block != node->block;
}

static bool may_compute_again(const Node *node, Recompute mode) {
    bool weight = node->op == OP_ALL_GATHER && OPS[node->inputs[0].node->op].flags & PERSISTENT;
    unsigned never = LEAF | EFFECT;
    if (mode == RECOMPUTE_SELECTIVE && !weight)
        never |= COLLECTIVE; /* a weight is not kept whole */
    if (node->phase != PHASE_FORWARD || node->block == NO_BLOCK) return false;
    if (OPS[node->op].flags & never || completes_entering(node)) return false;
    for (int o = 0; o < node->n_outputs; o++) {
        if (op_alias(node, o) >= 0) return false; /* would update twice */
    }
    return mode == RECOMPUTE_FULL || !op_multiplies(node->op);
}

/* What leaves its block is kept: it enters another one, or is read outside of blocks. A message to
 * another stage is past when the backward runs. */
static void find_borders(Recomputer *r) {
    for (int n = 0; n < r->in->n_nodes; n++) {
        const Node *node = r->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            int value = value_index(node->inputs[i]);
            r->needed[value] |= is_behind(node);
            if (node->op == OP_SEND && node->phase == PHASE_FORWARD) continue;
            r->keep[value] |= from->block != node->block || from->chunk != node->chunk ||
                              node->phase == PHASE_UPDATE;
        }
    }
}

static bool is_kept(const Recomputer *r, Value value) {
    return !r->may[value.node->id] || r->keep[value_index(value)];
}

static void want(Recomputer *r, const Node *node) {
    if (r->is_wanted[node->id] || r->copies[node->id]) return;
    r->is_wanted[node->id] = true;
    r->wanted[r->n_wanted++] = node->id;
}

/* The node and all that has to be computed again with it. */
static void want_closure(Recomputer *r, const Node *node) {
    r->n_wanted = 0;
    want(r, node);
    for (int at = 0; at < r->n_wanted; at++) {
        const Node *next = r->in->nodes[r->wanted[at]];
        for (int i = 0; i < next->n_inputs; i++) {
            if (!is_kept(r, next->inputs[i])) want(r, next->inputs[i].node);
        }
    }
    for (int i = 0; i < r->n_wanted; i++) r->is_wanted[r->wanted[i]] = false;
}

static int64_t frame_bytes(const Recomputer *r, Value value) {
    const unsigned elsewhere = PERSISTENT; /* its memory is there anyway */
    if (OPS[value.node->op].flags & elsewhere || value.node->op == OP_INPUT) return 0;
    if (node_is_once(value.node)) return 0;
    return type_local_bytes(value_type(value), value_sharding(value), &r->in->mesh);
}

/* Bytes that would be kept only to compute the last closure again; `claim` keeps them. */
static int64_t extra_bytes(Recomputer *r, bool claim) {
    int64_t bytes = 0;
    for (int at = 0; at < r->n_wanted; at++) {
        const Node *node = r->in->nodes[r->wanted[at]];
        for (int i = 0; i < node->n_inputs; i++) {
            Value input = node->inputs[i];
            if (!is_kept(r, input) || r->needed[value_index(input)]) continue;
            bytes += frame_bytes(r, input);
            if (claim) r->needed[value_index(input)] = true;
        }
    }
    return bytes;
}

/* Selective: a result stays kept where what it is made from would take as much. */
static void choose_kept(Recomputer *r) {
    for (int n = 0; n < r->in->n_nodes; n++) {
        Node *node = r->in->nodes[n];
        int64_t saved_bytes = 0;
        if (!r->may[n]) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            Value value = node_value(node, o);
            bool asked = r->needed[value_index(value)] && !r->keep[value_index(value)];
            if (asked) saved_bytes += frame_bytes(r, value);
        }
        if (saved_bytes == 0) continue;
        want_closure(r, node);
        if (extra_bytes(r, false) < saved_bytes) {
            extra_bytes(r, true);
            continue;
        }
        for (int o = 0; o < node->n_outputs; o++) r->keep[n * MAX_OUTPUTS + o] = true;
    }
}

static int by_number(const void *left, const void *right) {
    return *(const int *)left - *(const int *)right;
}

static Value here(const Recomputer *r, Value value) {
    Node *copy = is_kept(r, value) ? NULL : r->copies[value.node->id];
    return copy ? node_value(copy, value.output) : *value_map_at(&r->map, value);
}

static bool compute_again(Recomputer *r, const Node *node, Phase phase) {
    want_closure(r, node);
    qsort(r->wanted, (size_t)r->n_wanted, sizeof(int), by_number);
    for (int at = 0; at < r->n_wanted; at++) {
        const Node *next = r->in->nodes[r->wanted[at]];
        Value *inputs = ARENA_ARRAY(r->ctx->arena, Value, next->n_inputs + 1);
        for (int i = 0; i < next->n_inputs; i++) inputs[i] = here(r, next->inputs[i]);
        Node *copy = graph_copy_node(r->out, next, inputs, r->ctx->diag);
        if (!copy) return false;
        copy->phase = phase;
        r->copies[next->id] = copy;
    }
    return true;
}

static bool copy_backward(Recomputer *r, const Node *node) {
    Value *inputs = ARENA_ARRAY(r->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        if (!is_kept(r, input) && !compute_again(r, input.node, node->phase)) return false;
        inputs[i] = here(r, input);
    }
    Node *copy = graph_copy_node(r->out, node, inputs, r->ctx->diag);
    if (copy) value_map_set_node(&r->map, node, copy);
    return copy != NULL;
}

/* The program of a fused node without the results that nothing reads; false: all are read. */
static bool trim(const Node *node, const int *uses, Expr *expr, Value *inputs, int *results) {
    const char *error;
    int place[EXPR_MAX_INSTRUCTIONS] = {0}, operand[EXPR_MAX_INPUTS];
    bool live[EXPR_MAX_INSTRUCTIONS] = {false};
    Expr old;
    if (!expr_parse(node_string(node, ATTR_program), node->n_inputs, &old, &error)) return false;
    *expr = (Expr){0};
    for (int o = 0; o < old.n_outputs; o++) {
        if (!uses[node->id * MAX_OUTPUTS + o]) continue;
        live[old.outputs[o]] = true;
        results[expr->n_outputs++] = o;
    }
    if (expr->n_outputs == old.n_outputs || expr->n_outputs == 0) return false;
    memset(operand, -1, sizeof(operand));
    for (int t = old.n_instructions - 1; t >= 0; t--) {
        for (int k = 0; live[t] && k < OPS[old.instructions[t].op].min_inputs; k++) {
            int from = old.instructions[t].operands[k];
            if (from >= 0) live[from] = true;
        }
    }
    for (int t = 0; t < old.n_instructions; t++) {
        if (!live[t]) continue;
        ExprInstruction *next = &expr->instructions[expr->n_instructions];
        *next = old.instructions[t];
        place[t] = expr->n_instructions++;
        for (int k = 0; k < OPS[next->op].min_inputs; k++) {
            int from = next->operands[k];
            if (from < 0 && operand[~from] < 0) {
                inputs[expr->n_inputs] = node->inputs[~from];
                operand[~from] = expr->n_inputs++;
            }
            next->operands[k] = from >= 0 ? place[from] : ~operand[~from];
        }
    }
    for (int o = 0; o < expr->n_outputs; o++) expr->outputs[o] = place[old.outputs[results[o]]];
    return true;
}

/* Inference takes a fused node's shape from its operands: NULL where one too many would go. */
static Node *add_trimmed(const Node *node, const int *uses, ValueMap *map, Graph *out) {
    Expr expr;
    Value inputs[EXPR_MAX_INPUTS];
    int results[MAX_OUTPUTS], widest = 0;
    if (node->op != OP_FUSED || !trim(node, uses, &expr, inputs, results)) return NULL;
    for (int i = 1; i < expr.n_inputs; i++) {
        if (value_type(inputs[i])->rank > value_type(inputs[widest])->rank) widest = i;
    }
    if (!type_same_shape(value_type(inputs[widest]), &node->types[0])) return NULL;
    for (int i = 0; i < expr.n_inputs; i++) inputs[i] = *value_map_at(map, inputs[i]);
    Diag *quiet = diag_create();
    Node *copy = pass_add_fused(out, &expr, inputs, node, quiet);
    diag_destroy(quiet);
    for (int o = 0; copy && o < expr.n_outputs; o++) {
        copy->shardings[o] = node->shardings[results[o]];
        *value_map_at(map, node_value((Node *)node, results[o])) = node_value(copy, o);
    }
    return copy;
}

static Graph *drop_unread_results(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        if (add_trimmed(in->nodes[n], uses, &map, out)) continue;
        if (!value_map_copy(&map, in->nodes[n], out, ctx->diag)) return NULL;
    }
    return out;
}

Graph *pass_recompute(const Graph *in, PassContext *ctx) {
    Arena *arena = ctx->arena;
    Recompute mode = ctx->options.recompute;
    size_t n_values = (size_t)in->n_nodes * MAX_OUTPUTS + 1;
    if (mode == RECOMPUTE_NONE) return (Graph *)in;
    Recomputer r = {.ctx = ctx, .in = in, .out = graph_create_like(in, arena)};
    r.map = value_map_create(in, arena);
    r.may = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    r.keep = ARENA_ARRAY(arena, bool, n_values);
    r.needed = ARENA_ARRAY(arena, bool, n_values);
    r.copies = ARENA_ARRAY(arena, Node *, in->n_nodes + 1);
    r.wanted = ARENA_ARRAY(arena, int, in->n_nodes + 1);
    r.is_wanted = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) r.may[n] = may_compute_again(in->nodes[n], mode);
    find_borders(&r);
    if (mode == RECOMPUTE_SELECTIVE) choose_kept(&r);
    bool apart = false; /* weights(c) has copies of its own: the backward's would be kept for it */
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->phase == PHASE_WEIGHTS && !apart) {
            apart = true;
            memset(r.copies, 0, sizeof(*r.copies) * (size_t)in->n_nodes);
        }
        bool done = is_behind(node) ? copy_backward(&r, node)
                                    : value_map_copy(&r.map, node, r.out, ctx->diag) != NULL;
        if (!done) return NULL;
    }
    return drop_unread_results(r.out, ctx);
}
