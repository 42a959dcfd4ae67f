/* Plans as commands ask for them: made from a Lua model and planning options, or read. */
#ifndef FRONTEND_PLAN_ARGS_H
#define FRONTEND_PLAN_ARGS_H

#include "frontend/cli.h"
#include "planner/plan.h"

/* Runs the model's script and plans it by the options of group IN_PLANNING. NULL: reported. */
Plan *plan_from_model(CliArgs *args, Diag *diag);

/* The operand's plan: made if it is a .lua file, else read and verified. NULL: reported. */
Plan *plan_from_operand(CliArgs *args, Diag *diag);

#endif
