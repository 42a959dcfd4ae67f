/* Scores of attention and their biases by relative position (ir/ops/relative.h), f32. */
#ifndef RUNTIME_CPU_RELATIVE_H
#define RUNTIME_CPU_RELATIVE_H

#include "runtime/bind_relative.h"

/* scores [outer, heads, seq, keys], table [buckets, heads] -> out like scores, which it may be.
 * out = scores + table[bucket(key - query)], RELATIVE_HIDDEN where a causal query sees no key. */
void relative_bias(const RelativePlace *place, const float *scores, const float *table, float *out);

/* The gradient of out -> that of the table [buckets, heads], summed in f64 in an order that no
 * number of threads changes. */
void relative_bias_grad(const RelativePlace *place, const float *dout, float *dtable);

#endif
