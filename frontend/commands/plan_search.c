#include "frontend/commands/plan_search.h"

#include "frontend/commands/search_find.h"
#include "frontend/commands/search_plan.h"
#include "planner/show/search_facts.h"
#include "planner/simulate/simulate_candidate.h"

#include <string.h>

enum { DEFAULT_TOP = 5, LEAST_FOUND = 16 };

bool plan_without_search(const CliArgs *args, Diag *diag) {
    static const CliOption ONLY[] = {OPT_SOFTWARE,
                                     OPT_MEMORY_LIMIT,
                                     OPT_DAYS_FOR_TOKENS,
                                     OPT_MTBF,
                                     OPT_CHECKPOINT_SECONDS,
                                     OPT_RESTART_MINUTES,
                                     OPT_CHECKPOINT_ASYNC,
                                     OPT_ISLANDS,
                                     OPT_OUTER_EVERY,
                                     OPT_OUTER_PARTS,
                                     OPT_OUTER_OVERLAP,
                                     OPT_OUTER_DTYPE,
                                     OPT_OUTER_LINK,
                                     OPT_TOP,
                                     OPT_EXPLAIN,
                                     OPT_HTML_FILE};
    for (size_t i = 0; i < sizeof(ONLY) / sizeof(*ONLY); i++) {
        if (!cli_given(args, ONLY[i])) continue;
        diag_error(diag, NO_LOC, "--%s: only with --cluster or --ranks, which search for a layout",
                   CLI_OPTIONS[ONLY[i]].name);
        return false;
    }
    return true;
}

static bool set_counts(CliArgs *args, SearchJob *job, SearchReport *report, Diag *diag) {
    SearchRequest *request = &job->request;
    request->n_ranks = search_ranks_from_args(args, job, diag);
    if (request->n_ranks == 0) return false;
    int n_top = (int)cli_int(args, OPT_TOP, DEFAULT_TOP);
    request->n_top = n_top + 1 > LEAST_FOUND ? n_top + 1 : LEAST_FOUND;
    report->n_top = n_top;
    report->explain = cli_given(args, OPT_EXPLAIN);
    if (!cli_given(args, OPT_HTML_FILE)) request->leaves_out = PART_SAMPLES;
    request->explain =
        report->explain || cli_given(args, OPT_JSON) || cli_given(args, OPT_HTML_FILE);
    if (request->global_batch > 0) return true;
    request->global_batch = search_assumed_batch(request);
    const char **warnings = ARENA_ARRAY(args->arena, const char *, 1);
    warnings[0] = arena_printf(args->arena, "no --global-batch was given: %d sequences are assumed",
                               request->global_batch);
    report->warnings = warnings;
    report->n_warnings = 1;
    return true;
}

/* Plays the best layout again, with spans, for the page. */
static bool simulate_best(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag) {
    const Found *best = &report->result->found[report->chosen];
    const Candidate *of = &best->candidate;
    const char *reason;
    report->layout = model_costs_divided(job->costs, of->t, candidate_c(of), candidate_e(of),
                                         of->sequence_parallel, of->recompute, of->micro_batch,
                                         candidate_lanes(of), &reason);
    if (!report->layout) return true;
    PipelineLoad *load =
        candidate_load(NULL, args->arena, job->costs, report->layout, of, best->split);
    PipelineResult *step = ARENA_NEW(args->arena, PipelineResult);
    load->spans = true;
    if (!pipeline_sim_run(pipeline_sim_create(args->arena), load, step, diag)) return false;
    report->load = load;
    report->step = step;
    return true;
}

static bool write_page(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag) {
    const char *path = cli_text(args, OPT_HTML_FILE, NULL);
    if (!path) return true;
    if (!simulate_best(args, job, report, diag)) return false;
    StrBuf out = strbuf_create();
    show_search_html(&out, report);
    bool good = cli_write(path, &out, diag);
    strbuf_destroy(&out);
    return good;
}

/* Blocks that are computed again for want of memory may not have to be. */
static const char *find_hint(const CliArgs *args, const SearchJob *job,
                             const SearchReport *report) {
    const Candidate *best = &report->result->found[report->chosen].candidate;
    bool known = job->cluster->node.host_bytes_per_second > 0 && !job->cluster->is_cpu;
    bool said = cli_given(args, OPT_OFFLOAD) || cli_given(args, OPT_RECOMPUTE);
    if (!known || said || best->recompute != RECOMPUTE_FULL ||
        report->options.offload_activations > 0)
        return NULL;
    if (report->options.offload > 0) {
        return "all blocks are computed again for want of memory: --offload auto asks whether what "
               "they keep, in the nodes' memory, too, would be faster";
    }
    return "all blocks are computed again for want of memory: --offload auto asks whether states, "
           "or what blocks keep, in the nodes' memory would be faster";
}

/* The plan to -o, the page to --html, what was found to standard output; unless one of these goes
 * there. */
static bool write_all(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    StrBuf out = strbuf_create();
    bool good = true, to_stdout = path && strcmp(path, "-") == 0;
    if (path) {
        Plan *plan = search_plan_best(args, job, report, diag);
        if (plan && to_stdout) plan_print(&out, plan);
        good = plan && (to_stdout || plan_write(plan, path, diag));
    }
    if (good) report->hint = find_hint(args, job, report);
    good = good && write_page(args, job, report, diag);
    if (good && !to_stdout && strcmp(cli_text(args, OPT_HTML_FILE, ""), "-") != 0) {
        if (cli_given(args, OPT_JSON)) {
            show_search_json(&out, report);
        } else {
            show_search_text(&out, report);
        }
    }
    good = good && (out.length == 0 || cli_write(NULL, &out, diag));
    strbuf_destroy(&out);
    return good;
}

static int report_nothing(const CliArgs *args, const SearchJob *job, const SearchResult *result,
                          Diag *diag) {
    StrBuf out = strbuf_create();
    if (cli_given(args, OPT_JSON)) {
        show_search_nothing_json(&out, &job->request, result, job->cluster);
        cli_write(NULL, &out, diag);
        strbuf_destroy(&out);
        out = strbuf_create();
    }
    show_search_nothing(&out, &job->request, result, job->cluster);
    diag_error(diag, NO_LOC, "%s", out.text);
    strbuf_destroy(&out);
    return EXIT_FAILED;
}

int plan_by_search(CliArgs *args) {
    Diag *diag = diag_create();
    SearchReport report = {0};
    int status = EXIT_USAGE;
    SearchJob *job = search_job_from_args(args, diag);
    if (job && set_counts(args, job, &report, diag)) {
        SearchFind find = search_find(args, job, &job->request, true, diag);
        SearchResult *result = find.result;
        if (result) {
            job->costs = find.costs;
            job->plan = find.plan;
        }
        report.costs = job->costs;
        report.request = &job->request;
        report.result = result;
        report.options = job->plan.options;
        report.days_tokens = job->days_tokens;
        report.failures = &job->failures;
        report.islands = &job->islands;
        if (result && result->n_found == 0) {
            result->remedy = search_remedy(args, job, &job->request);
            status = report_nothing(args, job, result, diag);
        } else if (result) {
            status = write_all(args, job, &report, diag) ? EXIT_DONE : EXIT_FAILED;
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
