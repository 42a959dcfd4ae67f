/* What both backends are told about scores of attention and their biases by relative position. */
#ifndef RUNTIME_BIND_RELATIVE_H
#define RUNTIME_BIND_RELATIVE_H

#include "ir/ops/relative.h"
#include "runtime/binding.h"

/* This rank's scores [outer, heads, seq, keys] and table [buckets, heads]. */
typedef struct RelativePlace {
    int64_t outer, heads, seq, keys, count; /* count: of buckets */
    DimSpan queries;                        /* where they are in the whole sequence */
    RelativeBuckets buckets;
} RelativePlace;

/* Of relative_bias and its gradient. */
RelativePlace bind_relative_place(const Binding *binding);

#endif
