#include "runtime/bind_route.h"

RoutePlace bind_route_place(const Binding *b) {
    bool routes = b->node->op == OP_ROUTE;
    const Type *slots = &b->in_local[routes ? 0 : 1];
    const Type *tokens = routes ? &b->out_local[1] : &b->in_local[2];
    const Type *whole = routes ? &b->node->types[1] : bind_input_type(b, 2);
    const Sharding *sharding = routes ? &b->node->shardings[1] : bind_input_sharding(b, 2);
    const Type *rows = &b->in_local[0];
    return (RoutePlace){
        .batch = slots->dims[0],
        .seq = slots->dims[1],
        .choices = slots->dims[2],
        .experts = whole->dims[0],
        .slots = whole->dims[2],
        .first = bind_offset(b, whole, sharding, 0),
        .local = tokens->dims[0],
        .valid = bind_valid(b, whole, sharding, 0),
        .from = routes ? node_int(b->node, ATTR_first, 0) : 0,
        .model = routes ? 0 : rows->dims[rows->rank - 1],
    };
}
