#include "planner/passes/qk_clip.h"

#include "planner/plan/schedule.h"

#include <string.h>

enum { MOST_FOUND = 16, QUERIES = 0, KEYS = 1, NO_PART = -1 };

/* A parameter that queries or keys are made of. */
typedef struct Found {
    Node *param;
    int side; /* QUERIES or KEYS, the operand of attention */
    int part; /* of what is joined along `head`, or NO_PART: of all of it */
} Found;

/* One attention, and what makes its queries and keys. */
typedef struct Heads {
    Node *largest;        /* [heads...] */
    const Node *joins[2]; /* what joins parts of queries, and of keys; NULL: there are no parts */
    Found found[MOST_FOUND];
    int n_found;
    bool taken; /* with another one's, of the same weights */
} Heads;

typedef struct Clipper {
    PassContext *ctx;
    Graph *out;
    Heads *heads;
    int n_heads;
    bool *depends;  /* by id: on a parameter */
    bool *visited;  /* by id: reads a parameter on the way to queries or keys */
    Value *factors; /* by id of a parameter */
    Node origin;    /* of nodes of the update that are of no block */
    Value tau;
} Clipper;

static const Node *attention_of(const Heads *heads) {
    return heads->largest->inputs[1].node;
}

static bool refuse(Clipper *c, const Heads *heads, const Node *at, int side, const char *what) {
    diag_error(c->ctx->diag, attention_of(heads)->loc,
               "--qk-clip: %s of this attention %s; plan without it",
               side == QUERIES ? "queries" : "keys", what);
    diag_note(c->ctx->diag, at->loc, "made here, by %s", OPS[at->op].name);
    return false;
}

static bool add_found(Clipper *c, Heads *heads, Node *param, const Node *reader, int side,
                      int part) {
    if (node_is_frozen(param)) return refuse(c, heads, param, side, "are of frozen weights");
    if (heads->n_found == MOST_FOUND) return refuse(c, heads, param, side, "have too many weights");
    c->visited[reader->id] = true;
    heads->found[heads->n_found++] = (Found){param, side, part};
    return true;
}

static bool find_weights(Clipper *c, Heads *heads, Value value, int side, int part);

/* Of two operands the one that is made of parameters; the other scales rows, as a temperature. */
static bool find_scaled(Clipper *c, Heads *heads, const Node *node, int side, int part) {
    bool first = c->depends[node->inputs[0].node->id];
    if (first == c->depends[node->inputs[1].node->id])
        return refuse(c, heads, node, side, "are multiplied by what depends on weights (a norm?)");
    return find_weights(c, heads, node->inputs[first ? 0 : 1], side, part);
}

static bool find_product(Clipper *c, Heads *heads, const Node *node, int side, int part) {
    for (int i = 0; i < 2 && node->n_inputs == 2; i++) {
        Node *param = node->inputs[i].node;
        if (param->op == OP_PARAM) return add_found(c, heads, param, node, side, part);
    }
    return refuse(c, heads, node, side, "are a product without a weight of its own");
}

static bool find_parts(Clipper *c, Heads *heads, const Node *node, int side, int part) {
    if (part != NO_PART) return refuse(c, heads, node, side, "are made of parts of parts");
    heads->joins[side] = node;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!find_weights(c, heads, node->inputs[i], side, i)) return false;
    }
    return true;
}

/* Whatever is linear in the weights. False: reported. */
static bool find_weights(Clipper *c, Heads *heads, Value value, int side, int part) {
    const Node *node = value.node;
    switch (node->op) {
    case OP_MATMUL: return find_product(c, heads, node, side, part);
    case OP_CONCAT: return find_parts(c, heads, node, side, part);
    case OP_MUL: return find_scaled(c, heads, node, side, part);
    case OP_ADD:
        for (int i = 0; i < 2; i++) {
            Node *bias = node->inputs[i].node;
            bool fine = bias->op == OP_PARAM ? add_found(c, heads, bias, node, side, part)
                                             : find_weights(c, heads, node->inputs[i], side, part);
            if (!fine) return false;
        }
        return true;
    case OP_ROTARY:
    case OP_TRANSPOSE:
    case OP_RENAME:
    case OP_SCALE:
    case OP_NEG:
    case OP_COPY:
    case OP_BROADCAST:
    case OP_TO_F32: return find_weights(c, heads, node->inputs[0], side, part);
    case OP_RMSNORM:
    case OP_LAYERNORM:
        return refuse(c, heads, node, side,
                      "are normed, so that their weights' size has no effect");
    default: return refuse(c, heads, node, side, "are not linear in weights");
    }
}

