/* elementwise_nodes: the nodes of a plan that generated kernels do, as a backend would bind them.
 */
#ifndef TESTS_SUPPORT_ELEMENTWISE_NODES_H
#define TESTS_SUPPORT_ELEMENTWISE_NODES_H

#include "planner/plan/plan.h"
#include "runtime/cuda/codegen.h"

/* Everything but addresses, workspace and backend is filled in. */
typedef void NodeVisitor(void *user, Binding *binding);

/* Elementwise, fused, broadcast and accumulate nodes of all programs, as the first and the last
 * rank see them, for the first and the last micro-batch. */
void elementwise_nodes_visit(const Plan *plan, Arena *arena, Diag *diag, NodeVisitor *visit,
                             void *user);

/* What plans of that precision make of the dtypes: all in 16 bits but an accumulator. */
void elementwise_make_low(Binding *binding, DType low);

/* Plans of gpt and llama, dropout and odd sizes included, under several layouts. */
int elementwise_n_plans(void);
Plan *elementwise_plan(int i, Arena *arena, Diag *diag);
/* The first n of these are what plan i's nodes are taken in: kernels in f16 differ from those in
 * bf16 by a type's name, and some will do. */
extern const DType ELEMENTWISE_PRECISIONS[];
int elementwise_n_precisions(int i);
/* Kernels of plan i's nodes in them. Addresses are made up, and multiples of 64. */
void elementwise_collect(int i, Arena *arena, KernelCache *cache, Diag *diag);

#endif
