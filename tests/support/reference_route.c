/* Routing to experts in float64: the definitions of ir/ops/route.c, one number at a time. */
#include "tests/support/reference_eval.h"

#include <math.h>

static int last_axis(const Type *type) {
    return type->axes[type->rank - 1];
}

/* Is score i chosen before score k? */
static bool is_before(double a, int64_t i, double b, int64_t k) {
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? i < k : isnan(b);
    return a != b ? a > b : i < k;
}

/* The greatest number of a group, or the sum of its two greatest; the row's other axes as in p. */
static double group_score(const RefCall *call, Point p, int64_t group) {
    const Type *scores = ref_type(call, 0);
    int axis = last_axis(scores);
    int64_t n = scores->dims[scores->rank - 1] / node_int(call->node, ATTR_groups, 1);
    double most = -INFINITY, pair = -INFINITY;
    for (int64_t i = group * n; i < (group + 1) * n; i++) {
        p.at[axis] = i;
        double one = ref_read(call, 0, &p);
        most = fmax(most, one);
        for (int64_t k = group * n; k < i; k++) {
            p.at[axis] = k;
            pair = fmax(pair, one + ref_read(call, 0, &p));
        }
    }
    return node_int(call->node, ATTR_best, 1) == 2 ? pair : most;
}

enum { MOST_GROUPS = 64 };

/* Which groups of p's row may be chosen from: those with few enough greater ones. */
static void find_kept_groups(const RefCall *call, const Point *p, bool *out_kept) {
    int64_t groups = node_int(call->node, ATTR_groups, 1);
    double scores[MOST_GROUPS];
    if (groups > MOST_GROUPS) BUG("%d groups", (int)groups);
    for (int64_t g = 0; g < groups; g++) scores[g] = group_score(call, *p, g);
    for (int64_t own = 0; own < groups; own++) {
        int64_t greater = 0;
        for (int64_t g = 0; g < groups; g++) greater += is_before(scores[g], g, scores[own], own);
        out_kept[own] = groups == 1 || greater < node_int(call->node, ATTR_kept, 1);
    }
}

/* Each score's place among its row's is the number of those before it. */
void reference_top(const RefCall *call) {
    const Type *scores = ref_type(call, 0), *type = &call->node->types[0];
    int axis = last_axis(scores), to = last_axis(type);
    int64_t n = scores->dims[scores->rank - 1], of_group = n / node_int(call->node, ATTR_groups, 1);
    bool kept[MOST_GROUPS];
    Point p = {{0}};
    do {
        int64_t before = 0;
        double score = ref_read(call, 0, &p);
        if (p.at[axis] == 0) find_kept_groups(call, &p, kept);
        if (!kept[p.at[axis] / of_group]) continue;
        for (int64_t k = 0; k < n; k++) {
            Point other = p;
            other.at[axis] = k;
            before +=
                kept[k / of_group] && is_before(ref_read(call, 0, &other), k, score, p.at[axis]);
        }
        Point place = p;
        place.at[to] = before;
        if (before >= type->dims[type->rank - 1]) continue;
        call->out[0][point_offset(&place, type)] = (double)p.at[axis];
    } while (point_next(&p, scores));
}

void reference_take(const RefCall *call) {
    const Type *x = ref_type(call, 0), *type = &call->node->types[0];
    Point p = {{0}};
    do {
        Point from = p;
        double index = ref_read(call, 1, &p);
        bool within = index >= 0 && index < (double)x->dims[x->rank - 1];
        from.at[last_axis(x)] = (int64_t)index;
        call->out[0][point_offset(&p, type)] = within ? ref_read(call, 0, &from) : 0;
    } while (point_next(&p, type));
}

void reference_put(const RefCall *call) {
    const Type *y = ref_type(call, 0), *type = &call->node->types[0];
    Point p = {{0}};
    do {
        Point choice = p;
        double sum = 0;
        for (int64_t k = 0; k < y->dims[y->rank - 1]; k++) {
            choice.at[last_axis(y)] = k;
            if (ref_read(call, 1, &choice) == (double)p.at[last_axis(type)]) {
                sum += ref_read(call, 0, &choice);
            }
        }
        call->out[0][point_offset(&p, type)] = sum;
    } while (point_next(&p, type));
}

