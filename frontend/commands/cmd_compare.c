/* perilune compare: what two plans differ in, and what it costs. */
#include "frontend/commands/cli.h"
#include "frontend/commands/profile_args.h"
#include "frontend/lua/cluster_read.h"
#include "planner/show/compare.h"

static bool compare(CliArgs *args, const Cluster *cluster, StrBuf *out, Diag *diag) {
    ComparedPlan sides[2];
    Device devices[2];
    for (int i = 0; i < 2; i++) {
        const Plan *plan = plan_read(args->arena, args->operands[i], diag);
        if (!plan) return false;
        if (!device_of_plan(args, NULL, plan, &devices[i], diag)) return false;
        sides[i] = (ComparedPlan){args->operands[i], plan, &devices[i]};
    }
    return cli_given(args, OPT_JSON) ? compare_json(out, sides, cluster, diag)
                                     : compare_text(out, sides, cluster, diag);
}

int cmd_compare(CliArgs *args) {
    Diag *diag = diag_create();
    StrBuf out = strbuf_create();
    int status = EXIT_DONE;
    const char *name = cli_text(args, OPT_CLUSTER, NULL);
    const Cluster *cluster = name ? cluster_read(args->arena, name, NULL, diag) : NULL;
    if ((name && !cluster) || !compare(args, cluster, &out, diag)) {
        status = EXIT_USAGE;
    } else if (!cli_write(cli_text(args, OPT_OUTPUT, NULL), &out, diag)) {
        status = EXIT_FAILED;
    }
    cli_fail(diag, status);
    strbuf_destroy(&out);
    diag_destroy(diag);
    return status;
}
