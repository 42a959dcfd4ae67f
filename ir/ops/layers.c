/* Layers with kernels of their own: norms, embedding, attention. */
#include "ir/expr.h"
#include "ir/ngram.h"
#include "ir/op.h"

#include <inttypes.h>
#include <string.h>

static const char *axis_name(const Graph *graph, int axis) {
    return axis >= 0 ? graph->axes.names[axis] : "?";
}

static bool fail_operand(Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

/* x's last axis is the op's axis, and the operands from `first` on are [axis] vectors. */
static bool check_norm(Graph *graph, Node *node, int first, int count, Diag *diag) {
    const Type *x = value_type(node->inputs[0]);
    int axis = node_axis(node, ATTR_axis);
    if (!dtype_is_float(x->dtype)) return fail_operand(node, 0, diag, "must be f32, bf16 or f16");
    if (x->rank < 1 || x->axes[x->rank - 1] != axis) {
        diag_error(diag, node->loc,
                   "%s: axis '%s' must be the last axis of the operand; transpose puts it there",
                   OPS[node->op].name, axis_name(graph, axis));
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    for (int i = first; i < first + count; i++) {
        const Type *type = value_type(node->inputs[i]);
        if (type->rank == 1 && type->axes[0] == axis && type->dims[0] == x->dims[x->rank - 1] &&
            type->dtype == DTYPE_F32) {
            continue;
        }
        diag_error(diag, node->loc, "%s: gain and bias must be f32[%s=%" PRId64 "]",
                   OPS[node->op].name, axis_name(graph, axis), x->dims[x->rank - 1]);
        diag_note(diag, node->inputs[i].node->loc, "made here");
        return false;
    }
    double eps = node_float(node, ATTR_eps, 0);
    if (!(eps >= 0)) {
        diag_error(diag, node->loc, "%s: 'eps' must be at least 0, not %g", OPS[node->op].name,
                   eps);
        return false;
    }
    return true;
}

/* Numbers per row: statistics, always f32. */
static Type rows_of(const Type *type) {
    Type rows = type_with_dtype(type, DTYPE_F32);
    rows.rank--;
    return rows;
}

bool infer_layernorm(Graph *graph, Node *node, Diag *diag) {
    if (!check_norm(graph, node, 1, 2, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    node->types[1] = node->types[2] = rows_of(&node->types[0]);
    return true;
}

/* inputs: x, gain, mean, inv_std, dy -> dx, dgain, dbias */
bool infer_layernorm_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_norm(graph, node, 1, 1, diag)) return false;
    const Type *x = value_type(node->inputs[0]);
    Type rows = rows_of(x);
    for (int i = 2; i < 5; i++) {
        if (!type_equal(value_type(node->inputs[i]), i == 4 ? x : &rows)) {
            return fail_operand(node, i, diag, "has the wrong shape");
        }
    }
    node->types[0] = *x;
    node->types[1] = node->types[2] = *value_type(node->inputs[1]);
    return true;
}

void grad_layernorm(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Node *self = (Node *)node;
    Value grad = grad_build(ctx, OP_LAYERNORM_GRAD,
                            (Value[]){node->inputs[0], node->inputs[1], node_value(self, 1),
                                      node_value(self, 2), douts[0]},
                            5, &(Attr){.key = ATTR_axis, .axis = node_axis(node, ATTR_axis)}, 1);
    for (int i = 0; i < 3; i++) dins[i] = node_value(grad.node, i);
}

bool infer_rmsnorm(Graph *graph, Node *node, Diag *diag) {
    if (!check_norm(graph, node, 1, 1, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    node->types[1] = rows_of(&node->types[0]);
    return true;
}

/* inputs: x, gain, inv_rms, dy -> dx, dgain */
bool infer_rmsnorm_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_norm(graph, node, 1, 1, diag)) return false;
    const Type *x = value_type(node->inputs[0]);
    Type rows = rows_of(x);
    for (int i = 2; i < 4; i++) {
        if (!type_equal(value_type(node->inputs[i]), i == 3 ? x : &rows)) {
            return fail_operand(node, i, diag, "has the wrong shape");
        }
    }
    node->types[0] = *x;
    node->types[1] = *value_type(node->inputs[1]);
    return true;
}

void grad_rmsnorm(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Node *self = (Node *)node;
    Value grad =
        grad_build(ctx, OP_RMSNORM_GRAD,
                   (Value[]){node->inputs[0], node->inputs[1], node_value(self, 1), douts[0]}, 4,
                   &(Attr){.key = ATTR_axis, .axis = node_axis(node, ATTR_axis)}, 1);
    for (int i = 0; i < 2; i++) dins[i] = node_value(grad.node, i);
}

/* tokens i32[...], table [axis, ...] -> [..., rest of the table], of the table's dtype */
bool infer_embedding(Graph *graph, Node *node, Diag *diag) {
    const Type *tokens = value_type(node->inputs[0]), *table = value_type(node->inputs[1]);
    if (tokens->dtype != DTYPE_I32) return fail_operand(node, 0, diag, "must be i32 token numbers");
    if (!dtype_is_float(table->dtype))
        return fail_operand(node, 1, diag, "must be f32, bf16 or f16");
    if (table->rank != 2 || table->axes[0] != node_axis(node, ATTR_axis)) {
        diag_error(diag, node->loc, "embedding: the table must be [%s, ...] with two axes",
                   axis_name(graph, node_axis(node, ATTR_axis)));
        diag_note(diag, node->inputs[1].node->loc, "made here");
        return false;
    }
    const Node *from = node->inputs[0].node;
    if (from->op == OP_NGRAM && node_int(from, ATTR_count, 1) > table->dims[0]) {
        diag_error(diag, node->loc,
                   "embedding: n-grams are numbers below %" PRId64 "; the table has %" PRId64
                   " rows",
                   node_int(from, ATTR_count, 1), table->dims[0]);
        diag_note(diag, from->loc, "n-grams made here");
        return false;
    }
    Type out = *tokens;
    out.dtype = table->dtype;
    if (out.rank == MAX_RANK || type_find_axis(tokens, table->axes[1]) >= 0) {
        return fail_operand(node, 0, diag, "has too many axes, or one of the table's");
    }
    out.axes[out.rank] = table->axes[1];
    out.dims[out.rank++] = table->dims[1];
    node->types[0] = out;
    return true;
}

/* inputs: tokens, dy, table (for its shape only: not read), optional accumulator -> dtable, f32 */
bool infer_embedding_grad(Graph *graph, Node *node, Diag *diag) {
    const Type *tokens = value_type(node->inputs[0]), *dy = value_type(node->inputs[1]);
    const Type *table = value_type(node->inputs[2]);
    if (tokens->dtype != DTYPE_I32) return fail_operand(node, 0, diag, "must be i32 token numbers");
    if (!dtype_is_float(dy->dtype)) return fail_operand(node, 1, diag, "must be f32, bf16 or f16");
    if (table->rank != 2 || table->axes[0] != node_axis(node, ATTR_axis) ||
        dy->rank != tokens->rank + 1 || dy->axes[dy->rank - 1] != table->axes[1] ||
        dy->dims[dy->rank - 1] != table->dims[1]) {
        return fail_operand(node, 1, diag, "does not fit tokens and table");
    }
    for (int i = 0; i < tokens->rank; i++) {
        if (dy->axes[i] != tokens->axes[i] || dy->dims[i] != tokens->dims[i]) {
            return fail_operand(node, 1, diag, "does not fit tokens and table");
        }
    }
    Type sum = type_with_dtype(table, DTYPE_F32);
    if (node->n_inputs == 4 && !type_equal(value_type(node->inputs[3]), &sum)) {
        return fail_operand(node, 3, diag, "is not f32 and shaped like the table");
    }
    (void)graph;
    node->types[0] = sum;
    return true;
}

void grad_embedding(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[1] =
        grad_build(ctx, OP_EMBEDDING_GRAD, (Value[]){node->inputs[0], douts[0], node->inputs[1]}, 3,
                   node->attrs, node->n_attrs);
}

/* The type that `of` has with `last` as its last axis. */
static Type with_last(const Type *of, const Type *last) {
    Type type = *of;
    type.axes[of->rank - 1] = last->axes[last->rank - 1];
    type.dims[of->rank - 1] = last->dims[last->rank - 1];
    return type;
}

int attention_value_axis(const Node *node) {
    const Type *v = value_type(node->inputs[2]);
    return v->rank ? v->axes[v->rank - 1] : -1;
}

static bool check_queries(const Graph *graph, const Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[0]);
    int seq = node_axis(node, ATTR_seq), head = node_axis(node, ATTR_head);
    bool fits = dtype_is_float(q->dtype) && (q->rank == 4 || q->rank == 5) && q->axes[1] == seq &&
                q->axes[q->rank - 1] == head && q->dims[q->rank - 1] <= ATTENTION_LONGEST_HEAD;
    if (fits) return true;
    diag_error(diag, node->loc,
               "attention: queries must be f32, bf16 or f16[batch, %s, kv_heads, group, %s] or "
               "without group, and '%s' at most %d",
               axis_name(graph, seq), axis_name(graph, head), axis_name(graph, head),
               ATTENTION_LONGEST_HEAD);
    diag_note(diag, node->inputs[0].node->loc, "queries made here");
    return false;
}

/* Values may have a last axis of their own, that of no other operand. */
static bool has_own_values(const Node *node) {
    const Type *q = value_type(node->inputs[0]), *v = value_type(node->inputs[2]);
    return v->rank == 4 && type_find_axis(q, v->axes[3]) < 0 &&
           v->dims[3] <= ATTENTION_LONGEST_HEAD;
}

/* q [batch, seq, kv_heads, (group,) head], k [batch, seq, kv_heads, head], v like k, or with an
 * axis of its own in place of head. */
static bool check_attention(Graph *graph, Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[0]);
    if (!check_queries(graph, node, diag)) return false;
    Type want = *q;
    want.rank = 4;
    want = with_last(&want, q);
    for (int i = 1; i <= 2; i++) {
        const Type *have = value_type(node->inputs[i]);
        bool own = i == 2 && has_own_values(node);
        Type values = own ? with_last(&want, have) : want;
        if (type_equal(have, &values)) continue;
        diag_error(diag, node->loc,
                   "attention: %s must be %s[%s=%" PRId64 ", %s=%" PRId64 ", %s=%" PRId64
                   ", %s=%" PRId64 "], as the queries are%s",
                   i == 1 ? "keys" : "values", dtype_name(want.dtype),
                   axis_name(graph, want.axes[0]), want.dims[0], axis_name(graph, want.axes[1]),
                   want.dims[1], axis_name(graph, want.axes[2]), want.dims[2],
                   axis_name(graph, want.axes[3]), want.dims[3],
                   i == 1 ? "" : ", or have a last axis of their own, of at most 256");
        diag_note(diag, node->inputs[i].node->loc, "made here");
        diag_note(diag, node->inputs[0].node->loc, "queries made here");
        return false;
    }
    return true;
}