/* How many of the sequence's choices before this one fell on the same expert? */
static int64_t place_of(const RefCall *call, const Point *p, double expert) {
    const Type *chosen = ref_type(call, 0);
    Point other = *p;
    int64_t place = 0;
    for (int64_t i = 0; i < p->at[chosen->axes[1]] * chosen->dims[2] + p->at[chosen->axes[2]];
         i++) {
        other.at[chosen->axes[1]] = i / chosen->dims[2];
        other.at[chosen->axes[2]] = i % chosen->dims[2];
        place += ref_read(call, 0, &other) == expert;
    }
    return place;
}

void reference_route(const RefCall *call) {
    const Type *chosen = ref_type(call, 0), *types = call->node->types;
    const Type *tokens = &types[1], *counts = &types[2];
    for (int64_t i = 0; i < type_elements(tokens); i++) call->out[1][i] = -1;
    for (int64_t i = 0; i < type_elements(counts); i++) call->out[2][i] = 0;
    Point p = {{0}};
    do {
        double expert = ref_read(call, 0, &p);
        bool within = expert >= 0 && expert < (double)tokens->dims[0];
        int64_t place = place_of(call, &p, expert);
        bool kept = within && place < tokens->dims[2];
        call->out[0][point_offset(&p, chosen)] =
            kept ? expert * (double)tokens->dims[2] + (double)place : -1;
        Point to = p;
        to.at[tokens->axes[0]] = to.at[counts->axes[1]] = (int64_t)expert;
        to.at[tokens->axes[2]] = place;
        if (within) call->out[2][point_offset(&to, counts)] += 1;
        if (!kept) continue;
        call->out[1][point_offset(&to, tokens)] =
            (double)(p.at[chosen->axes[1]] * chosen->dims[2] + p.at[chosen->axes[2]]);
    } while (point_next(&p, chosen));
}

/* The slot of a choice, as a point of [experts, batch, slot]; false: it has none. */
static bool find_slot(const RefCall *call, const Point *choice, Point *out) {
    const Type *tokens = ref_type(call, 2);
    double slot = ref_read(call, 1, choice);
    *out = *choice;
    if (slot < 0 || slot >= (double)(tokens->dims[0] * tokens->dims[2])) return false;
    out->at[tokens->axes[0]] = (int64_t)slot / tokens->dims[2];
    out->at[tokens->axes[2]] = (int64_t)slot % tokens->dims[2];
    return true;
}

/* By slots alone: what tokens say must be the same. */
void reference_dispatch(const RefCall *call) {
    const Type *x = ref_type(call, 0), *slots = ref_type(call, 1), *type = &call->node->types[0];
    for (int64_t i = 0; i < type_elements(type); i++) call->out[0][i] = 0;
    Point p = {{0}}, slot;
    do {
        double gate = call->node->n_inputs > 3 ? ref_read(call, 3, &p) : 1;
        if (!find_slot(call, &p, &slot)) continue;
        for (int64_t m = 0; m < x->dims[2]; m++) {
            slot.at[x->axes[2]] = m;
            call->out[0][point_offset(&slot, type)] = gate * ref_read(call, 0, &slot);
        }
    } while (point_next(&p, slots));
}

void reference_combine(const RefCall *call) {
    const Type *slots = ref_type(call, 1), *type = &call->node->types[0];
    Point p = {{0}}, slot;
    do {
        double sum = 0;
        for (int64_t k = 0; k < slots->dims[2]; k++) {
            Point choice = p;
            choice.at[slots->axes[2]] = k;
            double gate = call->node->n_inputs > 3 ? ref_read(call, 3, &choice) : 1;
            if (find_slot(call, &choice, &slot)) sum += gate * ref_read(call, 0, &slot);
        }
        call->out[0][point_offset(&p, type)] = sum;
    } while (point_next(&p, type));
}

void reference_slot_dot(const RefCall *call) {
    const Type *y = ref_type(call, 3), *slots = ref_type(call, 1);
    Point p = {{0}}, slot;
    do {
        double sum = 0;
        bool has_slot = find_slot(call, &p, &slot);
        for (int64_t m = 0; has_slot && m < y->dims[2]; m++) {
            slot.at[y->axes[2]] = m;
            sum += ref_read(call, 0, &slot) * ref_read(call, 3, &slot);
        }
        call->out[0][point_offset(&p, slots)] = sum;
    } while (point_next(&p, slots));
}
