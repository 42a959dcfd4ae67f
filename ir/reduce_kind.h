/* How the values of several ranks become one: part of a value's sharding and of every reducing
 * collective.
 *
 * SUM  x_0 + x_1 + ...
 * MAX  the largest; not-a-number wins
 * LSE  log(sum_i exp(x_i)): joins the log-sum-exp values of disjoint parts (blockwise softmax,
 *      Milakov & Gimelshein 2018); -inf is the empty part
 */
#ifndef IR_REDUCE_KIND_H
#define IR_REDUCE_KIND_H

typedef enum ReduceKind { REDUCE_SUM, REDUCE_MAX, REDUCE_LSE } ReduceKind;

#endif
