/* Quantised numbers, element by element: a block is what has one scale. */
#include "ir/ops/round_blocks.h"
#include "tests/support/reference_eval.h"

#include <math.h>

/* The element's scale, by its place among them. */
static int64_t block_of(const Point *point, const Type *values, const Type *scales) {
    Point at = *point;
    for (int i = 0; i < values->rank; i++) {
        int of = type_find_axis(scales, values->axes[i]);
        at.at[values->axes[i]] /= values->dims[i] / scales->dims[of];
    }
    return point_offset(&at, scales);
}

/* The least power of two of which `most` is at most 448 times, 448 being e4m3's largest. */
static double scale_of(double most) {
    int exponent;
    double part = frexp(most, &exponent); /* 448 = 0.875 2^9 */
    if (most == 0) return 0;
    exponent -= part > 0.875 ? 8 : 9;
    return ldexp(1, exponent < -117 ? -117 : exponent);
}

/* To 4 significant bits, and at least steps of 2^-9; ties to even. */
static double rounded_fp8(double x) {
    int last = reference_exponent(x) - 4 < -9 ? -9 : reference_exponent(x) - 4;
    return isfinite(x) ? reference_round_to(x, last) : NAN;
}

/* The element of a block that stands for it: that with the least numbers along its axes. Tiles are
 * one block, also where each number along `beside` has a scale. */
static Point first_of_block(const Node *node, const Point *point, const Type *values,
                            const Type *scales) {
    Point first = *point;
    for (int i = 0; i < values->rank; i++) {
        int axis = values->axes[i], at = type_find_axis(scales, axis);
        first.at[axis] -= point->at[axis] % (values->dims[i] / scales->dims[at]);
    }
    int64_t left = 128;
    for (int i = values->rank - 1; i >= 0 && node_int(node, ATTR_each, 0); i--) {
        int64_t taken = values->dims[i] < left ? values->dims[i] : left;
        if (!node_over(node, ATTR_beside, values->axes[i])) continue;
        first.at[values->axes[i]] -= point->at[values->axes[i]] % taken;
        left /= taken;
    }
    return first;
}

void reference_quantize(const RefCall *call) {
    const Type *values = &call->node->types[0], *scales = &call->node->types[1];
    int64_t n = type_elements(values);
    double *most = ARENA_ARRAY(call->ref->arena, double, n);
    Point point = {{0}};
    do {
        Point first = first_of_block(call->node, &point, values, scales);
        double *of_block = &most[point_offset(&first, values)];
        double x = fabs(ref_read(call, 0, &point));
        if (isfinite(x)) *of_block = fmax(*of_block, x);
    } while (point_next(&point, values));
    point = (Point){{0}};
    do {
        Point first = first_of_block(call->node, &point, values, scales);
        double scale = scale_of(most[point_offset(&first, values)]), x = ref_read(call, 0, &point);
        call->out[1][block_of(&point, values, scales)] = scale;
        call->out[0][point_offset(&point, values)] =
            isfinite(x) && scale == 0 ? 0 : rounded_fp8(x / scale);
    } while (point_next(&point, values));
}

void reference_widened(const RefCall *call, int values, int scales, double *out) {
    const Type *type = ref_type(call, values);
    Point point = {{0}};
    do {
        int64_t at = point_offset(&point, type);
        out[at] =
            call->in[values][at] * call->in[scales][block_of(&point, type, ref_type(call, scales))];
    } while (point_next(&point, type));
}

void reference_dequantize(const RefCall *call) {
    reference_widened(call, 0, 1, call->out[0]);
}

/* Table 4 of arXiv 2305.14314's appendix E, by hand: the nearest of them. */
static double nearest_nf4(double x) {
    static const double NUMBERS[] = {
        -1,         -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.0910500, 0,
        0.07958030, 0.16093020,  0.24611230,  0.33791524,  0.44070983,  0.56261700,  0.72295684, 1};
    double best = NUMBERS[0];
    for (int i = 1; i < 16; i++) {
        if (fabs(x - NUMBERS[i]) < fabs(x - best)) best = NUMBERS[i];
    }
    return best;
}

/* The leaf has the numbers as they were before they were kept in blocks of 64. */
void reference_widen(const RefCall *call) {
    const Type *type = ref_type(call, 0);
    const bool nf4 = type->dtype == DTYPE_NF4;
    for (int64_t at = 0; at < type_elements(type); at += 64) {
        const double *x = call->in[0] + at;
        double most = 0, bad = 0;
        for (int i = 0; i < 64; i++) {
            if (!isfinite(x[i])) bad = NAN;
            most = fmax(most, fabs(x[i]));
        }
        double scale = reference_rounded(DTYPE_BF16, nf4 ? most : most / 127);
        for (int i = 0; i < 64; i++) {
            double code = most == 0 ? 0
                          : nf4     ? nearest_nf4(x[i] / scale)
                                    : fmin(fmax(nearbyint(x[i] / scale), -127), 127);
            call->out[0][at + i] = code * scale + bad;
        }
    }
}

/* A block's numbers as codes of its scale: of q4_0 that which is largest, the first of such, is -8
 * of them; scales are f32, and are kept in f16. */
static void round_block(bool four, double x[ROUND_BLOCK]) {
    double most = 0;
    for (int i = 0; i < ROUND_BLOCK; i++) {
        if (fabs(x[i]) > fabs(most)) most = x[i];
    }
    const double scale = (float)(four ? most / -8 : fabs(most) / 127);
    const double kept = reference_rounded(DTYPE_F16, scale);
    for (int i = 0; i < ROUND_BLOCK; i++) {
        double code = scale == 0 ? 0 : x[i] / scale;
        code = four ? fmin(floor(code + 8.5), 15) - 8 : round(code);
        x[i] = scale == 0 ? 0 : code * kept;
    }
}

void reference_round_blocks(const RefCall *call) {
    const Type *type = ref_type(call, 0);
    const RoundForm form = round_form_find(node_string(call->node, ATTR_blocks));
    const RoundLayout l = round_layout(call->node, type);
    for (int64_t i = 0; form == ROUND_F16 && i < type_elements(type); i++) {
        call->out[0][i] = reference_rounded(DTYPE_F16, call->in[0][i]);
    }
    for (int64_t b = 0; form != ROUND_F16 && b < l.n_rows * (l.length / ROUND_BLOCK); b++) {
        const int64_t row = round_place(l.n_other, l.other_dims, l.other_strides, b % l.n_rows);
        double x[ROUND_BLOCK];
        int64_t at[ROUND_BLOCK];
        for (int i = 0; i < ROUND_BLOCK; i++) {
            const int64_t number = b / l.n_rows * ROUND_BLOCK + i;
            at[i] = row + round_place(l.n_row, l.row_dims, l.row_strides, number);
            x[i] = call->in[0][at[i]];
        }
        round_block(form == ROUND_Q4_0, x);
        for (int i = 0; i < ROUND_BLOCK; i++) call->out[0][at[i]] = x[i];
    }
}
