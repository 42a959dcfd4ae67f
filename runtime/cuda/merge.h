/* Fewer launches: neighbouring updates of small tensors become one launch over a table of them.
 *
 * A model has hundreds of parameters, each with a launch or two for its norm and one for its
 * update. Consecutive ones in a list, of the same rank and stream and with the same constants, are
 * joined (the idea of apex's multi_tensor_apply); results keep their bits. The new command has all
 * the accesses of those it replaces. Launches that depend on each other are left as they are, but
 * for the workspace that sums of squares share: the joined launch divides it up.
 *
 * To be called before order_commands. New arguments and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_MERGE_H
#define RUNTIME_CUDA_MERGE_H

#include "runtime/cuda/command.h"

void cuda_merge_updates(CommandList *list, Arena *arena);

#endif
