/* Rotary's launches between the gradients of q and k and what reads them (stack_products.h). */
#ifndef RUNTIME_CUDA_STACK_ROTARY_H
#define RUNTIME_CUDA_STACK_ROTARY_H

#include "runtime/cuda/bind.h"

/* The arguments of a launch of rotary's kernel that turns packed rows of `dtype` in place; NULL: it
 * is another command. */
const RotaryArgs *cuda_find_rotary(const Command *command, DType dtype);

/* Turns heads that lie at `at`, in rows of `row` numbers. Arguments are allocated in `arena`. */
void cuda_lay_out_rotary(Command *command, void *at, int64_t row, Arena *arena);

/* Makes `first` turn the heads of `second`, too, which follows it in the list and whose heads lie
 * beside its own. The bits stay the same. False: they are not alike, and nothing has changed. */
bool cuda_join_rotaries(Command *first, const Command *second, DType dtype, Arena *arena);

#endif
