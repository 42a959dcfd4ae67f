/* largest and max_n: maxima of what attention says of its rows. */
#include "tests/support/reference_eval.h"

#include <math.h>

/* The largest of rows' numbers along the accumulator's axes, and of what is in it. */
void reference_largest(const RefCall *call) {
    const Type *most = ref_type(call, 0), *rows = ref_type(call, 1);
    Point p = {{0}};
    for (int64_t i = 0; i < type_elements(most); i++) {
        call->out[0][i] = call->ref->overwrite ? -INFINITY : call->in[0][i];
    }
    do {
        double *to = &call->out[0][point_offset(&p, most)];
        *to = fmax(*to, ref_read(call, 1, &p));
    } while (point_next(&p, rows));
}

void reference_max_n(const RefCall *call) {
    double most = -INFINITY;
    for (int i = 0; i < call->node->n_inputs; i++) {
        for (int64_t k = 0; k < type_elements(ref_type(call, i)); k++) {
            most = fmax(most, call->in[i][k]);
        }
    }
    call->out[0][0] = most;
}