/* A window over all positions is none, and is planned as none. */
static bool check_window(Node *node, Diag *diag) {
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key != ATTR_window) continue;
        int64_t window = node->attrs[i].i;
        if (window < 1) {
            diag_error(diag, node->loc, "attention: a window of %" PRId64 "; it is at least 1",
                       window);
            return false;
        }
        if (window < value_type(node->inputs[0])->dims[1]) return true;
        node->n_attrs--;
        memmove(&node->attrs[i], &node->attrs[i + 1], sizeof(Attr) * (size_t)(node->n_attrs - i));
    }
    return true;
}

bool attention_check_factors(const Node *node, Diag *diag) {
    double softcap = node_float(node, ATTR_softcap, 1), scale = node_float(node, ATTR_scale, 1);
    if (!(softcap >= 1e-3 && softcap <= 1e6)) { /* what f32 divides by with sense */
        diag_error(diag, node->loc, "%s: a soft cap of %g; it is between 0.001 and 1e6",
                   OPS[node->op].name, softcap);
        return false;
    }
    /* Kernels multiply by it what stands for a score that none has been seen of. */
    if (scale >= -1e6 && scale <= 1e6) return true;
    diag_error(diag, node->loc, "%s: a scale of %g; it is between -1e6 and 1e6", OPS[node->op].name,
               scale);
    return false;
}

