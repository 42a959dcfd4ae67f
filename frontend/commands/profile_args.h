/* --profile: the device that predictions are made with. */
#ifndef FRONTEND_COMMANDS_PROFILE_ARGS_H
#define FRONTEND_COMMANDS_PROFILE_ARGS_H

#include "frontend/commands/cli.h"
#include "planner/cost/cost.h"

/* Where --profile was given, reads it; else nothing happens and *out is NULL. False: reported. Read
 * before planning, so that a bad file is said at once. */
bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag);

/* The shipped cluster that stands for GPUs, or for processor cores, where none is named. */
const char *default_cluster(bool cuda);

/* What a rank of the plan is predicted on: the profile's device; else that of the cluster that
 * --cluster names, which must have so many; else of the default cluster. False: reported. */
bool device_of_plan(CliArgs *args, const DeviceProfile *profile, const Plan *plan, Device *out,
                    Diag *diag);

#endif
