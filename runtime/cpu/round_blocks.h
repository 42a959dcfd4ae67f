/* Parameters rounded to blocks (ir/ops/round_blocks.h): copies of them, in f32, bf16 or f16. */
#ifndef RUNTIME_CPU_ROUND_BLOCKS_H
#define RUNTIME_CPU_ROUND_BLOCKS_H

#include "ir/ops/round_blocks.h"

/* n numbers that lie as `layout` says, of a form that is not f16 in rows of whole blocks. What is
 * bf16 is rounded as all copies are (halves_copy). Any number of threads gives the same bits. */
void round_blocks(RoundForm form, const RoundLayout *layout, const float *from, DType dtype,
                  void *out, int64_t n);

#endif
