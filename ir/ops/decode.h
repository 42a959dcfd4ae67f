/* What ops of decoding check alike. */
#ifndef IR_OPS_DECODE_H
#define IR_OPS_DECODE_H

#include "ir/op.h"

/* Is operand `input` i32, of the first n axes that `like` has, [batch] or [batch, seq]? Else it is
 * reported. */
bool decode_check_numbers(const Node *node, int input, const Type *like, int n, Diag *diag);

/* Are an attention's soft cap and scale such as f32 computes with? */
bool attention_check_factors(const Node *node, Diag *diag);

#endif
