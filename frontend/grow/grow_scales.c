#include "frontend/grow/grow_scales.h"

#include "ir/op.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double NEAR = 1e-9; /* logarithms of the same product, taken apart */

/* --- linear equations, few terms each --- */

Form form_sum(Scales *scales, const Form *a, const Form *b, double share) {
    Form sum = *a;
    sum.constant += share * b->constant;
    sum.shift += share * b->shift;
    sum.is_part |= b->is_part;
    for (int i = 0; i < b->n; i++) {
        int k = 0;
        while (k < sum.n && sum.terms[k].param != b->terms[i].param) k++;
        if (k == FORM_TERMS) {
            scales->too_long = true;
            return sum;
        }
        if (k == sum.n) {
            sum.terms[sum.n].param = b->terms[i].param;
            sum.terms[sum.n++].share = 0;
        }
        sum.terms[k].share += share * b->terms[i].share;
        if (fabs(sum.terms[k].share) < NEAR) sum.terms[k] = sum.terms[--sum.n];
    }
    return sum;
}

static Form reduce(Scales *scales, Form form) {
    for (int i = 0; i < form.n && !scales->too_long;) {
        const int param = form.terms[i].param;
        if (!scales->is_solved[param]) {
            i++;
            continue;
        }
        const double share = form.terms[i].share;
        form.terms[i] = form.terms[--form.n];
        form = form_sum(scales, &form, &scales->solved[param], share);
        i = 0;
    }
    return form;
}

bool scales_require(Scales *scales, const Form *form) {
    Form rest = reduce(scales, *form);
    if (scales->too_long) return false;
    if (rest.n == 0) return fabs(rest.constant) < NEAR;
    int last = 0; /* the parameter that comes last makes up for the others */
    for (int i = 1; i < rest.n; i++) {
        if (rest.terms[i].param > rest.terms[last].param) last = i;
    }
    const int param = rest.terms[last].param;
    const double share = rest.terms[last].share;
    rest.terms[last] = rest.terms[--rest.n];
    const Form nothing = {0};
    scales->solved[param] = form_sum(scales, &nothing, &rest, -1 / share);
    scales->is_solved[param] = true;
    return true;
}

double scales_value(Scales *scales, const Form *form) {
    return reduce(scales, *form).constant;
}

/* --- what ops say --- */

typedef struct Rules {
    Growing *g;
    Scales scales;
    Form *forms;   /* [n_nodes MAX_OUTPUTS] */
    int *param_of; /* [n_nodes] */
    Form *wishes;  /* results of products with weights, which should be as they were */
    int n_wishes;
    bool failed;
} Rules;

static Form *form_of(Rules *r, Value value) {
    return &r->forms[value.node->id * MAX_OUTPUTS + value.output];
}

static void fail(Rules *r, const Node *node, const char *why) {
    if (!r->failed) {
        diag_error(r->g->diag, node->loc, "%s: %s", OPS[node->op].name, why);
    }
    r->failed = true;
}

static void require(Rules *r, const Node *node, Form form) {
    if (r->failed) return;
    if (form.is_part) {
        fail(r, node, "is not proportional to what it reads, of which an expert has a slice");
    } else if (fabs(form.shift) > NEAR) {
        fail(r, node, "reads the logarithm of a sum over an axis that grows");
    } else if (!scales_require(&r->scales, &form)) {
        fail(r, node,
             r->scales.too_long
                 ? "reads a product of too many parameters to tell what they are to be times"
                 : "with these sizes no factors of the parameters keep what it reads as it was: a "
                   "width that grows is read by what is not proportional to it");
    }
}

static void require_equal(Rules *r, const Node *node, const Form *a, const Form *b) {
    Form difference = form_sum(&r->scales, a, b, -1);
    difference.is_part = false; /* means of sums are sums of means */
    require(r, node, difference);
}

/* A product of which one operand at most is a slice's. */
static Form product(Rules *r, const Node *node, const Form *a, const Form *b) {
    if (a->is_part && b->is_part) fail(r, node, "multiplies two results of an expert's slice");
    return form_sum(&r->scales, a, b, 1);
}

