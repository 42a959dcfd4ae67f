/* split_backward: cuts a stage's backward in two where the schedule asks for it (Qi et al. 2024).
 *
 *   backward   what the stage before waits for: the gradient that is sent, and all it is made of
 *   weights    the rest: products for gradients of weights, sums for those of biases, their
 *              accumulations, and the messages that only they need
 *
 * What is handed to another chunk of the stage counts as sent. A chunk that sends nothing has for
 * its end what is read outside of its blocks: the embedding's gradient. Where there is neither (a
 * model without blocks), all stays in the backward.
 *
 * A share of a gradient that comes out of a node of the backward (a norm's gain) is added up there:
 * it would have to be kept otherwise. So are products with logits' gradients where these are in
 * parts (part_loss). What both parts need is kept between them; constants are made
 * again, and values gathered over t are gathered again, as 1/t of them is kept that way. Micro-
 * batches come to each accumulator in the order of the schedule's W's: the order of their numbers,
 * as in the schedules that cut nothing.
 */
#include "ir/reported.h"
#include "planner/passes/pass.h"
#include "planner/plan/schedule.h"

#include <string.h>

typedef struct Splitter {
    const Graph *in;
    bool *needed;       /* by id, backward nodes: stays in the backward */
    bool *weights;      /* by id: moves */
    bool *sent;         /* by id: is a send, or handed to another chunk */
    bool *sends, *ends; /* by chunk: has something sent; or what stands for it */
} Splitter;

static bool is_work(const Node *node) {
    return node->phase == PHASE_BACKWARD && !(OPS[node->op].flags & LEAF);
}

/* Adds to a gradient's sum: reads an accumulator, or what was added to it before. */
static bool accumulates(const Node *node) {
    for (int o = 0; o < node->n_outputs; o++) {
        if (op_alias(node, o) >= 0) return true;
    }
    return false;
}

/* Of no block, after blocks: reads what the blocks' backward gives. */
static void find_roots(Splitter *s, Arena *arena) {
    bool *reported = ARENA_ARRAY(arena, bool, s->in->n_nodes + 1);
    bool *follows = ARENA_ARRAY(arena, bool, s->in->n_nodes + 1);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (!is_work(node)) continue;
        follows[n] = node->block != NO_BLOCK;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            follows[n] |= is_work(from) && follows[from->id];
            if (is_work(from) && from->chunk != node->chunk && !accumulates(from)) {
                s->sent[from->id] = s->sends[from->chunk] = true;
            }
        }
        if (node->op == OP_SEND) s->sent[n] = s->sends[node->chunk] = true;
    }
    graph_find_reported(s->in, reported);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (!is_work(node)) continue;
        bool sends = s->sends[node->chunk];
        s->needed[n] = reported[n] || sends ? s->sent[n] : node->block == NO_BLOCK && follows[n];
        s->ends[node->chunk] |= s->needed[n];
    }
}

static void find_needed(Splitter *s) {
    for (int n = s->in->n_nodes - 1; n >= 0; n--) {
        const Node *node = s->in->nodes[n];
        for (int i = 0; s->needed[n] && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (is_work(from)) s->needed[from->id] = true;
        }
    }
}

/* Logits of part_loss, or their gradient. */
static bool has_words(const Graph *graph, Value value) {
    const Type *type = value_type(value);
    int rows = axis_find(&graph->axes, LOSS_ROWS, (int)strlen(LOSS_ROWS));
    return rows >= 0 && type_find_axis(type, AXIS_VOCAB) >= 0 && type_find_axis(type, rows) >= 0;
}

static void find_weights(Splitter *s) {
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (!is_work(node)) continue;
        bool follows = false, logits = false, made = accumulates(node);
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            follows |= s->weights[from->id];
            if (node->op == OP_ACCUMULATE && i == 1) made &= is_work(from) && s->needed[from->id];
            logits |= has_words(s->in, node->inputs[i]);
        }
        bool shares_here = logits || (node->op == OP_ACCUMULATE && made && !follows);
        s->weights[n] = follows || (s->ends[node->chunk] && !s->needed[n] && !shares_here);
    }
}

/* Made again rather than kept: a number, or what is gathered over t. */
static bool is_made_again(const Node *node) {
    if (op_is_number(node->op)) return true;
    const char *mesh = node_string(node, ATTR_mesh);
    return node->op == OP_ALL_GATHER && strcmp(mesh, mesh_axis_name(MESH_T)) == 0 &&
           node->n_inputs == 1;
}

typedef struct Rebuild {
    const Splitter *s;
    Graph *out;
    ValueMap map;
    Value *again; /* by value of the old graph: of the second part */
    Diag *diag;
} Rebuild;

static Value weights_input(Rebuild *r, Value value);

static Node *copy_to_weights(Rebuild *r, const Node *node) {
    Value *inputs = ARENA_ARRAY(r->out->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = weights_input(r, node->inputs[i]);
        if (!inputs[i].node) return NULL;
    }
    Node *copy = graph_copy_node(r->out, node, inputs, r->diag);
    if (copy) copy->phase = PHASE_WEIGHTS;
    return copy;
}

static Value weights_input(Rebuild *r, Value value) {
    const Node *node = value.node;
    if (!is_work(node) || r->s->weights[node->id] || !is_made_again(node)) {
        return *value_map_at(&r->map, value);
    }
    Value *again = &r->again[node->id * MAX_OUTPUTS + value.output];
    if (!again->node) {
        Node *copy = copy_to_weights(r, node);
        if (!copy) return NO_VALUE;
        *again = node_value(copy, value.output);
    }
    return *again;
}

/* The last chunk's first, as their backwards run: sums that chunks share keep their order. */
static bool copy_weights(Rebuild *r) {
    const Graph *in = r->s->in;
    for (int n = 0; n < in->n_nodes; n++) {
        if (!r->s->weights[n]) continue;
        Node *copy = copy_to_weights(r, in->nodes[n]);
        if (!copy) return false;
        value_map_set_node(&r->map, in->nodes[n], copy);
    }
    return true;
}

Graph *pass_split_backward(const Graph *in, PassContext *ctx) {
    if (!schedule_splits(schedule_find(ctx->options.schedule))) return (Graph *)in;
    Splitter s = {.in = in,
                  .needed = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1),
                  .weights = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1),
                  .sent = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1)};
    Rebuild r = {.s = &s,
                 .out = graph_create_like(in, ctx->arena),
                 .map = value_map_create(in, ctx->arena),
                 .again = ARENA_ARRAY(ctx->arena, Value, (in->n_nodes + 1) * MAX_OUTPUTS),
                 .diag = ctx->diag};
    int n_chunks = 1;
    for (int n = 0; n < in->n_nodes; n++) {
        if (in->nodes[n]->phase == PHASE_WEIGHTS) return (Graph *)in; /* was here before */
        if (in->nodes[n]->chunk >= n_chunks) n_chunks = in->nodes[n]->chunk + 1;
    }
    s.sends = ARENA_ARRAY(ctx->arena, bool, n_chunks);
    s.ends = ARENA_ARRAY(ctx->arena, bool, n_chunks);
    find_roots(&s, ctx->arena);
    find_needed(&s);
    find_weights(&s);
    bool copied = false;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->phase == PHASE_UPDATE && !copied) {
            if (!copy_weights(&r)) return NULL;
            copied = true;
        }
        if (!s.weights[n] && !value_map_copy(&r.map, node, r.out, ctx->diag)) return NULL;
    }
    if (!copied && !copy_weights(&r)) return NULL;
    return r.out;
}
