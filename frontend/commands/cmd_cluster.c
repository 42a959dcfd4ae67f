/* perilune cluster: the clusters that are shipped, and what a description says. */
#include "frontend/commands/cli.h"
#include "frontend/commands/cluster_show.h"
#include "frontend/commands/profile_args.h"
#include "frontend/lua/cluster_read.h"
#include "planner/cost/cluster_profile.h"

#include <string.h>

/* A line per cluster. */
static bool list_clusters(CliArgs *args, StrBuf *out, Diag *diag) {
    for (int i = 0; cluster_shipped_name(i); i++) {
        const char *name = cluster_shipped_name(i);
        const Cluster *cluster = cluster_read(args->arena, name, NULL, diag);
        if (!cluster) return false;
        strbuf_printf(out, "%-16s %s\n", name, cluster->title ? cluster->title : "");
    }
    return true;
}

static void list_json(StrBuf *out, const char *const *software) {
    strbuf_put(out, "{\"clusters\": [");
    for (int i = 0; cluster_shipped_name(i); i++) {
        strbuf_printf(out, "%s\"%s\"", i ? ", " : "", cluster_shipped_name(i));
    }
    strbuf_put(out, "], \"software\": [");
    for (int i = 0; software[i]; i++) {
        strbuf_printf(out, "%s\"%s\"", i ? ", " : "", software[i]);
    }
    strbuf_put(out, "]}\n");
}

static int list(CliArgs *args, Diag *diag) {
    StrBuf out = strbuf_create();
    const char **software = cluster_software_names(args->arena, diag);
    int status = EXIT_USAGE;
    if (software && cli_given(args, OPT_JSON)) {
        list_json(&out, software);
        status = EXIT_DONE;
    } else if (software && list_clusters(args, &out, diag)) {
        strbuf_put(&out, "\nSoftware, for --software:\n");
        for (int i = 0; software[i]; i++) strbuf_printf(&out, "%s\n", software[i]);
        status = EXIT_DONE;
    }
    if (status == EXIT_DONE && !cli_write(NULL, &out, diag)) status = EXIT_FAILED;
    strbuf_destroy(&out);
    return status;
}

/* The cluster that the second operand names, with --software and --profile. NULL: reported. */
static Cluster *read_operand(CliArgs *args, Diag *diag) {
    const DeviceProfile *profile;
    if (!profile_from_args(args, &profile, diag)) return NULL;
    Cluster *cluster =
        cluster_read(args->arena, args->operands[1], cli_text(args, OPT_SOFTWARE, NULL), diag);
    if (cluster && profile && !cluster_apply_profile(cluster, profile, diag)) return NULL;
    return cluster;
}

static int show(CliArgs *args, Diag *diag) {
    const Cluster *cluster = read_operand(args, diag);
    if (!cluster) return EXIT_USAGE;
    StrBuf out = strbuf_create();
    if (cli_given(args, OPT_JSON)) {
        cluster_show_json(&out, cluster);
    } else {
        cluster_show_text(&out, cluster);
    }
    int status = cli_write(NULL, &out, diag) ? EXIT_DONE : EXIT_FAILED;
    strbuf_destroy(&out);
    return status;
}

static int check(CliArgs *args, Diag *diag) {
    const Cluster *cluster = read_operand(args, diag);
    if (!cluster) return EXIT_USAGE;
    StrBuf out = strbuf_create();
    strbuf_printf(&out, "%s is sound: cluster %s, nodes of %d x %s\n", cluster->path, cluster->name,
                  cluster->node.n_devices, cluster->device.name);
    int status = cli_write(NULL, &out, diag) ? EXIT_DONE : EXIT_FAILED;
    strbuf_destroy(&out);
    return status;
}

/* -1, or the exit code: an option that the verb has no use for. */
static int check_options(const CliArgs *args, bool lists, bool checks) {
    static const CliOption READS[] = {OPT_SOFTWARE, OPT_PROFILE};
    for (size_t i = 0; lists && i < sizeof(READS) / sizeof(READS[0]); i++) {
        if (!cli_given(args, READS[i])) continue;
        return cli_usage_error("cluster list: --%s: is for show and check",
                               CLI_OPTIONS[READS[i]].name);
    }
    if (!checks || !cli_given(args, OPT_JSON)) return -1;
    return cli_usage_error("cluster check: --json: is for list and show");
}

int cmd_cluster(CliArgs *args) {
    static const char *const VERBS[] = {"list", "show", "check", NULL};
    static int (*const RUN[])(CliArgs *, Diag *) = {list, show, check};
    int verb = 0;
    while (VERBS[verb] && strcmp(VERBS[verb], args->operand) != 0) verb++;
    if (!VERBS[verb]) {
        const char *nearest = nearest_name(args->operand, VERBS);
        return nearest ? cli_usage_error("cluster: unknown '%s'; did you mean %s?", args->operand,
                                         nearest)
                       : cli_usage_error("cluster: '%s' is not list, show or check", args->operand);
    }
    if (verb == 0 && args->n_operands > 1) {
        return cli_usage_error("cluster list: takes options only; what is '%s'?",
                               args->operands[1]);
    }
    if (verb > 0 && args->n_operands < 2) {
        return cli_usage_error("cluster %s: which NAME|FILE? see perilune cluster list",
                               args->operand);
    }
    int status = check_options(args, RUN[verb] == list, RUN[verb] == check);
    if (status >= 0) return status;
    Diag *diag = diag_create();
    status = RUN[verb](args, diag);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
