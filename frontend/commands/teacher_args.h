/* A teacher as the command line asks for it: --teacher and what goes with it, and its weights. */
#ifndef FRONTEND_COMMANDS_TEACHER_ARGS_H
#define FRONTEND_COMMANDS_TEACHER_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/lua/model.h"
#include "planner/plan/plan.h"
#include "runtime/engine.h"

/* --distill and its like, which need --teacher. False: reported. */
bool teacher_args_check(const CliArgs *args, Distillation *out, Diag *diag);

/* Loads the teacher, if one is asked for, and joins it to the model; *settings says the teacher's,
 * too. Where the model's loss reads a teacher and there is none, that is reported, unless the
 * command has no teachers. False: reported. */
bool teacher_args_join(CliArgs *args, Arena *arena, int64_t batch, Model *model,
                       const Distillation *how, const char **settings, Diag *diag);

/* --teacher-load, before anything else is loaded; a plan with a teacher needs it if `needed`.
 * *out_loaded may be NULL. False: reported. */
bool teacher_args_load(const CliArgs *args, Engine *engine, const Plan *plan, bool needed,
                       bool *out_loaded, Diag *diag);

#endif
