#include "frontend/commands/profile_args.h"

#include "frontend/lua/cluster_read.h"

bool profile_from_args(CliArgs *args, const DeviceProfile **out, Diag *diag) {
    const char *path = cli_text(args, OPT_PROFILE, NULL);
    *out = path ? device_profile_read(args->arena, path, diag) : NULL;
    return !path || *out;
}

const char *default_cluster(bool cuda) {
    return cuda ? "h200-dgx" : "cpu";
}

/* A plan for the CPU may have more ranks than the server that is assumed has cores: as if it had
 * one for each. */
static bool fit_cluster(Cluster *cluster, bool given, int64_t n_ranks, Diag *diag) {
    if (cluster->max_devices == 0 || n_ranks <= cluster->max_devices) return true;
    if (given) {
        diag_error(diag, NO_LOC, "--cluster %s: it has %lld device%s, the plan %lld ranks",
                   cluster->name, (long long)cluster->max_devices,
                   cluster->max_devices == 1 ? "" : "s", (long long)n_ranks);
        return false;
    }
    if (cluster->is_cpu) cluster->node.n_devices = (int)n_ranks;
    return true;
}

bool device_of_plan(CliArgs *args, const DeviceProfile *profile, const Plan *plan, Device *out,
                    Diag *diag) {
    bool given = cli_given(args, OPT_CLUSTER);
    int64_t n_ranks = mesh_rank_count(&plan->mesh);
    if (profile && given) {
        diag_error(diag, NO_LOC, "--profile and --cluster: one of them says what is predicted on");
        return false;
    }
    if (profile) {
        *out = device_of_profile(profile, (int)n_ranks, args->arena);
        return true;
    }
    const char *name = cli_text(args, OPT_CLUSTER, default_cluster(plan->cuda));
    Cluster *cluster = cluster_read(args->arena, name, NULL, diag);
    if (!cluster || !fit_cluster(cluster, given, n_ranks, diag)) return false;
    *out = device_of_cluster(cluster, plan->precision);
    return true;
}
