/* perilune cluster: the clusters that are shipped, and what a description says. */
#include "frontend/cli.h"
#include "frontend/cluster_read.h"

#include <string.h>

static int list(CliArgs *args, Diag *diag) {
    for (int i = 0; cluster_shipped_name(i); i++) {
        const Cluster *cluster = cluster_read(args->arena, cluster_shipped_name(i), NULL, diag);
        if (!cluster) return EXIT_USAGE;
        printf("%-18s %s\n", cluster->name, cluster->title ? cluster->title : "");
    }
    return EXIT_DONE;
}

static int check(CliArgs *args, Diag *diag) {
    const Cluster *cluster =
        cluster_read(args->arena, args->operands[1], cli_text(args, OPT_SOFTWARE, NULL), diag);
    if (!cluster) return EXIT_USAGE;
    printf("%s is sound: %s, %d x %s a node\n", cluster->path, cluster->name,
           cluster->node.n_devices, cluster->device.name);
    return EXIT_DONE;
}

int cmd_cluster(CliArgs *args) {
    Diag *diag = diag_create();
    int status;
    if (strcmp(args->operand, "list") == 0) {
        status = list(args, diag);
    } else if (args->n_operands < 2) {
        status = cli_usage_error("cluster: which NAME|FILE?");
    } else {
        status = check(args, diag);
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