static Form power(Rules *r, const Node *node, const Form *a, double exponent) {
    const Form nothing = {0};
    if (a->is_part) fail(r, node, "is not proportional to what it reads, a slice's result");
    return form_sum(&r->scales, &nothing, a, exponent);
}

static int small_axis(const Rules *r, int axis) {
    return r->g->axis_from[axis];
}

/* How many times an axis of a value of the large graph is as long as the small one's; 0: that has
 * no such axis. */
static double times_of(const Rules *r, Value value, int axis) {
    const Value pair = growing_pair(r->g, value);
    const Type *type = value_type(value), *from = pair.node ? value_type(pair) : type;
    const int at = type_find_axis(type, axis);
    const int other = pair.node ? type_find_axis(from, small_axis(r, axis)) : at;
    return at < 0 || other < 0 ? 0 : (double)type->dims[at] / (double)from->dims[other];
}

static double log_times(Rules *r, const Node *node, Value value, int axis) {
    const double times = times_of(r, value, axis);
    if (times > 0 && (times == 1 || axis != AXIS_VOCAB)) return log2(times);
    fail(r, node, "sums over an axis that the small model has not, or over tokens");
    return 0;
}

static double log_times_over(Rules *r, const Node *node) {
    const Attr *over = node_attr(node, ATTR_over);
    double sum = 0;
    for (int i = 0; over && i < over->axes.count; i++) {
        sum += log_times(r, node, node->inputs[0], over->axes.items[i]);
    }
    return sum;
}

/* Fewer elements than the small model sums are a slice. */
static void sum_over(Rules *r, const Node *node, Form *out) {
    const Attr *over = node_attr(node, ATTR_over);
    out->constant += log_times_over(r, node);
    for (int i = 0; over && i < over->axes.count; i++) {
        out->is_part |= times_of(r, node->inputs[0], over->axes.items[i]) < 1;
    }
}

static bool is_grown(const Rules *r, Value value) {
    const Type *type = value_type(value);
    for (int i = 0; i < type->rank; i++) {
        if (times_of(r, value, type->axes[i]) != 1) return true;
    }
    return false;
}

static double log_ratio(Rules *r, const Node *node, AttrKey key) {
    const Value pair = growing_pair(r->g, (Value){(Node *)node, 0});
    const double into = node_float(node, key, 1), from = node_float(pair.node, key, 1);
    if (into == from) return 0;
    if (into / from > 0 && isfinite(into / from)) return log2(into / from);
    fail(r, node, "a factor or constant is of another sign than the small model's");
    return 0;
}

static void need_same(Rules *r, const Node *node, int axis, const char *why) {
    if (times_of(r, node->inputs[0], axis) != 1) fail(r, node, why);
}

static bool is_weight(Value value) {
    while (op_is_cast(value.node->op)) value = value.node->inputs[0];
    return value.node->op == OP_PARAM;
}

static void rule_matmul(Rules *r, const Node *node, Form *out) {
    *out = product(r, node, form_of(r, node->inputs[0]), form_of(r, node->inputs[1]));
    sum_over(r, node, out);
    if (node->n_inputs > 2) fail(r, node, "adds to what is there, which no model's script says");
    if (is_weight(node->inputs[1])) r->wishes[r->n_wishes++] = *out;
}

static void rule_attention(Rules *r, const Node *node, Form *out) {
    Form scores = form_sum(&r->scales, form_of(r, node->inputs[0]), form_of(r, node->inputs[1]), 1);
    scores.constant += log_times(r, node, node->inputs[0], node_axis(node, ATTR_head));
    scores.constant += log_ratio(r, node, ATTR_scale);
    require(r, node, scores);
    for (int k = 3; k < node->n_inputs; k++) require(r, node, *form_of(r, node->inputs[k]));
    out[0] = *form_of(r, node->inputs[2]); /* means of values: proportional to them */
}

static void rule_combine(Rules *r, const Node *node, Form *out) {
    *out = form_sum(&r->scales, form_of(r, node->inputs[0]), form_of(r, node->inputs[3]), 1);
    const Value chosen = node->inputs[3];
    const Type *type = value_type(chosen);
    out->constant += log_times(r, node, chosen, type->axes[type->rank - 1]);
}

