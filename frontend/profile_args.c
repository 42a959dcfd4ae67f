#include "frontend/profile_args.h"

#include "frontend/cluster_read.h"

bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag) {
    const char *path = cli_text(args, OPT_PROFILE, NULL);
    *out = path ? device_profile_read(args->arena, path, diag) : NULL;
    return !path || *out;
}

bool device_of_plan(CliArgs *args, const DeviceProfile *profile, const Plan *plan, Device *out,
                    Diag *diag) {
    const char *name = cli_text(args, OPT_CLUSTER, plan->cuda ? DEFAULT_GPU_CLUSTER : NULL);
    if (profile && cli_given(args, OPT_CLUSTER)) {
        diag_error(diag, NO_LOC, "--profile and --cluster: one of them says what is predicted on");
        return false;
    }
    *out = DEVICE_CPU_CORE;
    if (profile) {
        *out = device_of_profile(profile, mesh_rank_count(&plan->mesh), args->arena);
    } else if (name) {
        const Cluster *cluster = cluster_read(args->arena, name, NULL, diag);
        if (!cluster) return false;
        *out = device_of_cluster(cluster, plan->precision);
    }
    return true;
}
