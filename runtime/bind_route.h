/* Where a rank's part of a route, dispatch, combine or slot_dot lies: for the binders of both
 * backends. */
#ifndef RUNTIME_BIND_ROUTE_H
#define RUNTIME_BIND_ROUTE_H

#include "runtime/binding.h"

typedef struct RoutePlace {
    int64_t batch, seq, choices;
    int64_t experts, slots; /* of all ranks; an expert's capacity in a sequence, or a run of it */
    int64_t from;           /* of a route: where in the capacity the run begins */
    int64_t first, local,
        valid;     /* experts of this rank: from first on, padding included, without */
    int64_t model; /* numbers of a row; 0 for route */
} RoutePlace;

RoutePlace bind_route_place(const Binding *binding);

#endif
