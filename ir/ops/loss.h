/* What a loss's gradient says of how it may run. */
#ifndef IR_OPS_LOSS_H
#define IR_OPS_LOSS_H

#include "ir/graph.h"

/* Bytes of a row of logits up to which a GPU's kernel keeps it in shared memory: that of compute
 * capability 8.6, less what is static. */
enum { LOSS_ROW_BYTES = 99 * 1024 - 512 };

/* May cross_entropy_grad be made together with the log-sum-exp that it reads and the labels'
 * logits? Where it is of whole rows (of a vocabulary that is not divided) and each row's loss has
 * the same gradient, known without running: *out_dloss. */
bool loss_is_joint(const Node *gradient, float *out_dloss);

#endif