/* Logarithms of a softmax's denominator over copies are more by a number; the exponential of that
 * is a factor. */
static void rule_exp(Rules *r, const Node *node, Form *out) {
    Form form = *form_of(r, node->inputs[0]);
    const double shift = form.shift;
    form.shift = 0;
    require(r, node, form);
    out->constant = shift;
}

static void rule_logsumexp(Rules *r, const Node *node, Form *out) {
    require(r, node, *form_of(r, node->inputs[0]));
    out->shift = log_times(r, node, node->inputs[0], node_axis(node, ATTR_axis));
}

static void rule_sum(Rules *r, const Node *node, Form *out, double sign) {
    *out = *form_of(r, node->inputs[0]);
    const double shift = out->shift;
    for (int k = 1; k < node->n_inputs; k++) {
        Form other = *form_of(r, node->inputs[k]), own = *out;
        own.shift = 0;
        const double others = other.shift;
        other.shift = 0;
        require_equal(r, node, &own, &other);
        if (others != 0) out->shift = shift + sign * others;
        out->is_part |= other.is_part;
    }
    if (out->shift != 0) {
        Form plain = *out;
        plain.shift = 0;
        require(r, node, plain);
    }
}

/* Parts of axes: those named keep their sizes, the others may grow. */
static void rule_parts(Rules *r, const Node *node, Form *out) {
    for (int i = 0; i < node->n_attrs; i++) {
        const Attr *attr = &node->attrs[i];
        if (attr->key == ATTR_axis) need_same(r, node, attr->axis, "takes parts of what grows");
        for (int k = 0; attr->key == ATTR_over && k < attr->axes.count; k++) {
            need_same(r, node, attr->axes.items[k], "takes parts of what grows");
        }
    }
    *out = *form_of(r, node->inputs[0]);
}

static void rule_other(Rules *r, const Node *node) {
    const bool by_element = (OPS[node->op].flags & ELEMENTWISE_BIT) != 0;
    for (int k = 0; k < node->n_inputs; k++) {
        const Value value = node->inputs[k];
        if (!by_element && is_grown(r, value)) {
            fail(r, node, "grow has no rule for what this does along an axis that grows");
        }
        require(r, node, *form_of(r, value));
    }
}

static void rule_embedding(Rules *r, const Node *node, Form *out) {
    const int table = value_type(node->inputs[0])->dtype == DTYPE_I32 ? 1 : 0;
    const int axis = node_axis(node, ATTR_axis);
    if (axis != AXIS_VOCAB && times_of(r, node->inputs[table], axis) != 1) {
        fail(r, node, "looks rows up in a table with more of them, which have no meaning yet");
    }
    *out = *form_of(r, node->inputs[table]);
}

