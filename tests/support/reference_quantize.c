/* Quantised numbers, element by element: a block is what has one scale. */
#include "tests/support/reference_eval.h"

#include <math.h>

/* The element's block, by its place among the scales. */
static int64_t block_of(const Point *point, const Type *values, const Type *scales) {
    Point at = *point;
    for (int i = 0; i < values->rank; i++) {
        at.at[values->axes[i]] /= values->dims[i] / scales->dims[i];
    }
    return point_offset(&at, scales);
}

/* The least power of two of which `most` is at most 448 times, 448 being e4m3's largest. */
static double scale_of(double most) {
    int exponent = -117;
    if (most == 0) return 0;
    while (most > ldexp(448, exponent)) exponent++;
    return ldexp(1, exponent);
}

/* To 4 significant bits, and at least steps of 2^-9; ties to even. */
static double rounded_fp8(double x) {
    int exponent;
    frexp(x, &exponent);
    int last = exponent - 4 < -9 ? -9 : exponent - 4;
    return isfinite(x) ? ldexp(nearbyint(ldexp(x, -last)), last) : NAN;
}

void reference_quantize(const RefCall *call) {
    const Type *values = &call->node->types[0], *scales = &call->node->types[1];
    int64_t n_blocks = type_elements(scales);
    Point point = {{0}};
    for (int64_t b = 0; b < n_blocks; b++) call->out[1][b] = 0;
    do {
        double *most = &call->out[1][block_of(&point, values, scales)];
        double x = fabs(ref_read(call, 0, &point));
        if (isfinite(x)) *most = fmax(*most, x);
    } while (point_next(&point, values));
    for (int64_t b = 0; b < n_blocks; b++) call->out[1][b] = scale_of(call->out[1][b]);
    point = (Point){{0}};
    do {
        double x = ref_read(call, 0, &point),
               scale = call->out[1][block_of(&point, values, scales)];
        call->out[0][point_offset(&point, values)] =
            isfinite(x) && scale == 0 ? 0 : rounded_fp8(x / scale);
    } while (point_next(&point, values));
}

void reference_dequantize(const RefCall *call) {
    const Type *values = ref_type(call, 0), *scales = ref_type(call, 1);
    Point point = {{0}};
    do {
        call->out[0][point_offset(&point, values)] =
            ref_read(call, 0, &point) * call->in[1][block_of(&point, values, scales)];
    } while (point_next(&point, values));
}
