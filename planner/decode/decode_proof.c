/* The proof that a model can be decoded position by position. */
#include "planner/decode/decode_proof.h"

#include <string.h>

static int find_axis(const Graph *graph, const char *name) {
    return axis_find(&graph->axes, name, (int)strlen(name));
}

void decode_refuse(DecodeObstacle *out, const Node *node, const char *what, Arena *arena) {
    if (out->what) return;
    *out = (DecodeObstacle){node->loc, arena_printf(arena, "%s: %s", OPS[node->op].name, what)};
}

static bool find_needed(DecodeFacts *f) {
    const Graph *graph = f->graph;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool logits = node->op == OP_OUTPUT && node->phase == PHASE_FORWARD &&
                      strcmp(node_string(node, ATTR_name), "logits") == 0;
        if (logits && !f->logits) f->logits = node;
        f->needed[n] |= f->logits == node;
        for (int i = 0; f->needed[n] && i < node->n_inputs; i++) {
            f->needed[node->inputs[i].node->id] = true;
            f->reads_second[node->inputs[i].node->id] |= node->inputs[i].output > 0;
        }
    }
    return f->logits != NULL;
}

bool decode_has_axis(const Node *node, int axis) {
    for (int o = 0; o < node->n_outputs; o++) {
        if (type_find_axis(&node->types[o], axis) >= 0) return true;
    }
    return false;
}

bool decode_carries_state(const Node *node) {
    return node->op == OP_LINEAR_ATTENTION || node->op == OP_CONVOLVE;
}

static void find_moving(DecodeFacts *f) {
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const Node *node = f->graph->nodes[n];
        f->moves[n] = decode_has_axis(node, f->seq) || decode_has_axis(node, f->batch);
        for (int i = 0; i < node->n_inputs; i++) f->moves[n] |= f->moves[node->inputs[i].node->id];
    }
    for (int n = f->graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = f->graph->nodes[n];
        for (int i = 0; f->needed[n] && i < node->n_inputs; i++) {
            bool cached = node->op == OP_ATTENTION && (i == 1 || i == 2);
            if (cached || decode_carries_state(node) || f->feeds[n])
                f->feeds[node->inputs[i].node->id] = true;
        }
    }
}

static const Node *behind_casts(const Node *node) {
    while (op_is_cast(node->op)) node = node->inputs[0].node;
    return node;
}

static bool has_number(const Node *node, OpKind op, double value) {
    return node->op == op && node_float(node, ATTR_value, 0) == value;
}

/* 1 - less(occurrence, 0) */
static bool tells_placeholders(const Node *node, const Node *occurrence) {
    const Node *neg = has_number(node, OP_OFFSET, 1) ? node->inputs[0].node : NULL;
    const Node *less = neg && neg->op == OP_NEG ? neg->inputs[0].node : NULL;
    return less && less->op == OP_LESS && less->inputs[0].node == occurrence &&
           has_number(less->inputs[1].node, OP_CONST, 0);
}

/* equal(at, put(at, occurrence)), where at = number(occurrence) + 1, in either order: of positions
 * that are placeholders, the vector that each has. */
static const Node *find_put(const Node *equal, const Node **out_occurrence) {
    for (int i = 0; equal->op == OP_EQUAL && i < 2; i++) {
        const Node *put = equal->inputs[i].node, *at = equal->inputs[1 - i].node;
        if (put->op != OP_PUT || put->inputs[0].node != at || !has_number(at, OP_OFFSET, 1)) {
            continue;
        }
        const Node *number = at->inputs[0].node, *occurrence = put->inputs[1].node;
        if (occurrence->op != OP_OCCURRENCE || number->op != OP_NUMBER ||
            number->inputs[0].node != occurrence) {
            continue;
        }
        *out_occurrence = occurrence;
        return put;
    }
    return NULL;
}

/* Is it nn.place_images' product, of which position has which of the vectors [batch, slots, ...],
 * by their numbers alone, and the vectors? What tells so is not needed then. */
