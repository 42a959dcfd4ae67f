/* Rotary positions: inference, gradient, frequencies. */
#include "ir/ops/rotary.h"

#include "ir/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST = 1e9; /* of a factor, turns or a context: beyond all sense */

/* "1,1.05,2": how many, or -1: something else, or more than there is room for. */
static int read_factors(const char *text, double out[ROTARY_MOST_FACTORS]) {
    enum { MOST_TEXT = 26 * ROTARY_MOST_FACTORS }; /* 17 digits, point, exponent, comma each */
    int n = 0;
    if (strnlen(text, MOST_TEXT + 1) > MOST_TEXT) return -1;
    while (n < ROTARY_MOST_FACTORS) {
        char *end;
        if (text[0] < '0' || text[0] > '9') return -1; /* no blanks, signs, inf, nan */
        out[n] = strtod(text, &end);
        if (end == text || !(out[n] > 0 && out[n] <= MOST)) return -1;
        n++;
        if (*end == '\0') return n;
        if (*end != ',') return -1;
        text = end + 1;
    }
    return -1;
}

RotaryScaling rotary_scaling(const Node *node) {
    RotaryScaling scaling = {.factor = node_float(node, ATTR_factor, 1),
                             .few = node_float(node, ATTR_few, 0),
                             .many = node_float(node, ATTR_many, 0),
                             .context = node_float(node, ATTR_context, 0),
                             .ramp = node_int(node, ATTR_ramp, 0) != 0,
                             .scale = node_float(node, ATTR_scale, 1)};
    const Attr *factors = node_attr(node, ATTR_factors);
    if (factors) scaling.n_factors = read_factors(factors->s, scaling.factors);
    return scaling;
}

int64_t rotary_turned(const Node *node, int64_t head) {
    return node_int(node, ATTR_turned, head);
}

double rotary_stretch(const RotaryScaling *scaling, int64_t pair, double frequency) {
    if (scaling->n_factors) return frequency / scaling->factors[pair];
    const double divided = frequency / scaling->factor;
    const double turns = frequency * scaling->context / 6.283185307179586477;
    if (scaling->context == 0 || turns < scaling->few) return divided;
    if (turns > scaling->many) return frequency;
    double share = (turns - scaling->few) / (scaling->many - scaling->few);
    if (scaling->ramp) share = log(turns / scaling->few) / log(scaling->many / scaling->few);
    return (1 - share) * divided + share * frequency;
}

static bool check_factors(const Node *node, const RotaryScaling *s, int64_t turned, Diag *diag) {
    const int64_t pairs = turned / 2;
    if (!(s->scale > 0 && s->scale <= MOST)) {
        diag_error(diag, node->loc, "rotary: a scale of %g; it is more than 0, and at most 1e9",
                   s->scale);
        return false;
    }
    if (!node_attr(node, ATTR_factors)) return true;
    if (node_attr(node, ATTR_factor) || node_attr(node, ATTR_context) || s->ramp) {
        diag_error(diag, node->loc,
                   "rotary: factors of each pair take the place of factor, few, many and context");
        return false;
    }
    if (s->n_factors < 1) {
        diag_error(
            diag, node->loc,
            "rotary: factors are '%.60s'; they must be a text of 1 to %d numbers more than 0 "
            "with commas between, as \"1,1.05\"",
            node_attr(node, ATTR_factors)->s, ROTARY_MOST_FACTORS);
        return false;
    }
    if (s->n_factors != pairs) {
        diag_error(diag, node->loc,
                   "rotary: there are %d factors; %" PRId64 " numbers that turn are %" PRId64
                   " pairs",
                   s->n_factors, turned, pairs);
        return false;
    }
    return true;
}

