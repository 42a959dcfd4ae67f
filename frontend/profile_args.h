/* --profile: the device that predictions are made with. */
#ifndef FRONTEND_PROFILE_ARGS_H
#define FRONTEND_PROFILE_ARGS_H

#include "frontend/cli.h"
#include "planner/cost.h"

/* Where --profile was given, reads it; else nothing happens and *out is NULL. False: reported. Read
 * before planning, so that a bad file is said at once. */
bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag);

/* One rank of the plan on the profile's device; NULL: on the built-in one. */
Device device_of_plan(const DeviceProfile *profile, const Plan *plan, Arena *arena);

#endif
