/* Relative positions in buckets (Raffel et al. 2020, T5, section 2.1).
 *
 * A key n positions from a query is in a bucket: n below half of a side's buckets has one of its
 * own, beyond that they grow by a constant factor up to `distance`, and the last has the rest.
 * Where attention is causal the buckets are those of keys that come before, and others are hidden;
 * else the first half is of keys at the query and before, the second of those behind it.
 */
#ifndef IR_OPS_RELATIVE_H
#define IR_OPS_RELATIVE_H

#include "ir/graph.h"

enum { RELATIVE_MOST_BUCKETS = 128 };

/* A hidden key's score: the exponential of it less any log-sum-exp is 0. */
#define RELATIVE_HIDDEN (-1e30f)

typedef struct RelativeBuckets {
    int32_t causal;
    int32_t n; /* of one side */
    /* Bucket k of a side begins so far away; [n]: farther than any two positions are. */
    int32_t from[RELATIVE_MOST_BUCKETS + 1];
} RelativeBuckets;

/* Of relative_bias or its gradient, `count` buckets in all. */
RelativeBuckets relative_buckets(const Node *node, int64_t count);

/* Keys from query + *out_first to query + *out_last are in the bucket; false: none are. */
bool relative_range(const RelativeBuckets *buckets, int bucket, int64_t *out_first,
                    int64_t *out_last);

#endif