static bool check_scaling(const Node *node, int64_t turned, Diag *diag) {
    const RotaryScaling s = rotary_scaling(node);
    if (!check_factors(node, &s, turned, diag)) return false;
    bool few = node_attr(node, ATTR_few), many = node_attr(node, ATTR_many);
    bool context = node_attr(node, ATTR_context);
    if (!(s.factor >= 1 && s.factor <= MOST)) {
        diag_error(diag, node->loc, "rotary: a factor of %g; it is from 1 to 1e9", s.factor);
        return false;
    }
    if (few != many || few != context) {
        diag_error(diag, node->loc, "rotary: few, many and context go together");
        return false;
    }
    if (few &&
        !(s.few >= 0 && s.few < s.many && s.many <= MOST && s.context >= 1 && s.context <= MOST)) {
        diag_error(diag, node->loc,
                   "rotary: few must be at least 0 and less than many, and context at least 1");
        return false;
    }
    if (s.ramp && !(few && s.few > 0)) {
        diag_error(diag, node->loc, "rotary: a ramp is between few, more than 0, and many");
        return false;
    }
    return true;
}

bool infer_rotary(Graph *graph, Node *node, Diag *diag) {
    const Type *x = value_type(node->inputs[0]);
    int seq_axis = node_axis(node, ATTR_seq), head_axis = node_axis(node, ATTR_head);
    const char *seq_name = seq_axis >= 0 ? graph->axes.names[seq_axis] : "?";
    const char *head_name = head_axis >= 0 ? graph->axes.names[head_axis] : "?";
    int seq = type_find_axis(x, seq_axis);
    int64_t direction = node_int(node, ATTR_direction, 1);
    if (!dtype_is_float(x->dtype)) {
        diag_error(diag, node->loc, "rotary: operand 1 must be f32, bf16 or f16");
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (seq < 0 || x->rank < 2 || x->axes[x->rank - 1] != head_axis || seq == x->rank - 1) {
        diag_error(diag, node->loc, "rotary: the operand needs axis '%s' and, last, axis '%s'",
                   seq_name, head_name);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (x->dims[x->rank - 1] % 2 != 0 && !node_attr(node, ATTR_turned)) {
        diag_error(diag, node->loc, "rotary: axis '%s' is %" PRId64 "; it must be even", head_name,
                   x->dims[x->rank - 1]);
        return false;
    }
    const int64_t head = x->dims[x->rank - 1], turned = rotary_turned(node, head);
    if (turned < 2 || turned > head || turned % 2 != 0) {
        diag_error(diag, node->loc,
                   "rotary: %" PRId64 " of the %" PRId64 " numbers along axis '%s' are to turn; it "
                   "must be an even number of them",
                   turned, head, head_name);
        return false;
    }
    if ((direction != 1 && direction != -1) || !(node_float(node, ATTR_base, 0) > 0)) {
        diag_error(diag, node->loc, "rotary: direction must be 1 or -1 and base positive");
        return false;
    }
    if (!check_scaling(node, turned, diag)) return false;
    const Type *places = node->n_inputs > 1 ? value_type(node->inputs[1]) : NULL;
    bool fits = !places || (places->dtype == DTYPE_I32 && places->rank == 2 && seq == 1);
    for (int i = 0; places && fits && i < 2; i++) {
        fits = places->axes[i] == x->axes[i] && places->dims[i] == x->dims[i];
    }
    if (!fits) {
        diag_error(diag, node->loc, "rotary: places must be i32[batch, %s], as x is", seq_name);
        diag_note(diag, node->inputs[1].node->loc, "made here");
        return false;
    }
    node->types[0] = *x;
    return true;
}

void grad_rotary(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    enum { MOST_ATTRS = 12 }; /* its row of the op table has them all */
    Attr attrs[MOST_ATTRS];
    if (node->n_attrs > MOST_ATTRS) BUG("rotary has %d attributes", node->n_attrs);
    for (int i = 0; i < node->n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (attrs[i].key == ATTR_direction) attrs[i].i = -attrs[i].i;
    }
    Value inputs[2] = {douts[0], node->n_inputs > 1 ? node->inputs[1] : NO_VALUE};
    dins[0] = grad_build(ctx, OP_ROTARY, inputs, node->n_inputs, attrs, node->n_attrs);
}
