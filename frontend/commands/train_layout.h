/* The layout of a run that leaves it to a search: for as many processes as a launcher has started,
 * or for --ranks in one process.
 *
 * Rank 0 searches and plans, and the others get its plan's text: equal text everywhere, whatever
 * their processors round. Where a smaller number of ranks is predicted to be faster (7 processes of
 * a job that had 8, a batch of 64), the last processes have nothing to do. With --continue a job
 * that lost machines so goes on with those it still has.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_LAYOUT_H
#define FRONTEND_COMMANDS_TRAIN_LAYOUT_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"

typedef struct TrainLayout {
    const char *text; /* lines on what was found, each with its end; NULL: nothing was searched */
    bool unused;      /* the plan has no rank for this process; there is no plan here */
} TrainLayout;

/* Does the command line leave the layout to a search? */
bool train_layout_is_wanted(const CliArgs *args);

/* The plan, or NULL: `unused`, or reported, with the exit code in *out_status. */
Plan *train_layout(CliArgs *args, TrainLayout *out, int *out_status, Diag *diag);

#endif
