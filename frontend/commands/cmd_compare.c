/* perilune compare: what two plans differ in, and what it costs; runs' logs beside each other. */
#include "frontend/commands/cli.h"
#include "frontend/commands/compare_runs.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/run_curve.h"
#include "frontend/commands/sweep_folder.h"
#include "frontend/lua/cluster_read.h"
#include "planner/show/compare.h"

static bool compare_plans(CliArgs *args, const Cluster *cluster, StrBuf *out, Diag *diag) {
    ComparedPlan sides[2];
    Device devices[2];
    if (args->n_operands != 2 || cli_given(args, OPT_HTML)) {
        diag_error(diag, NO_LOC,
                   cli_given(args, OPT_HTML)
                       ? "--html: is for logs of runs; two plans are text or --json"
                       : "compare: plans are compared two at a time; not %d",
                   args->n_operands);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        const Plan *plan = plan_read(args->arena, args->operands[i], diag);
        if (!plan) return false;
        if (!device_of_plan(args, NULL, plan, &devices[i], diag)) return false;
        sides[i] = (ComparedPlan){args->operands[i], plan, &devices[i]};
    }
    return cli_given(args, OPT_JSON) ? compare_json(out, sides, cluster, diag)
                                     : compare_text(out, sides, cluster, diag);
}

static bool compare_logs(CliArgs *args, const char *const *paths, int n, StrBuf *out, Diag *diag) {
    RunsForm form = cli_given(args, OPT_HTML)   ? RUNS_HTML
                    : cli_given(args, OPT_JSON) ? RUNS_JSON
                                                : RUNS_TEXT;
    int n_logs = 0;
    for (int i = 0; i < n; i++) n_logs += is_run_log(paths[i]);
    if (n_logs < n) {
        diag_error(diag, NO_LOC, "compare: logs of runs (.jsonl) with each other, or two plans");
    } else if (n_logs < 2 || n_logs > COMPARE_MOST_RUNS) {
        diag_error(diag, NO_LOC, "compare: takes 2 to %d logs, not %d", COMPARE_MOST_RUNS, n_logs);
    } else if (cli_given(args, OPT_CLUSTER)) {
        diag_error(diag, NO_LOC, "--cluster: nothing is predicted for logs of runs");
    } else if (cli_given(args, OPT_HTML) && cli_given(args, OPT_JSON)) {
        diag_error(diag, NO_LOC, "--json: one form at a time");
    } else {
        return compare_runs(out, paths, n, form, diag);
    }
    return false;
}

int cmd_compare(CliArgs *args) {
    if (args->n_operands == 1 && !is_sweep_folder(args->operand)) {
        return cli_usage_error("compare: which B? see perilune help compare");
    }
    Diag *diag = diag_create();
    StrBuf out = strbuf_create();
    int status = EXIT_DONE;
    const char *name = cli_text(args, OPT_CLUSTER, NULL);
    bool logs = false;
    const char **paths;
    int n = 0;
    bool good =
        sweep_expand_operands(args->arena, args->operands, args->n_operands, &paths, &n, diag);
    for (int i = 0; i < n; i++) logs = logs || is_run_log(paths[i]);
    const Cluster *cluster = name && !logs ? cluster_read(args->arena, name, NULL, diag) : NULL;
    if (good) {
        good = logs ? compare_logs(args, paths, n, &out, diag)
                    : (!name || cluster) && compare_plans(args, cluster, &out, diag);
    }
    if (!good) {
        status = EXIT_USAGE;
    } else if (!cli_write(cli_text(args, OPT_OUTPUT, NULL), &out, diag)) {
        status = EXIT_FAILED;
    }
    cli_fail(diag, status);
    strbuf_destroy(&out);
    diag_destroy(diag);
    return status;
}
