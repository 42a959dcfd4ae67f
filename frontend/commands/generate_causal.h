/* Can a model write? Its logits must not depend on what follows them, and be there. */
#ifndef FRONTEND_COMMANDS_GENERATE_CAUSAL_H
#define FRONTEND_COMMANDS_GENERATE_CAUSAL_H

#include "planner/plan/plan.h"

/* Whether a position's logits depend on later positions: false, reported as `what`'s. */
bool generate_check_causal(const char *what, Arena *arena, const Graph *graph, Diag *diag);
/* Whether any program has all logits. False: reported. */
bool generate_check_logits(const char *what, const Plan *plan, Diag *diag);
/* Both, of all programs of a plan. */
bool generate_check_plan(const char *what, Arena *arena, const Plan *plan, Diag *diag);

#endif