/* Lanes are the planner's to say. */
static bool check_drop(const Node *node, Diag *diag) {
    const Attr *p = node_attr(node, ATTR_p), *key = node_attr(node, ATTR_key);
    const int64_t first = node_int(node, ATTR_first, 0), count = node_int(node, ATTR_count, 1);
    const char *name = OPS[node->op].name;
    if (!p && !key && !node_attr(node, ATTR_first) && !node_attr(node, ATTR_count)) return true;
    if (!p || !key) {
        diag_error(diag, node->loc,
                   "%s: dropout of probabilities has 'p' and 'key', and lanes' 'first' and 'count' "
                   "go with them",
                   name);
        return false;
    }
    if (!(p->f >= 0 && p->f < 1)) {
        diag_error(diag, node->loc, "%s: 'p' must be at least 0 and less than 1, not %g", name,
                   p->f);
        return false;
    }
    if (expr_lane_fits(first, count)) return true;
    diag_error(diag, node->loc, "%s: row %" PRId64 " of each %" PRId64 " is not possible", name,
               first, count);
    return false;
}

int attention_documents(const Node *node) {
    int at = node->op == OP_ATTENTION ? 3 : node->op == OP_ATTENTION_GRAD ? 6 : -1;
    bool any = at >= 0 && at < node->n_inputs;
    return any && !dtype_is_float(value_type(node->inputs[at])->dtype) ? at : -1;
}