static void rule_same(Rules *r, const Node *node, Form *out) {
    const Form *first = node->n_inputs > 0 ? form_of(r, node->inputs[0]) : out;
    switch ((int)node->op) {
    case OP_INPUT:
    case OP_ROUTE:
    case OP_TOP: break; /* any factor leaves the order as it is */
    case OP_PARAM:
        out->n = 1;
        out->terms[0].param = r->param_of[node->id];
        out->terms[0].share = 1;
        break;
    case OP_CONST: out->constant = log_ratio(r, node, ATTR_value); break;
    case OP_SCALE:
        *out = *first;
        out->constant += log_ratio(r, node, ATTR_value);
        break;
    case OP_NEG:
    case OP_COPY:
    case OP_DROPOUT:
    case OP_STOP_GRADIENT:
    case OP_TO_BF16:
    case OP_TO_F16:
    case OP_TO_F32:
    case OP_RENAME:
    case OP_TRANSPOSE:
    case OP_BROADCAST:
    case OP_TAKE:
    case OP_DISPATCH: *out = *first; break;
    case OP_RELU:
    case OP_ABS: *out = power(r, node, first, 1); break;
    case OP_SQUARE: *out = power(r, node, first, 2); break;
    case OP_SQRT: *out = power(r, node, first, 0.5); break;
    case OP_RSQRT: *out = power(r, node, first, -0.5); break;
    case OP_RECIPROCAL: *out = power(r, node, first, -1); break;
    case OP_ADD:
    case OP_ADD_N: rule_sum(r, node, out, 1); break;
    case OP_SUB: rule_sum(r, node, out, -1); break;
    case OP_MUL: *out = product(r, node, first, form_of(r, node->inputs[1])); break;
    case OP_DIV: {
        const Form below = power(r, node, form_of(r, node->inputs[1]), -1);
        *out = product(r, node, first, &below);
        break;
    }
    case OP_EXP: rule_exp(r, node, out); break;
    case OP_LOGSUMEXP: rule_logsumexp(r, node, out); break;
    case OP_MATMUL: rule_matmul(r, node, out); break;
    case OP_REDUCE_SUM:
        *out = *first;
        sum_over(r, node, out);
        break;
    case OP_LAYERNORM:
        require_equal(r, node, form_of(r, node->inputs[1]), form_of(r, node->inputs[2]));
        __attribute__((fallthrough));
    case OP_RMSNORM:
        require(r, node, *first);
        *out = *form_of(r, node->inputs[1]);
        break;
    case OP_EMBEDDING: rule_embedding(r, node, out); break;
    case OP_ROTARY:
        need_same(r, node, node_axis(node, ATTR_head),
                  "turns the numbers of a head at speeds that depend on how many they are: 'head' "
                  "cannot grow");
        *out = *first;
        break;
    case OP_ATTENTION: rule_attention(r, node, out); break;
    case OP_COMBINE: rule_combine(r, node, out); break;
    case OP_NARROW:
    case OP_SHIFT:
    case OP_REGROUP: rule_parts(r, node, out); break;
    default: rule_other(r, node); break;
    }
}

/* --- mixtures in place of one layer --- */

static Value behind(Value value) {
    while (op_is_cast(value.node->op)) value = value.node->inputs[0];
    return value;
}

static bool is_const(Value value) {
    return value.node->op == OP_CONST;
}

/* What the denominator of gates sums: adding or at least something tiny is passed over. */
static Value summed(Value value) {
    for (;;) {
        const Node *node = value.node;
        if (node->op == OP_OFFSET && fabs(node_float(node, ATTR_value, 1)) <= 1e-12) {
            value = node->inputs[0];
        } else if (node->op == OP_MAXIMUM && is_const(node->inputs[1])) {
            value = node->inputs[0];
        } else if (op_is_cast(node->op)) {
            value = node->inputs[0];
        } else {
            return node->op == OP_REDUCE_SUM ? behind(node->inputs[0]) : NO_VALUE;
        }
    }
}

/* The sum of a token's gates, as far as it is a constant. */
static double sum_gates(Rules *r, Value gates) {
    double factor = 1;
    gates = behind(gates);
    while (gates.node->op == OP_SCALE) {
        factor *= node_float(gates.node, ATTR_value, 1);
        gates = behind(gates.node->inputs[0]);
    }
    const Node *node = gates.node;
    if (node->op == OP_DIV && summed(node->inputs[1]).node &&
        value_equal(behind(node->inputs[0]), summed(node->inputs[1]))) {
        return factor;
    }
    double share = 1;
    bool constant = false;
    if (node->op == OP_TAKE) {
        const Type *chosen = value_type(gates), *all = value_type(node->inputs[0]);
        const bool softmax = behind(node->inputs[0]).node->op == OP_EXP;
        const int64_t top = chosen->dims[chosen->rank - 1], experts = all->dims[all->rank - 1];
        share = softmax ? (double)top / (double)experts : (double)top / 2;
        constant = softmax && top == experts;
    }
    if (!constant) {
        growing_because(r->g, "gates of experts that do not sum to a constant: experts are made up "
                              "for what they sum to where the router tells none apart");
    }
    return factor * share;
}

static void rule_mix(Rules *r, const Node *node, Form *out) {
    *out = *form_of(r, node->inputs[0]);
    out->is_part = false; /* all slices of a layer meet in the sum */
    const double gates = sum_gates(r, node->inputs[3]);
    if (gates > 0) {
        out->constant += log2(gates);
    } else {
        fail(r, node, "its gates are times 0 or less");
    }
}

