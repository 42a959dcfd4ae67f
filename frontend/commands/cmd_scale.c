/* perilune scale: the best layout on each of several numbers of ranks. */
#include "frontend/commands/search_find.h"
#include "frontend/progress_line.h"
#include "planner/show/show_scale.h"

#include <limits.h>
#include <string.h>

static bool batch_of(const CliArgs *args, const SearchJob *job, int64_t first, int64_t last,
                     int64_t n_ranks, int *out, Diag *diag) {
    bool weak = cli_given(args, OPT_WEAK);
    int64_t batch = job->request.global_batch > 0 ? job->request.global_batch : weak ? first : last;
    if (weak) {
        if (batch * n_ranks % first) {
            diag_error(diag, NO_LOC,
                       "--weak: a global batch of %lld sequences on %lld ranks gives no whole "
                       "number on %lld",
                       (long long)batch, (long long)first, (long long)n_ranks);
            return false;
        }
        batch = batch * n_ranks / first;
    }
    if (batch > INT_MAX) {
        diag_error(diag, NO_LOC, "a global batch of %lld sequences is too large", (long long)batch);
        return false;
    }
    *out = (int)batch;
    return true;
}

static void search_rows(CliArgs *args, SearchJob *job, ScaleRow *rows, int n_rows,
                        ScaleReport *report) {
    ProgressLine line = progress_line_start("searched");
    for (int i = 0; i < n_rows; i++) {
        char what[48];
        snprintf(what, sizeof(what), "%d rank%s", rows[i].request.n_ranks,
                 rows[i].request.n_ranks == 1 ? "" : "s");
        progress_line_show(&line, i, n_rows, what);
        Diag *diag = diag_create();
        SearchFind find = search_find(args, job, &rows[i].request, true, diag);
        rows[i].result = find.result;
        rows[i].options = find.plan.options;
        if (!find.result) {
            rows[i].refusal = search_first_line(args->arena, diag);
        } else if (find.result->n_found == 0) {
            find.result->remedy = search_remedy(args, job, &rows[i].request);
        }
        diag_destroy(diag);
    }
    report->seconds = progress_line_end(&line);
}

static bool rows_from_args(CliArgs *args, const SearchJob *job, ScaleRow *rows, int *out_n,
                           Diag *diag) {
    int64_t first, last;
    int counts[SEARCH_MOST_RUNGS];
    if (!search_range_from_args(args, &first, &last, diag)) return false;
    int64_t most = job->cluster->max_devices;
    if (most > 0 && last > most) {
        diag_error(diag, NO_LOC, "--ranks: %lld: %s has %lld devices", (long long)last,
                   job->cluster->name, (long long)most);
        return false;
    }
    *out_n = search_pick_ranks(first, last, job->cluster->node.n_devices, counts);
    for (int i = 0; i < *out_n; i++) {
        rows[i].request = job->request;
        rows[i].request.n_ranks = counts[i];
        rows[i].request.n_top = 1;
        rows[i].request.leaves_out = PART_SAMPLES | PART_RANKS;
        if (!batch_of(args, job, first, last, counts[i], &rows[i].request.global_batch, diag)) {
            return false;
        }
    }
    return true;
}

static bool write_all(CliArgs *args, const ScaleReport *report, Diag *diag) {
    const char *page = cli_text(args, OPT_HTML_FILE, NULL);
    StrBuf out = strbuf_create();
    bool good = true;
    if (page) {
        show_scale_html(&out, report);
        good = cli_write(page, &out, diag);
        strbuf_destroy(&out);
        out = strbuf_create();
    }
    if (good && !(page && strcmp(page, "-") == 0)) {
        if (cli_given(args, OPT_JSON)) {
            show_scale_json(&out, report);
        } else {
            show_scale_text(&out, report);
        }
        good = cli_write(NULL, &out, diag);
    }
    strbuf_destroy(&out);
    return good;
}

static bool any_fits(const ScaleReport *report) {
    for (int i = 0; i < report->n_rows; i++) {
        if (report->rows[i].result && report->rows[i].result->n_found > 0) return true;
    }
    return false;
}

int cmd_scale(CliArgs *args) {
    Diag *diag = diag_create();
    ScaleRow rows[SEARCH_MOST_RUNGS] = {0};
    ScaleReport report = {.rows = rows, .weak = cli_given(args, OPT_WEAK)};
    int status = EXIT_USAGE;
    SearchJob *job = search_job_from_args(args, diag);
    if (job && rows_from_args(args, job, rows, &report.n_rows, diag)) {
        report.costs = job->costs;
        report.options = job->plan.options;
        report.days_tokens = job->days_tokens;
        report.failures = &job->failures;
        const char *warning = "no --global-batch was given: one sequence a rank is assumed";
        report.warnings = &warning;
        report.n_warnings = job->request.global_batch == 0;
        if (!report.weak && report.n_warnings) {
            warning = arena_printf(args->arena,
                                   "no --global-batch was given: %d sequences are "
                                   "assumed",
                                   rows[0].request.global_batch);
        }
        search_rows(args, job, rows, report.n_rows, &report);
        status = write_all(args, &report, diag) ? EXIT_DONE : EXIT_FAILED;
        if (status == EXIT_DONE && !any_fits(&report)) {
            diag_error(diag, NO_LOC, "no number of ranks in --ranks %s would do",
                       cli_text(args, OPT_RANKS, ""));
            status = EXIT_FAILED;
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