int attention_document_ends(const Node *node) {
    int at = attention_documents(node) + 1;
    bool any = at > 0 && at < node->n_inputs;
    return any && !dtype_is_float(value_type(node->inputs[at])->dtype) ? at : -1;
}

bool attention_drops(const Node *node) {
    return (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) &&
           node_float(node, ATTR_p, 0) > 0;
}

int attention_undropped(const Node *node, Attr *out) {
    int n = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        const AttrKey key = node->attrs[i].key;
        if (key != ATTR_p && key != ATTR_key && key != ATTR_first && key != ATTR_count)
            out[n++] = node->attrs[i];
    }
    return n;
}

int attention_sinks(const Node *node) {
    int last = node->n_inputs - 1;
    if (node->op != OP_ATTENTION || last < 3) return -1;
    return dtype_is_float(value_type(node->inputs[last])->dtype) ? last : -1;
}

/* A number for each query: of documents' beginnings, or of their ends. */
static bool check_places(const Graph *graph, const Node *node, int at, const char *what,
                         Diag *diag) {
    const Type *q = value_type(node->inputs[0]), *places = value_type(node->inputs[at]);
    bool fits = places->dtype == DTYPE_I32 && places->rank == 2;
    for (int i = 0; fits && i < 2; i++) {
        fits = places->axes[i] == q->axes[i] && places->dims[i] == q->dims[i];
    }
    if (fits) return true;
    diag_error(diag, node->loc,
               "attention: where documents %s must be i32[%s=%" PRId64 ", %s=%" PRId64 "]", what,
               axis_name(graph, q->axes[0]), q->dims[0], axis_name(graph, q->axes[1]), q->dims[1]);
    diag_note(diag, node->inputs[at].node->loc, "made here");
    return false;
}

/* Of keys behind a position causal attention sees none; any other has to know where its document
 * ends. */
static bool check_documents(const Graph *graph, const Node *node, Diag *diag) {
    int at = attention_documents(node), ends = attention_document_ends(node);
    bool causal = node_int(node, ATTR_causal, 1) != 0;
    if (at < 0) return true;
    if (causal && ends >= 0) {
        diag_error(diag, node->loc,
                   "attention: where documents end is for attention that is not causal");
        diag_note(diag, node->inputs[ends].node->loc, "made here");
        return false;
    }
    if (!causal && ends < 0) {
        diag_error(diag, node->loc,
                   "attention: within documents, where it is not causal, it needs the result of "
                   "ops.document_ends, too");
        return false;
    }
    return check_places(graph, node, at, "begin", diag) &&
           (ends < 0 || check_places(graph, node, ends, "end", diag));
}

/* [kv_heads, group] of the queries, or without group. */
static bool check_sinks(Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[0]);
    int at = attention_sinks(node), least = node->op == OP_ATTENTION ? 3 : 6;
    int known = least + (attention_documents(node) >= 0) + (attention_document_ends(node) >= 0);
    if (node->n_inputs > known + (at >= 0)) {
        return fail_operand(node, least, diag,
                            "is neither where documents begin nor the heads' sinks");
    }
    if (at < 0) return true;
    Type want = {.dtype = DTYPE_F32, .rank = q->rank - 3};
    for (int i = 0; i < want.rank; i++) {
        want.axes[i] = q->axes[i + 2];
        want.dims[i] = q->dims[i + 2];
    }
    if (type_equal(value_type(node->inputs[at]), &want)) return true;
    return fail_operand(node, at, diag,
                        "must be sinks, an f32 number for each head of the queries");
}