static void rule_share(Rules *r, const Node *node, Form *out) {
    const Form *a = form_of(r, node->inputs[0]);
    require_equal(r, node, a, form_of(r, node->inputs[1]));
    *out = *a;
    out->constant += 1;
}

/* --- axes --- */

static bool same_axes(const Rules *r, const Attr *large, const Attr *small) {
    if (ATTRS[large->key].kind == ATTR_AXIS) return small_axis(r, large->axis) == small->axis;
    bool same = large->axes.count == small->axes.count;
    for (int i = 0; same && i < large->axes.count; i++) {
        same = small_axis(r, large->axes.items[i]) == small->axes.items[i];
    }
    return same;
}

/* Do the two nodes work along the same axes of the same values? Between an expert's rows and one
 * layer's there are two axes more, and names of results are others then. */
static bool check_axes(Rules *r, const Node *node) {
    const Value value = {(Node *)node, 0}, pair = growing_pair(r->g, value);
    if (!pair.node || node->n_outputs == 0) return true;
    const Type *large = value_type(value), *small = value_type(pair);
    bool same = true;
    for (int i = 0; large->rank == small->rank && i < large->rank; i++) {
        same &= small_axis(r, large->axes[i]) == small->axes[i];
    }
    for (int i = 0; r->g->kinds[node->id] == PAIR_SAME && i < node->n_attrs; i++) {
        const Attr *attr = &node->attrs[i], *other = node_attr(pair.node, attr->key);
        const bool is_axis =
            ATTRS[attr->key].kind == ATTR_AXIS || ATTRS[attr->key].kind == ATTR_AXES;
        if (!is_axis || (attr->key == ATTR_to && large->rank != small->rank)) continue;
        same &= other && same_axes(r, attr, other);
    }
    if (!same) fail(r, node, "works along other axes than in the small model");
    return same;
}

static void apply(Rules *r, const Node *node) {
    if (!check_axes(r, node)) return;
    Form *out = &r->forms[node->id * MAX_OUTPUTS];
    switch (r->g->kinds[node->id]) {
    case PAIR_NONE: break;
    case PAIR_PASS: *out = *form_of(r, node->inputs[r->g->operands[node->id]]); break;
    case PAIR_MIX: rule_mix(r, node, out); break;
    case PAIR_SHARE: rule_share(r, node, out); break;
    case PAIR_SAME:
        if (node->op == OP_OUTPUT) {
            require(r, node, *form_of(r, node->inputs[0]));
        } else {
            rule_same(r, node, out);
        }
        break;
    }
}

bool grow_find_scales(Growing *g, double *out_scales) {
    const int n = g->large->n_nodes;
    int n_params = 0;
    Rules r = {.g = g,
               .forms = ARENA_ARRAY(g->arena, Form, (size_t)n * MAX_OUTPUTS),
               .param_of = ARENA_ARRAY(g->arena, int, n + 1),
               .wishes = ARENA_ARRAY(g->arena, Form, n + 1)};
    memset(r.forms, 0, sizeof(Form) * (size_t)n * MAX_OUTPUTS);
    for (int i = 0; i < n; i++) {
        if (g->large->nodes[i]->op == OP_PARAM) r.param_of[i] = n_params++;
    }
    r.scales.solved = ARENA_ARRAY(g->arena, Form, n_params + 1);
    r.scales.is_solved = ARENA_ARRAY(g->arena, bool, n_params + 1);
    memset(r.scales.is_solved, 0, sizeof(bool) * (size_t)(n_params + 1));
    for (int i = 0; i < n && !r.failed; i++) apply(&r, g->large->nodes[i]);
    /* Where there is a choice, products are as they were, and then parameters are. */
    for (int i = 0; i < r.n_wishes && !r.failed; i++) scales_require(&r.scales, &r.wishes[i]);
    for (int i = 0; i < n && !r.failed; i++) {
        out_scales[i] = 1;
        if (g->large->nodes[i]->op != OP_PARAM) continue;
        Form own = {.n = 1, .terms = {{.param = r.param_of[i], .share = 1}}};
        if (!r.scales.is_solved[r.param_of[i]]) scales_require(&r.scales, &own);
        out_scales[i] = exp2(scales_value(&r.scales, &own));
    }
    return !r.failed;
}
