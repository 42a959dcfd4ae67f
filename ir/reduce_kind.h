/* How partial results over a mesh axis are completed. LSE: log(sum_i exp(x_i)). */
#ifndef IR_REDUCE_KIND_H
#define IR_REDUCE_KIND_H

typedef enum ReduceKind { REDUCE_SUM, REDUCE_MAX, REDUCE_LSE } ReduceKind;

#endif
