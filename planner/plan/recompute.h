/* How much of the forward is computed again in the backward instead of being kept for it
 * (recompute.c says what each mode keeps). */
#ifndef PLANNER_PLAN_RECOMPUTE_H
#define PLANNER_PLAN_RECOMPUTE_H

typedef enum Recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_FULL,
    N_RECOMPUTES
} Recompute;

const char *recompute_mode_name(Recompute mode);
int recompute_mode_find(const char *name, int length); /* -1: none */

#endif
