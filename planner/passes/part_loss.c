/* part_loss: with --loss-parts, logits and their gradients for so many parts of the positions, one
 * after the other, so that those of all positions are never there together.
 *
 *   backward   for each part: x's rows -> logits -> what becomes of each row (its log-sum-exp, the
 *              logit of its label) -> the logits' gradient -> x's rows, added to the gradients of
 *              weights; and rows of all parts together; the loss
 *
 * Instead of [batch, seq, vocab], from the forward to the backward, a part's share is there, within
 * one task (Liger Kernel has both in the forward: arXiv 2410.10989, section 3.2). Forward-only work
 * does what the loss is made of behind the forward (ir/reported.h). Where the gradient of logits
 * reads what was made of all parts (a preference's does), there are two visits:
 *
 *   forward    for each part: logits -> what becomes of each row; and these together
 *   backward   for each part: logits again -> their gradient -> x's rows, gradients of weights
 *
 * in which the first of the head's three products is done twice.
 *
 * A value is wide if it has words for every position. A node that reads or makes one is done by
 * parts, and what it reads for each position is cut; what it gives for each position is put
 * together, and what it sums over positions is added up. Nodes that read what those give follow
 * them. The output "logits" goes: nothing has all of them.
 */
#include "planner/passes/pass.h"

#include <string.h>

enum { MOST_JOINED = 8 };

/* BEHIND: reads, by way of others, what WIDE gives. */
typedef enum Place { BESIDE, WIDE, BEHIND } Place;

typedef struct Part {
    Value *here; /* by value of `in`: this part's */
} Part;

typedef struct Parter {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    int n_parts, rows, part_rows; /* the axes of positions, and of a part's */
    int64_t n_rows;
    bool late;        /* all in one visit, in the backward */
    bool by_rows;     /* what is made of parts' rows, element by element, is done by parts, too */
    Place *place;     /* by id, within the node's visit */
    bool *read_whole; /* by value: what parts give for each position is read by others */
    ValueMap whole;
    Part *parts;   /* [n_parts] */
    Value *so_far; /* by value of `in`: of an accumulator, with what was added to it last */
} Parter;

static int index_of(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

static bool has_rows(const Parter *p, Value value) {
    return type_find_axis(value_type(value), p->rows) >= 0;
}

static bool is_wide(const Parter *p, Value value) {
    return has_rows(p, value) && type_find_axis(value_type(value), AXIS_VOCAB) >= 0;
}

static bool is_logits_output(const Node *node) {
    return node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), "logits") == 0;
}

static bool refuse(const Parter *p, const Node *node, const char *what) {
    diag_error(p->ctx->diag, node ? node->loc : NO_LOC, "--loss-parts %d: %s", p->n_parts, what);
    return false;
}

static bool touches_wide(const Parter *p, const Node *node) {
    bool wide = false;
    for (int i = 0; i < node->n_inputs; i++) wide |= is_wide(p, node->inputs[i]);
    for (int o = 0; o < node->n_outputs; o++) wide |= is_wide(p, node_value((Node *)node, o));
    return wide;
}

static bool is_same_visit(const Parter *p, const Node *from, const Node *node) {
    if (p->late && from->phase == PHASE_FORWARD && node->phase == PHASE_BACKWARD) return true;
    return from->phase == node->phase;
}

static bool is_done_with(const Parter *p, const Node *from, const Node *node) {
    return is_same_visit(p, from, node) && p->place[from->id] == WIDE;
}

static bool is_behind(const Parter *p, const Node *from, const Node *node) {
    return is_same_visit(p, from, node) && p->place[from->id] == BEHIND;
}

/* When the node is done, once it has its place. */
static Phase phase_of(const Parter *p, const Node *node) {
    bool moves = p->late && node->phase == PHASE_FORWARD && p->place[node->id] != BESIDE;
    return moves ? PHASE_BACKWARD : node->phase;
}

/* Does it add a sum over a part's rows to an accumulator, or to such a sum? */
static bool adds_part(const Parter *p, const Node *node) {
    if (node->op != OP_ACCUMULATE) return false;
    const Node *before = node->inputs[0].node, *share = node->inputs[1].node;
    if (is_done_with(p, before, node) && before->op != OP_ACCUMULATE) return false;
    return is_done_with(p, share, node);
}