static bool check_scores(const Graph *graph, Node *node, Diag *diag) {
    return check_window(node, diag) && attention_check_factors(node, diag) &&
           check_drop(node, diag) && check_documents(graph, node, diag) && check_sinks(node, diag);
}

static bool check_tokens(const Graph *graph, Node *node, Diag *diag) {
    const Type *tokens = value_type(node->inputs[0]);
    int axis = node_axis(node, ATTR_axis);
    const char *name = OPS[node->op].name;
    if (tokens->dtype != DTYPE_I32) return fail_operand(node, 0, diag, "must be i32 token numbers");
    if (tokens->rank < 1 || tokens->axes[tokens->rank - 1] != axis) {
        diag_error(diag, node->loc, "%s: axis '%s' must be the last axis of the operand", name,
                   axis_name(graph, axis));
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    return true;
}

static bool check_separators(const Graph *graph, Node *node, Diag *diag) {
    int64_t separator = node_int(node, ATTR_separator, 0), apart = node_int(node, ATTR_apart, 0);
    const char *name = OPS[node->op].name;
    if (!check_tokens(graph, node, diag)) return false;
    if (separator < 0 || separator > INT32_MAX) {
        diag_error(diag, node->loc, "%s: 'separator' is %" PRId64 "; it must be a token", name,
                   separator);
        return false;
    }
    if (apart == 0 || apart == 1) return true;
    diag_error(diag, node->loc, "%s: 'apart' is %" PRId64 "; it is 0 or 1", name, apart);
    return false;
}

/* tokens i32[rows..., axis] -> where documents begin, and places within them, both alike */
bool infer_documents(Graph *graph, Node *node, Diag *diag) {
    if (!check_separators(graph, node, diag)) return false;
    node->types[0] = node->types[1] = *value_type(node->inputs[0]);
    return true;
}

/* tokens i32[rows..., axis] -> the position after a document's last, alike */
bool infer_document_ends(Graph *graph, Node *node, Diag *diag) {
    if (!check_separators(graph, node, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

/* tokens i32[rows..., axis] -> a hash of each one and those before it, alike */
bool infer_ngram(Graph *graph, Node *node, Diag *diag) {
    const AttrKey keys[4] = {ATTR_by, ATTR_count, ATTR_separator, ATTR_seed};
    const int64_t least[4] = {1, 1, -1, 0};
    const int64_t most[4] = {NGRAM_MOST_TOKENS, INT32_MAX, INT32_MAX, INT32_MAX};
    if (!check_tokens(graph, node, diag)) return false;
    for (int i = 0; i < 4; i++) {
        int64_t value = node_int(node, keys[i], least[i]);
        if (value >= least[i] && value <= most[i]) continue;
        diag_error(diag, node->loc,
                   "ngram: '%s' is %" PRId64 "; it must be from %" PRId64 " to %" PRId64,
                   ATTRS[keys[i]].name, value, least[i], most[i]);
        return false;
    }
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

/* tokens i32[rows..., axis] -> the number of each among those that are the token, alike */
bool infer_occurrence(Graph *graph, Node *node, Diag *diag) {
    int64_t token = node_int(node, ATTR_token, -1);
    if (!check_tokens(graph, node, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    if (token >= 0 && token <= INT32_MAX) return true;
    diag_error(diag, node->loc, "occurrence: 'token' is %" PRId64 "; it must be a token", token);
    return false;
}

bool infer_attention(Graph *graph, Node *node, Diag *diag) {
    if (!check_attention(graph, node, diag) || !check_scores(graph, node, diag)) return false;
    node->types[0] = with_last(value_type(node->inputs[0]), value_type(node->inputs[2]));
    node->types[1] = node->types[2] = rows_of(&node->types[0]);
    int64_t largest = node_int(node, ATTR_largest, 0);
    node->n_outputs = 2 + (largest == 1);
    if (largest == 0 || largest == 1) return true;
    diag_error(diag, node->loc, "attention: 'largest' is %" PRId64 "; it is 0 or 1", largest);
    return false;
}

/* inputs: q, k, v, o, lse, do, optional beginnings and ends of documents -> dq, dk, dv */
bool infer_attention_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_attention(graph, node, diag) || !check_scores(graph, node, diag)) return false;
    const Type *q = value_type(node->inputs[0]);
    const Type out = with_last(q, value_type(node->inputs[2])), rows = rows_of(q);
    for (int i = 3; i < 6; i++) {
        if (!type_equal(value_type(node->inputs[i]), i == 4 ? &rows : &out)) {
            return fail_operand(node, i, diag, "has the wrong shape");
        }
    }
    for (int i = 0; i < 3; i++) node->types[i] = *value_type(node->inputs[i]);
    return true;
}

/* A sink's share of a row, p = exp(sink - lse), takes from all others: its score's gradient is
 * p (0 - sum of do o), as that of any key without a value. */
static Value grad_sinks(GradContext *ctx, const Node *node, Value dout, Value sinks) {
    Node *self = (Node *)node;
    Value out = node_value(self, 0), lse = node_value(self, 1);
    int value = attention_value_axis(node);
    Attr over[2] = {attr_axes(ATTR_over, &value, 1),
                    attr_string(ATTR_dtype, dtype_name(DTYPE_F32))};
    Value along = GRAD_NODE(ctx, OP_MUL, dout, out);
    Value taken = along.node ? grad_build(ctx, OP_REDUCE_SUM, &along, 1, over, 2) : NO_VALUE;
    Value share = GRAD_NODE(ctx, OP_EXP, GRAD_NODE(ctx, OP_SUB, sinks, lse));
    Value lost = GRAD_NODE(ctx, OP_MUL, share, taken);
    return GRAD_NODE(ctx, OP_NEG, grad_reduce_to(ctx, lost, value_type(sinks)));
}

void grad_attention(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Node *self = (Node *)node;
    const int documents[2] = {attention_documents(node), attention_document_ends(node)};
    Value inputs[8] = {node->inputs[0],     node->inputs[1],     node->inputs[2],
                       node_value(self, 0), node_value(self, 1), douts[0]};
    int n = 6;
    for (int i = 0; i < 2; i++) {
        if (documents[i] >= 0) inputs[n++] = node->inputs[documents[i]];
    }
    Attr attrs[N_ATTRS];
    int n_attrs = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key != ATTR_largest) attrs[n_attrs++] = node->attrs[i];
    }
    Value grad = grad_build(ctx, OP_ATTENTION_GRAD, inputs, n, attrs, n_attrs);
    for (int i = 0; i < 3; i++) dins[i] = node_value(grad.node, i);
    int sinks = attention_sinks(node);
    if (sinks >= 0) dins[sinks] = grad_sinks(ctx, node, douts[0], node->inputs[sinks]);
}

/* seq - n positions are n or more before another. Without a window, causal is half of all. */
double attention_mean_keys(bool causal, int64_t seq, int64_t window) {
    double n = (double)(window ? window : seq), all = (double)seq;
    double one_side = n - n * n / (2 * all);
    return causal ? one_side : 2 * one_side - (all - n) / all;
}

/* Scores and their product with v: 2 matrix products, of the pairs that are seen. Where c divides
 * the queries, each rank's see as many keys in the mean as all do. Documents' lengths are not
 * known: they count as one. */
static double count_pairs(const Node *node, const Type *q, const Type *k) {
    return (double)type_elements(q) / (double)q->dims[q->rank - 1] *
           attention_mean_keys(node_int(node, ATTR_causal, 1) != 0, k->dims[1],
                               node_int(node, ATTR_window, 0));
}

static double last_dim(const Type *type) {
    return (double)type->dims[type->rank - 1];
}

double flops_attention(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    return 2 * count_pairs(node, &inputs[0], &inputs[1]) *
           (last_dim(&inputs[0]) + last_dim(&inputs[2]));
}

/* Five products: scores again, dq and dk along head, dv and dp along the values'. */
double flops_attention_grad(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    return 2 * count_pairs(node, &inputs[0], &inputs[1]) *
           (3 * last_dim(&inputs[0]) + 2 * last_dim(&inputs[2]));
}
