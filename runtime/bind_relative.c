#include "runtime/bind_relative.h"

RelativePlace bind_relative_place(const Binding *b) {
    bool backward = b->node->op == OP_RELATIVE_BIAS_GRAD;
    const Type *scores = &b->in_local[0], *table = backward ? &b->out_local[0] : &b->in_local[1];
    int seq = scores->rank - 2;
    RelativePlace place = {.outer = 1,
                           .heads = 1,
                           .seq = scores->dims[seq],
                           .keys = scores->dims[seq + 1],
                           .count = table->dims[0],
                           .queries =
                               bind_span(b, bind_input_type(b, 0), bind_input_sharding(b, 0), seq),
                           .buckets = relative_buckets(b->node, table->dims[0])};
    for (int i = 0; i < seq; i++) {
        int64_t *size = i < seq - (table->rank - 1) ? &place.outer : &place.heads;
        *size *= scores->dims[i];
    }
    return place;
}