/* Can a part of the rows be done by itself? */
static bool check_wide(const Parter *p, const Node *node) {
    bool sums = node->op == OP_MATMUL || node->op == OP_REDUCE_SUM;
    if (node_draws(node) || node->op == OP_ACCUMULATE || op_needs_whole(node, p->rows))
        return refuse(p, node, "what is made of logits here needs all positions");
    for (int o = 0; o < node->n_outputs; o++) {
        if (!sums && !has_rows(p, node_value((Node *)node, o)))
            return refuse(p, node, "what is made of logits here needs all positions");
    }
    if (node->n_outputs == 0 && !is_logits_output(node))
        return refuse(p, node, "an output has logits of all positions");
    if (node->phase == PHASE_UPDATE) return refuse(p, node, "the update reads logits");
    return true;
}

/* Such as a weight of each position's loss. */
static bool works_by_rows(const Parter *p, const Node *node) {
    bool rows = OPS[node->op].flags & ELEMENTWISE_BIT && node->op != OP_DROPOUT;
    for (int o = 0; o < node->n_outputs; o++) rows &= has_rows(p, node_value((Node *)node, o));
    return rows && node->n_outputs > 0;
}

static bool place_node(Parter *p, const Node *node) {
    bool touches = touches_wide(p, node), reads_parts = false, reads_behind = false;
    for (int i = 0; i < node->n_inputs; i++) {
        reads_parts |= is_done_with(p, node->inputs[i].node, node);
        reads_behind |= is_behind(p, node->inputs[i].node, node);
    }
    bool rows = p->by_rows && reads_parts && !reads_behind && works_by_rows(p, node);
    bool wide = touches || rows || adds_part(p, node);
    p->place[node->id] = wide ? WIDE : reads_parts || reads_behind ? BEHIND : BESIDE;
    if (touches && !check_wide(p, node)) return false;
    bool follows = p->place[node->id] == BEHIND && node->phase == PHASE_FORWARD;
    if (p->late && follows && (node->op == OP_OUTPUT || node->block != NO_BLOCK))
        return refuse(p, node, "the forward needs what is made of logits");
    if (!wide || !reads_behind) return true;
    return refuse(p, node, "logits are read once more, with what was made of all");
}

static bool find_places(Parter *p) {
    bool any = false;
    memset(p->read_whole, 0, (size_t)p->in->n_nodes * MAX_OUTPUTS);
    for (int n = 0; n < p->in->n_nodes; n++) {
        const Node *node = p->in->nodes[n];
        if (!place_node(p, node)) return false;
        any |= p->place[n] == WIDE;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool outside = p->place[n] != WIDE || !is_same_visit(p, from, node);
            p->read_whole[index_of(node->inputs[i])] |= outside && p->place[from->id] == WIDE;
        }
    }
    return any || refuse(p, NULL, "the model has no logits [.., seq, vocab] to cut");
}

static int64_t part_start(const Parter *p, int k) {
    return p->n_rows * k / p->n_parts;
}

static Value *here(const Parter *p, int k, Value value) {
    return &p->parts[k].here[index_of(value)];
}

/* Part k's rows of a value that is whole, cut within the phase that reads them. */
static Value cut(Parter *p, int k, Value value, const Node *reader) {
    Value whole = *value_map_at(&p->whole, value);
    if (!whole.node) BUG("part_loss: operand of %s was lost", OPS[reader->op].name);
    if (!has_rows(p, value)) return whole;
    const Attr attrs[4] = {attr_axis(ATTR_axis, p->rows), attr_axes(ATTR_to, &p->part_rows, 1),
                           attr_int(ATTR_first, part_start(p, k)),
                           attr_int(ATTR_count, part_start(p, k + 1) - part_start(p, k))};
    Node *rows = pass_build(p->ctx, p->out, OP_NARROW, reader, reader->phase, &whole, 1, attrs, 4);
    return rows ? node_value(rows, 0) : NO_VALUE;
}

static bool add_to_part(Parter *p, int k, const Node *node, Phase phase);

/* Part k of an operand, made first if it has to be. */
static Value operand(Parter *p, int k, Value value, const Node *reader, Phase phase) {
    Value *at = here(p, k, value);
    if (at->node) return *at;
    if (p->place[value.node->id] == WIDE && is_wide(p, value)) { /* forward's, in the backward */
        return add_to_part(p, k, value.node, phase) ? *here(p, k, value) : NO_VALUE;
    }
    Node as = *reader;
    as.phase = phase;
    *at = cut(p, k, value, &as);
    return *at;
}

