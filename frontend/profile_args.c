#include "frontend/profile_args.h"

bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag) {
    const char *path = cli_text(args, OPT_PROFILE, NULL);
    *out = path ? device_profile_read(args->arena, path, diag) : NULL;
    return !path || *out;
}

Device device_of_plan(const DeviceProfile *profile, const Plan *plan, Arena *arena) {
    if (!profile) return *cost_device(plan);
    return device_of_profile(profile, mesh_rank_count(&plan->mesh), arena);
}
