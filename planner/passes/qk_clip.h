/* QK-clip (Kimi Team 2025, Kimi K2, arXiv 2507.20534, section 2.1 and algorithm 1): where the
 * largest score of a head in a step is more than tau, weights of its queries and keys are scaled
 * after the optimizer's step so that it would have been tau.
 *
 * Of a head with the largest score s, gamma = min(1, tau / s):
 *   keys of its own           queries and keys times sqrt(gamma)
 *   keys that heads share     queries times gamma, keys as they are: no other head changes
 * The latter are K2's rotary part of latent attention, and by the same reason keys of grouped
 * queries; Megatron-LM has the least gamma of a group for all of it instead, which scales heads
 * that need it not.
 */
#ifndef PLANNER_PASSES_QK_CLIP_H
#define PLANNER_PASSES_QK_CLIP_H

#include "planner/passes/pass.h"

/* To a graph with measure_logits' nodes: the output max_logit, and of the result [n_nodes as they
 * were], by a parameter's id, what it is to be multiplied by, NO_VALUE of most. NULL: reported. */
Value *qk_clip_append(PassContext *ctx, Graph *out);

#endif
