/* What follows an optimizer's step. */
#ifndef RUNTIME_CUDA_BIND_RESCALE_H
#define RUNTIME_CUDA_BIND_RESCALE_H

#include "runtime/cuda/bind.h"

/* If the node has the operand; copy_output: the result that may be the parameter's copy in 16 bits;
 * clip: as the optimizer's. */
bool cuda_push_rescale(Binding *binding, int copy_output, const float *clip);

#endif