/* The accumulator that a chain of sums begins with. */
static Value chain_root(const Parter *p, const Node *node) {
    while (is_done_with(p, node->inputs[0].node, node)) node = node->inputs[0].node;
    return node->inputs[0];
}

static bool add_share(Parter *p, int k, const Node *node) {
    Value root = chain_root(p, node), *sum = &p->so_far[index_of(root)];
    if (!sum->node) *sum = *value_map_at(&p->whole, root);
    const Value inputs[2] = {*sum, *here(p, k, node->inputs[1])};
    Node *copy = graph_copy_node(p->out, node, inputs, p->ctx->diag);
    if (copy) *sum = node_value(copy, 0);
    return copy != NULL;
}

/* The node's attributes, of positions those of a part. */
static Attr *of_part(const Parter *p, const Node *node) {
    Attr *attrs = ARENA_ARRAY(p->ctx->arena, Attr, node->n_attrs + 1);
    for (int i = 0; i < node->n_attrs; i++) {
        attrs[i] = node->attrs[i];
        for (int a = 0; ATTRS[attrs[i].key].kind == ATTR_AXES && a < attrs[i].axes.count; a++) {
            if (attrs[i].axes.items[a] == p->rows) attrs[i].axes.items[a] = p->part_rows;
        }
    }
    return attrs;
}

static bool add_to_part(Parter *p, int k, const Node *node, Phase phase) {
    Value *inputs = ARENA_ARRAY(p->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = operand(p, k, node->inputs[i], node, phase);
        if (!inputs[i].node) return false;
    }
    Node as = *node;
    as.phase = phase;
    as.attrs = of_part(p, node);
    int at = type_find_axis(&as.types[0], p->rows); /* said where it cannot be inferred */
    if (at >= 0) {
        as.types[0].axes[at] = p->part_rows;
        as.types[0].dims[at] = part_start(p, k + 1) - part_start(p, k);
    }
    Node *copy = graph_copy_node(p->out, &as, inputs, p->ctx->diag);
    if (!copy) return false;
    for (int o = 0; o < node->n_outputs; o++) {
        *here(p, k, node_value((Node *)node, o)) = node_value(copy, o);
    }
    return true;
}

/* What `n` parts gave for each position, in order, along `to`; a concat takes few. */
static Value join(Parter *p, const Value *parts, int n, int to, const Node *origin) {
    Value joined[MOST_JOINED];
    int n_joined = n < MOST_JOINED ? n : MOST_JOINED;
    if (n == 1) return parts[0];
    for (int j = 0; j < n_joined; j++) {
        int first = n * j / n_joined;
        joined[j] = join(p, parts + first, n * (j + 1) / n_joined - first, p->part_rows, origin);
        if (!joined[j].node) return NO_VALUE;
    }
    const Attr attrs[2] = {attr_axes(ATTR_over, &p->part_rows, 1), attr_axes(ATTR_to, &to, 1)};
    Node *whole =
        pass_build(p->ctx, p->out, OP_CONCAT, origin, origin->phase, joined, n_joined, attrs, 2);
    return whole ? node_value(whole, 0) : NO_VALUE;
}

static Value add_up(Parter *p, const Value *parts, const Node *origin) {
    Value sum = parts[0];
    for (int k = 1; k < p->n_parts && sum.node; k++) {
        const Value terms[2] = {sum, parts[k]};
        Node *next = pass_build(p->ctx, p->out, OP_ADD, origin, origin->phase, terms, 2, NULL, 0);
        sum = next ? node_value(next, 0) : NO_VALUE;
    }
    return sum;
}

/* For those who read the node's results of all parts. */
static bool put_together(Parter *p, const Node *node, Phase phase) {
    Node as = *node;
    as.phase = phase;
    if (node->op == OP_ACCUMULATE) {
        Value sum = p->so_far[index_of(chain_root(p, node))];
        *value_map_at(&p->whole, node_value((Node *)node, 0)) = sum;
        return true;
    }
    Value *parts = ARENA_ARRAY(p->ctx->arena, Value, p->n_parts);
    for (int o = 0; o < node->n_outputs; o++) {
        Value value = node_value((Node *)node, o);
        if (!p->read_whole[index_of(value)] || is_wide(p, value)) continue;
        for (int k = 0; k < p->n_parts; k++) parts[k] = *here(p, k, value);
        Value whole =
            has_rows(p, value) ? join(p, parts, p->n_parts, p->rows, &as) : add_up(p, parts, &as);
        if (!whole.node) return false;
        *value_map_at(&p->whole, value) = whole;
    }
    return true;
}

