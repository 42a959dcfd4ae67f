/* --profile: the device that predictions are made with. */
#ifndef FRONTEND_PROFILE_ARGS_H
#define FRONTEND_PROFILE_ARGS_H

#include "frontend/cli.h"
#include "planner/cost.h"

/* Where --profile was given, reads it; else nothing happens and *out is NULL. False: reported. Read
 * before planning, so that a bad file is said at once. */
bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag);

/* What a rank of the plan is predicted on: the profile's device; else the cluster's that --cluster
 * names; else a core, or for plans for CUDA a GPU of DEFAULT_GPU_CLUSTER. False: reported. */
#define DEFAULT_GPU_CLUSTER "h200-dgx"
bool device_of_plan(CliArgs *args, const DeviceProfile *profile, const Plan *plan, Device *out,
                    Diag *diag);

#endif
