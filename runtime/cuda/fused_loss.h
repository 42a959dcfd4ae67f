/* Cross-entropy and its gradient at once: where a micro-batch's backward follows its forward, as in
 * the last stage of 1f1b, the launches of logsumexp, pick and cross_entropy_grad become one that
 * reads the logits once and leaves their gradient in their place. Logits in parts are
 * made in the backward, so that this goes for every schedule.
 *
 * Folded is a gradient of whole rows (of a vocabulary that is not divided) that takes its logits'
 * memory, whose rows fit the shared memory of any device that plans are for, and where each row's
 * loss has the same gradient, known without running: that of a mean. Nothing but pick may read the
 * logits. The launch stands where pick stood, in the forward's task, so nothing from there to the
 * gradient may touch the logits, nor before it what logsumexp wrote. The bits are the same.
 *
 * To be called on one rank's walk, before messages are added and commands ordered. New arguments
 * and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_FUSED_LOSS_H
#define RUNTIME_CUDA_FUSED_LOSS_H

#include "runtime/cuda/command.h"

/* Returns how many launches are gone. */
int cuda_fuse_losses(CommandList *list, Arena *arena);

#endif
