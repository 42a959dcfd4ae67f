#include "frontend/commands/search_plan.h"

#include "frontend/commands/plan_args.h"
#include "frontend/progress_line.h"
#include "planner/plan/plan_library.h"
#include "planner/show/search_facts.h"

#include <string.h>

/* The plan of a layout that was found, in `arena`. NULL: reported. */
static Plan *plan_of(CliArgs *args, const SearchJob *job, const Found *found, Arena *arena,
                     Diag *diag) {
    const Candidate *of = &found->candidate;
    PlanRequest request = job->plan;
    PlanOptions *options = &request.options;
    options->mesh.size[MESH_T] = of->t;
    options->mesh.size[MESH_C] = candidate_c(of);
    options->mesh.size[MESH_E] = candidate_e(of);
    options->mesh.size[MESH_D] = of->d;
    options->mesh.size[MESH_R] = candidate_r(of);
    options->mesh.size[MESH_P] = of->p;
    options->micro_batch = of->micro_batch;
    options->global_batch = job->request.global_batch;
    options->n_chunks = of->n_chunks;
    options->schedule = schedule_name(of->schedule);
    options->sequence_parallel = of->sequence_parallel;
    options->recompute = of->recompute;
    options->lanes = candidate_lanes(of);
    options->zero = of->zero;
    options->join_messages = of->joins_messages;
    options->split = found->split;
    options->n_split = of->p * of->n_chunks;
    int64_t batch = (int64_t)of->micro_batch * candidate_data(of);
    return plan_model(args, arena, batch, &request, diag);
}

/* Why there is no plan, or none that fits. */
static void refuse(Arena *arena, SearchReport *report, RefusedLayout *refused, int found,
                   int64_t bytes, const Diag *why) {
    const char *text = diag_text(why);
    const char *reason = bytes ? NULL : arena_strndup(arena, text, strcspn(text, "\n"));
    refused[report->n_refused++] = (RefusedLayout){found, bytes, reason};
}

/* The first layout that can be planned and whose plan fits to the byte, which nearly always is the
 * first of all: what was priced is off by what shards are padded with, and a search does not meet
 * every limit of a plan. Those before it are noted as refused, and nothing of them stays. NULL:
 * none. */
static Plan *plan_first_fit(CliArgs *args, const SearchJob *job, double limit, ProgressLine *line,
                            SearchReport *report) {
    const SearchResult *result = report->result;
    RefusedLayout *refused = ARENA_ARRAY(args->arena, RefusedLayout, result->n_found);
    report->refused = refused;
    for (int i = 0; i < result->n_found; i++) {
        char text[LAYOUT_TEXT];
        progress_line_show(line, i, result->n_found,
                           layout_text(&result->found[i].candidate, text));
        Arena *arena = arena_create();
        Diag *why = diag_create();
        Plan *plan = plan_of(args, job, &result->found[i], arena, why);
        int64_t bytes = plan ? plan_fullest_bytes(plan) : 0;
        bool fits = plan && (double)bytes <= limit;
        if (fits) {
            report->chosen = i;
            report->exact_bytes = bytes;
            arena_own(args->arena, arena);
        } else {
            refuse(args->arena, report, refused, i, bytes, why);
            arena_destroy(arena);
        }
        diag_destroy(why);
        if (fits) return plan;
    }
    return NULL;
}

/* None of what was found: the least that one needs, or why the best has no plan. */
static void report_refused(const SearchReport *report, double limit, Diag *diag) {
    int64_t least = INT64_MAX;
    const char *reason = NULL; /* the first one's */
    int n_unplanned = 0;
    for (int i = 0; i < report->n_refused; i++) {
        const RefusedLayout *refused = &report->refused[i];
        if (refused->reason && !reason) reason = refused->reason;
        n_unplanned += refused->reason != NULL;
        if (!refused->reason && refused->exact_bytes < least) least = refused->exact_bytes;
    }
    if (n_unplanned == report->n_refused) {
        diag_error(diag, NO_LOC, "none of the %d best layouts can be planned; the first: %s",
                   n_unplanned, reason);
        return;
    }
    diag_error(
        diag, NO_LOC,
        "none of the %d best layouts fits once it is planned to the byte: %.2f GiB at least, "
        "of %.2f; --memory-limit makes the search leave more room",
        report->n_refused - n_unplanned, (double)least / (1 << 30), limit / (1 << 30));
    if (reason)
        diag_note(diag, NO_LOC, "%d more cannot be planned; the first: %s", n_unplanned, reason);
}

Plan *search_plan_best(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag) {
    double limit = search_memory_limit(&job->request, job->cluster);
    ProgressLine line = progress_line_start("planned");
    Plan *plan = plan_first_fit(args, job, limit, &line, report);
    progress_line_end(&line);
    if (!plan) report_refused(report, limit, diag);
    return plan;
}