static bool places(DecodeFacts *f, const Node *node) {
    if (node->op != OP_MATMUL || node->n_inputs != 2) return false;
    const Node *member = behind_casts(node->inputs[0].node), *occurrence;
    const Type *vectors = value_type(node->inputs[1]);
    if (member->op != OP_MUL || !f->looks[node->inputs[1].node->id]) return false;
    for (int i = 0; i < 2; i++) {
        const Node *equal = member->inputs[i].node, *put = find_put(equal, &occurrence);
        if (!put || !tells_placeholders(member->inputs[1 - i].node, occurrence)) continue;
        const int slots = node_axis(put, ATTR_axis);
        if (vectors->rank < 2 || vectors->axes[0] != f->batch || vectors->axes[1] != slots ||
            !node_over(node, ATTR_over, slots) || node_attr(node, ATTR_over)->axes.count != 1) {
            continue;
        }
        for (const Node *of = node->inputs[0].node; of != member; of = of->inputs[0].node) {
            f->needed[of->id] = false;
        }
        f->needed[member->id] = f->needed[equal->id] = f->needed[put->id] = false;
        return true;
    }
    return false;
}

/* What is made of pixels, whatever the tokens are, up to the product that places it. */
static void find_looking(DecodeFacts *f, DecodeObstacle *out, Arena *arena) {
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const Node *node = f->graph->nodes[n];
        if (!f->needed[n]) continue;
        f->looks[n] =
            node->op == OP_INPUT && strcmp(node_string(node, ATTR_name), INPUT_PIXELS) == 0;
        for (int i = 0; i < node->n_inputs; i++) f->looks[n] |= f->looks[node->inputs[i].node->id];
        if (!f->looks[n] || !decode_has_axis(node, f->seq)) continue;
        f->looks[n] = false;
        if (f->placed || !places(f, node))
            decode_refuse(out, node, "what is seen goes elsewhere", arena);
        f->placed = node;
    }
    if (f->placed) f->sees[f->placed->inputs[1].node->id] = true;
    for (int n = f->graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = f->graph->nodes[n];
        for (int i = 0; f->sees[n] && i < node->n_inputs; i++) {
            f->sees[node->inputs[i].node->id] = true;
        }
        if (f->sees[n] && decode_has_axis(node, f->seq)) decode_refuse(out, node, "is seen", arena);
    }
}

/* Does an attribute say that the op works along the axis? A transpose names all it has. */
static bool works_along(const Node *node, int axis) {
    for (int i = 0; i < node->n_attrs; i++) {
        const Attr *attr = &node->attrs[i];
        AttrKind kind = ATTRS[attr->key].kind;
        if (kind == ATTR_AXIS && attr->axis == axis) return true;
        if (kind == ATTR_AXES && node->op != OP_TRANSPOSE && node_over(node, attr->key, axis)) {
            return true;
        }
    }
    return false;
}

static bool begins(const Type *type, int batch, int seq) {
    return type->rank >= 2 && type->axes[0] == batch && type->axes[1] == seq;
}

static void check_leaf(DecodeFacts *f, const Node *node, DecodeObstacle *out, Arena *arena) {
    const Type *type = &node->types[0];
    if (node->op == OP_INPUT) {
        const char *name = node_string(node, ATTR_name);
        if (strcmp(name, "source") == 0) {
            decode_refuse(out, node, "an encoder reads the prompt", arena);
        } else if (f->looks[node->id]) {
            return;
        } else if (strcmp(name, "tokens") != 0) {
            decode_refuse(out, node, "the logits depend on labels", arena);
        }
    } else if (node->op != OP_PARAM && !node_is_copy(node)) {
        decode_refuse(out, node, "what training keeps or a pipeline sends", arena);
    } else if (type_find_axis(type, f->seq) >= 0 && (type->rank != 2 || type->axes[0] != f->seq)) {
        decode_refuse(out, node, "a parameter along seq that is no table [seq, ...]", arena);
    }
}