static bool find_heads(Clipper *c, Heads *heads) {
    const Node *attention = attention_of(heads);
    if (node_float(attention, ATTR_softcap, 0) != 0) {
        diag_error(c->ctx->diag, attention->loc,
                   "--qk-clip: this attention has a soft cap, which bounds its scores already");
        return false;
    }
    for (int side = QUERIES; side <= KEYS; side++) {
        if (!find_weights(c, heads, attention->inputs[side], side, NO_PART)) return false;
    }
    const Node *q = heads->joins[QUERIES], *k = heads->joins[KEYS];
    const Attr *q_over = q ? node_attr(q, ATTR_over) : NULL;
    const Attr *k_over = k ? node_attr(k, ATTR_over) : NULL;
    bool alike = !q == !k &&
                 (!q || (q_over->axes.count == k_over->axes.count &&
                         memcmp(q_over->axes.items, k_over->axes.items,
                                sizeof(q_over->axes.items[0]) * (size_t)q_over->axes.count) == 0));
    return alike ||
           refuse(c, heads, q ? q : k, q ? QUERIES : KEYS, "have other parts than the other side");
}

static bool same_weights(const Heads *a, const Heads *b) {
    bool same = a->n_found == b->n_found;
    for (int i = 0; same && i < a->n_found; i++) {
        same = a->found[i].param == b->found[i].param && a->found[i].side == b->found[i].side &&
               a->found[i].part == b->found[i].part;
    }
    return same;
}

/* A node of the update that belongs to no block; NO_VALUE: reported, here or before. */
static Value build(Clipper *c, OpKind op, Value a, Value b, const Attr *attrs, int n_attrs) {
    Value inputs[2] = {a, b};
    if (!a.node) return NO_VALUE;
    Node *node = pass_build(c->ctx, c->out, op, &c->origin, PHASE_UPDATE, inputs, b.node ? 2 : 1,
                            attrs, n_attrs);
    return node ? node_value(node, 0) : NO_VALUE;
}

/* Keys have an axis less than queries: of groups of one head it has one element. */
static Value without_group(Clipper *c, Value factors, const Type *param) {
    const Type *type = value_type(factors);
    int last = type->rank - 1, unused;
    if (op_rescale_place(param, type, &unused)) return factors;
    if (last < 1 || type->dims[last] != 1) return NO_VALUE;
    Type shared = *type;
    shared.rank--;
    if (!op_rescale_place(param, &shared, &unused)) return NO_VALUE;
    Attr over = attr_axes(ATTR_over, &type->axes[last], 1);
    return build(c, OP_REDUCE_SUM, factors, NO_VALUE, &over, 1);
}

/* Has each head keys of its own, of this part? */
static bool has_own_keys(const Heads *heads, int part) {
    const Type *each = &heads->largest->types[0];
    bool own = true;
    for (int i = 0; i < heads->n_found; i++) {
        const Found *f = &heads->found[i];
        if (f->side != KEYS || f->part != part) continue;
        Type of = *each;
        int unused;
        if (of.rank > 1 && of.dims[of.rank - 1] == 1) of.rank--;
        own &= op_rescale_place(&f->param->types[0], each, &unused) ||
               op_rescale_place(&f->param->types[0], &of, &unused);
    }
    return own;
}

static bool set_factor(Clipper *c, const Heads *heads, const Found *f, Value factors) {
    Value *known = &c->factors[f->param->id];
    if (known->node) {
        return refuse(c, heads, f->param, f->side, "have a weight that other scores are made of");
    }
    *known = without_group(c, factors, &f->param->types[0]);
    return known->node ||
           refuse(c, heads, f->param, f->side, "have a weight whose heads are not axes together");
}

/* Scores of one weight are compared where they are made: no message carries them over p. */
static bool on_one_stage(Clipper *c, const Heads *a, const Heads *b) {
    const PlanOptions *o = &c->ctx->options;
    const Path path = {schedule_path(schedule_find(o->schedule)), o->mesh.size[MESH_P]};
    if (path_stage(path, a->largest->chunk) == path_stage(path, b->largest->chunk)) return true;
    diag_error(c->ctx->diag, attention_of(b)->loc,
               "--qk-clip: this attention has the weights of another block's, which lies on "
               "another pipeline stage; use other stages (p=1), or plan without it");
    return false;
}

