/* elementwise_nodes: the nodes of a plan that generated kernels do, as a backend would bind them.
 */
#ifndef TESTS_SUPPORT_ELEMENTWISE_NODES_H
#define TESTS_SUPPORT_ELEMENTWISE_NODES_H

#include "planner/plan.h"
#include "runtime/cuda/codegen.h"

/* Everything but addresses, workspace and backend is filled in. */
typedef void NodeVisitor(void *user, Binding *binding);

/* Elementwise, fused, broadcast and accumulate nodes of all programs, as the first and the last
 * rank see them, for the first and the last micro-batch. */
void elementwise_nodes_visit(const Plan *plan, Arena *arena, Diag *diag, NodeVisitor *visit,
                             void *user);

/* Rounds to what bf16 holds. */
float bf16_round(float x);
/* What bf16 plans make of the dtypes: all bf16 but an accumulator. */
void elementwise_make_bf16(Binding *binding);
/* Kernels of those nodes, in f32 and in bf16. Addresses are made up, and multiples of 64. */
void elementwise_collect(const Plan *plan, Arena *arena, KernelCache *cache, Diag *diag);

/* Plans of gpt and llama, dropout and odd sizes included, under several layouts; NULL after the
 * last. */
Plan *elementwise_plan(int i, Arena *arena, Diag *diag);

#endif