/* What a phase kept of its parts is made, or cut, again in the next. */
static void forget(Parter *p) {
    for (int k = 0; k < p->n_parts; k++) {
        memset(p->parts[k].here, 0, sizeof(Value) * (size_t)p->in->n_nodes * MAX_OUTPUTS);
    }
}

static bool add_parts(Parter *p, Phase phase) {
    forget(p);
    for (int k = 0; k < p->n_parts; k++) {
        for (int n = 0; n < p->in->n_nodes; n++) {
            const Node *node = p->in->nodes[n];
            if (p->place[n] != WIDE || phase_of(p, node) != phase || is_logits_output(node)) {
                continue;
            }
            bool share = node->op == OP_ACCUMULATE;
            if (!(share ? add_share(p, k, node) : add_to_part(p, k, node, phase))) return false;
        }
    }
    for (int n = 0; n < p->in->n_nodes; n++) {
        const Node *node = p->in->nodes[n];
        if (p->place[n] != WIDE || phase_of(p, node) != phase) continue;
        if (!put_together(p, node, phase)) return false;
    }
    return true;
}

static bool copy_those(Parter *p, Phase phase, Place place) {
    for (int n = 0; n < p->in->n_nodes; n++) {
        const Node *node = p->in->nodes[n];
        Node as = *node;
        if (p->place[n] != place || phase_of(p, node) != phase) continue;
        as.phase = phase;
        if (!value_map_copy(&p->whole, &as, p->out, p->ctx->diag)) return false;
    }
    return true;
}

static bool check_options(const Parter *p) {
    if (p->ctx->options.mesh.size[MESH_C] > 1)
        return refuse(p, NULL, "c divides the positions already; leave one of both out");
    if (p->rows < 0 || p->part_rows < 0 || p->n_rows < p->n_parts)
        return refuse(p, NULL, "there are not as many positions");
    return true;
}

/* One, unless a gradient reads what was made of all parts' logits. */
static bool choose_visits(Parter *p) {
    PassContext aside = *p->ctx, *ctx = p->ctx;
    aside.diag = diag_create();
    p->ctx = &aside;
    p->late = true;
    if (!find_places(p)) {
        p->by_rows = true;
        p->late = p->by_rows = find_places(p);
    }
    diag_destroy(aside.diag);
    p->ctx = ctx;
    return p->late || find_places(p);
}

static int64_t axis_size(const Graph *graph, int axis) {
    for (int n = 0; n < graph->n_nodes; n++) {
        int at = type_find_axis(&graph->nodes[n]->types[0], axis);
        if (graph->nodes[n]->op == OP_INPUT && at >= 0) return graph->nodes[n]->types[0].dims[at];
    }
    return 0;
}

Graph *pass_part_loss(const Graph *in, PassContext *ctx) {
    Arena *arena = ctx->arena;
    size_t n_values = (size_t)in->n_nodes * MAX_OUTPUTS + 1;
    if (ctx->options.loss_parts < 2) return (Graph *)in;
    Parter p = {.ctx = ctx,
                .in = in,
                .out = graph_create_like(in, arena),
                .n_parts = ctx->options.loss_parts,
                .rows = axis_find(&in->axes, "seq", 3),
                .place = ARENA_ARRAY(arena, Place, in->n_nodes + 1),
                .read_whole = ARENA_ARRAY(arena, bool, n_values),
                .whole = value_map_create(in, arena),
                .parts = ARENA_ARRAY(arena, Part, ctx->options.loss_parts),
                .so_far = ARENA_ARRAY(arena, Value, n_values)};
    p.part_rows = graph_axis(p.out, LOSS_ROWS, (int)strlen(LOSS_ROWS));
    p.n_rows = axis_size(in, p.rows);
    for (int k = 0; k < p.n_parts; k++) p.parts[k].here = ARENA_ARRAY(arena, Value, n_values);
    if (!check_options(&p) || !choose_visits(&p)) return NULL;
    for (int phase = 0; phase < N_PHASES; phase++) {
        if (!copy_those(&p, (Phase)phase, BESIDE) || !add_parts(&p, (Phase)phase) ||
            !copy_those(&p, (Phase)phase, BEHIND)) {
            return NULL;
        }
    }
    return p.out;
}