/* min(1, tau / s) as tau / max(s, tau), and its root, for all weights of a layer. */
static bool append_factors(Clipper *c, int number) {
    Heads *heads = &c->heads[number];
    Value largest = node_value(heads->largest, 0);
    for (int i = number + 1; i < c->n_heads; i++) { /* other lanes', looped blocks' */
        if (!same_weights(heads, &c->heads[i])) continue;
        if (!on_one_stage(c, heads, &c->heads[i])) return false;
        largest = build(c, OP_MAXIMUM, largest, node_value(c->heads[i].largest, 0), NULL, 0);
        c->heads[i].taken = true;
    }
    Value most = build(c, OP_MAXIMUM, largest, c->tau, NULL, 0);
    Value whole = most.node ? build(c, OP_DIV, c->tau, most, NULL, 0) : NO_VALUE;
    Value root = build(c, OP_SQRT, whole, NO_VALUE, NULL, 0);
    if (!root.node) return false;
    for (int i = 0; i < heads->n_found; i++) {
        const Found *f = &heads->found[i];
        bool own = has_own_keys(heads, f->part);
        if (!own && f->side == KEYS) continue;
        if (!set_factor(c, heads, f, own ? root : whole)) return false;
    }
    return true;
}

/* What is scaled is read for nothing else. */
static bool check_readers(Clipper *c, int n_nodes) {
    for (int n = 0; n < n_nodes; n++) {
        const Node *node = c->out->nodes[n];
        for (int i = 0; node->phase == PHASE_FORWARD && i < node->n_inputs; i++) {
            const Node *param = node->inputs[i].node;
            if (c->visited[n] || !c->factors[param->id].node) continue;
            diag_error(c->ctx->diag, node->loc,
                       "--qk-clip: '%s' makes queries or keys of attention, and is read here too",
                       node_string(param, ATTR_name));
            return false;
        }
    }
    return true;
}

static void find_dependent(Clipper *c, int n_nodes) {
    for (int n = 0; n < n_nodes; n++) {
        const Node *node = c->out->nodes[n];
        c->depends[n] = node->op == OP_PARAM;
        for (int i = 0; i < node->n_inputs; i++)
            c->depends[n] |= c->depends[node->inputs[i].node->id];
    }
}

static bool append_clip(Clipper *c, int n_nodes) {
    Attr tau = attr_float(ATTR_value, c->ctx->options.qk_clip);
    find_dependent(c, n_nodes);
    for (int i = 0; i < c->n_heads; i++) {
        if (!find_heads(c, &c->heads[i])) return false;
    }
    Node *node = pass_build(c->ctx, c->out, OP_CONST, &c->origin, PHASE_UPDATE, NULL, 0, &tau, 1);
    if (!node) return false;
    c->tau = node_value(node, 0);
    for (int i = 0; i < c->n_heads; i++) {
        if (!c->heads[i].taken && !append_factors(c, i)) return false;
    }
    return check_readers(c, n_nodes);
}

/* The largest of all heads, for the log. */
static bool append_output(Clipper *c) {
    Value *all = ARENA_ARRAY(c->ctx->arena, Value, c->n_heads);
    Attr name = attr_string(ATTR_name, OUTPUT_MAX_LOGIT);
    for (int i = 0; i < c->n_heads; i++) all[i] = node_value(c->heads[i].largest, 0);
    Node *most =
        pass_build(c->ctx, c->out, OP_MAX_N, &c->origin, PHASE_UPDATE, all, c->n_heads, NULL, 0);
    if (!most) return false;
    Value value = node_value(most, 0);
    return pass_build(c->ctx, c->out, OP_OUTPUT, &c->origin, PHASE_UPDATE, &value, 1, &name, 1);
}

Value *qk_clip_append(PassContext *ctx, Graph *out) {
    const int n_nodes = out->n_nodes;
    Clipper c = {.ctx = ctx,
                 .out = out,
                 .origin = {.types = {{.dtype = DTYPE_F32}}, .block = NO_BLOCK, .loc = NO_LOC},
                 .heads = ARENA_ARRAY(ctx->arena, Heads, n_nodes + 1),
                 .depends = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1),
                 .visited = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1),
                 .factors = ARENA_ARRAY(ctx->arena, Value, n_nodes + 1)};
    for (int n = 0; n < n_nodes; n++) {
        if (out->nodes[n]->op == OP_LARGEST) c.heads[c.n_heads++].largest = out->nodes[n];
    }
    if (c.n_heads == 0) return c.factors;
    if (!append_output(&c)) return NULL;
    return ctx->options.qk_clip == 0 || append_clip(&c, n_nodes) ? c.factors : NULL;
}
