/* perilune fit: a scaling law of finished runs. */
#include "frontend/commands/cli.h"
#include "frontend/commands/fit_runs.h"
#include "frontend/commands/sweep_folder.h"

/* The law to -o, the page to --html, what it says to standard output, unless one of these goes
 * there. */
static bool write_all(const CliArgs *args, const FitReport *report, Diag *diag) {
    static const CliOption FILES[] = {OPT_OUTPUT, OPT_HTML_FILE};
    bool good = true, to_stdout = false;
    for (int i = 0; i < 2 && good; i++) {
        const char *path = cli_text(args, FILES[i], NULL);
        StrBuf out = strbuf_create();
        if (path && FILES[i] == OPT_OUTPUT) law_print(&out, &report->fit->law);
        if (path && FILES[i] == OPT_HTML_FILE) show_fit_html(&out, report);
        to_stdout = to_stdout || (path && path[0] == '-' && !path[1]);
        good = !path || cli_write(path, &out, diag);
        strbuf_destroy(&out);
    }
    if (!good || to_stdout) return good;
    StrBuf out = strbuf_create();
    if (cli_given(args, OPT_JSON)) {
        show_fit_json(&out, report);
    } else {
        show_fit_text(&out, report);
    }
    good = cli_write(NULL, &out, diag);
    strbuf_destroy(&out);
    return good;
}

/* An E that resamples bring down to nothing is not known. */
static void warn_of_e(CliArgs *args, FitReport *report) {
    double least = report->runs[0].loss;
    for (int i = 1; i < report->n_runs; i++) {
        if (report->runs[i].loss < least) least = report->runs[i].loss;
    }
    if (!(fit_intervals(&report->fit->law).e.low < least / 20)) return;
    const char **warnings = ARENA_ARRAY(args->arena, const char *, report->n_warnings + 1);
    for (int i = 0; i < report->n_warnings; i++) warnings[i] = report->warnings[i];
    warnings[report->n_warnings++] =
        "these runs do not tell E, below which no loss comes: what the law says of much larger "
        "budgets is too low. Longer runs of larger models would tell";
    report->warnings = warnings;
}

int cmd_fit(CliArgs *args) {
    Diag *diag = diag_create();
    FitReport report = {0};
    int status = EXIT_USAGE;
    LawFit *fit = NULL;
    const char **paths;
    int n_paths;
    if (sweep_expand_operands(args->arena, args->operands, args->n_operands, &paths, &n_paths,
                              diag) &&
        fit_runs_read(args->arena, paths, n_paths, &report, diag)) {
        fit = fit_law(args->arena, report.runs, report.n_runs, diag);
    }
    if (fit) {
        fit->law.name = "own runs";
        fit->law.source = arena_printf(args->arena, "perilune fit on %d runs; losses: %s",
                                       report.n_runs, report.losses);
        report.fit = fit;
        warn_of_e(args, &report);
        status = write_all(args, &report, diag) ? EXIT_DONE : EXIT_FAILED;
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