static void check_node(DecodeFacts *f, const Node *node, DecodeObstacle *out, Arena *arena) {
    const Type *in = node->n_inputs ? value_type(node->inputs[0]) : NULL;
    if (OPS[node->op].flags & LEAF) {
        check_leaf(f, node, out, arena);
        return;
    }
    if (f->looks[node->id]) {
        if (OPS[node->op].flags & (COLLECTIVE | EFFECT) || works_along(node, f->batch)) {
            decode_refuse(out, node, "looks at other sequences' images", arena);
        }
        return;
    }
    switch (node->op) {
    case OP_ATTENTION:
        if (node_int(node, ATTR_causal, 1) == 0) decode_refuse(out, node, "is not causal", arena);
        return;
    case OP_LINEAR_ATTENTION:
    case OP_CONVOLVE:
        if (!begins(in, f->batch, f->seq)) {
            decode_refuse(out, node, "its operand is not [batch, seq, ...]", arena);
        } else if (f->reads_second[node->id]) {
            decode_refuse(out, node, "its errors are read", arena);
        }
        return;
    case OP_ROTARY:
        if (node->n_inputs != 1 || !begins(in, f->batch, f->seq)) {
            decode_refuse(out, node, "its operand is not [batch, seq, ...]", arena);
        }
        return;
    case OP_DOCUMENTS: {
        const Node *other = f->documents;
        if (node_int(node, ATTR_apart, 0)) { /* what is told of new tokens is the other way */
            decode_refuse(out, node, "documents end before their separators", arena);
        } else if (node->inputs[0].node->op != OP_INPUT) {
            decode_refuse(out, node, "of something else than the tokens", arena);
        } else if (other &&
                   node_int(other, ATTR_separator, 0) != node_int(node, ATTR_separator, 0)) {
            decode_refuse(out, node, "the second kind of documents", arena);
        }
        f->documents = node;
        return;
    }
    case OP_OCCURRENCE: {
        const Node *other = f->occurrence;
        if (node->inputs[0].node->op != OP_INPUT) {
            decode_refuse(out, node, "of something else than the tokens", arena);
        } else if (other && node_int(other, ATTR_token, 0) != node_int(node, ATTR_token, 0)) {
            decode_refuse(out, node, "the second kind of tokens that are counted", arena);
        }
        f->occurrence = node;
        return;
    }
    case OP_OUTPUT:
        if (in->rank != 3 || !begins(in, f->batch, f->seq) || in->dims[2] != f->vocab) {
            decode_refuse(out, node, "'logits' is not [batch, seq, vocab]", arena);
        }
        return;
    case OP_TAKE:
    case OP_PUT: /* along their last axes, which their attributes do not name */
        if (in->axes[in->rank - 1] == f->seq)
            decode_refuse(out, node, "looks at other positions", arena);
        return;
    case OP_ROUTE: return; /* of each position, as nothing is dropped */
    default: break;
    }
    if (OPS[node->op].flags & (COLLECTIVE | EFFECT | COMPOSITE) || node->op == OP_SLICE) {
        decode_refuse(out, node, "several ranks divide the model", arena);
    } else if (node->op == OP_LABEL_SHARE) {
        decode_refuse(out, node, "the logits depend on labels", arena);
    } else if (works_along(node, f->seq)) {
        decode_refuse(out, node, "looks at other positions", arena);
    } else if (works_along(node, f->batch)) {
        decode_refuse(out, node, "looks at other sequences", arena);
    }
}

/* Only rows [batch, seq, ...] can be narrowed to the last position. */
static bool can_narrow(const DecodeFacts *f) {
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const Node *node = f->graph->nodes[n];
        for (int i = 0; f->needed[n] && f->moves[n] && !f->feeds[n] && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool border = f->moves[from->id] && f->feeds[from->id];
            if (border && !begins(value_type(node->inputs[i]), f->batch, f->seq) &&
                !(node->op == OP_ATTENTION && i > 0)) {
                return false;
            }
        }
    }
    return true;
}

bool decode_find_facts(const DecodeRequest *request, Arena *arena, DecodeFacts *f,
                       DecodeObstacle *out) {
    const Graph *graph = request->forward;
    *f = (DecodeFacts){.graph = graph,
                       .vocab = request->vocab,
                       .batch = find_axis(graph, "batch"),
                       .seq = find_axis(graph, "seq"),
                       .needed = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                       .moves = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                       .feeds = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                       .reads_second = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                       .looks = ARENA_ARRAY(arena, bool, graph->n_nodes + 1),
                       .sees = ARENA_ARRAY(arena, bool, graph->n_nodes + 1)};
    *out = (DecodeObstacle){NO_LOC, NULL};
    if (!find_needed(f)) {
        out->what = "the model has no output 'logits'";
        return false;
    }
    find_looking(f, out, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (f->needed[n]) check_node(f, graph->nodes[n], out, arena);
    }
    find_moving(f);
    if (!can_narrow(f)) memset(f->feeds, true, (size_t)graph->n_nodes * sizeof(bool));
    return !out->what;
}

bool decode_has_table(const Graph *forward) {
    Arena *arena = arena_create();
    DecodeFacts f;
    DecodeObstacle obstacle;
    bool found = false;
    decode_find_facts(&(DecodeRequest){.forward = forward}, arena, &f, &obstacle);
    for (int n = 0; n < forward->n_nodes; n++) {
        const Node *node = forward->nodes[n];
        bool table =
            node->op == OP_PARAM && (decode_has_axis(node, f.seq) ||
                                     decode_has_axis(node, find_axis(forward, "positions")));
        found |= f.needed[n] && table;
    }
    arena_destroy(arena);
    return found;
}
