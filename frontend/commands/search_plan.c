#include "frontend/commands/search_plan.h"

#include "frontend/commands/plan_args.h"
#include "frontend/progress_line.h"
#include "planner/plan/plan_library.h"
#include "planner/show/search_facts.h"

/* The plan of a layout that was found. NULL: reported. */
static Plan *plan_of(CliArgs *args, const SearchJob *job, const Found *found, Diag *diag) {
    const Candidate *of = &found->candidate;
    PlanRequest request = job->plan;
    PlanOptions *options = &request.options;
    options->mesh.size[MESH_T] = of->t;
    options->mesh.size[MESH_C] = candidate_c(of);
    options->mesh.size[MESH_E] = candidate_e(of);
    options->mesh.size[MESH_D] = of->d;
    options->mesh.size[MESH_P] = of->p;
    options->micro_batch = of->micro_batch;
    options->global_batch = job->request.global_batch;
    options->n_chunks = of->n_chunks;
    options->schedule = schedule_name(of->schedule);
    options->sequence_parallel = of->sequence_parallel;
    options->recompute = of->recompute;
    options->zero = of->zero;
    options->split = found->split;
    options->n_split = of->p * of->n_chunks;
    if (!plan_load_model(args, (int64_t)of->micro_batch * candidate_data(of), &request, diag))
        return NULL;
    return plan_make(args->arena, &request, diag);
}

/* The first layout whose plan fits to the byte, which nearly always is the first of all: what was
 * priced is off by what shards are padded with. Those before it are noted as refused. NULL: none,
 * with the least that one needs, or reported. */
static Plan *plan_first_fit(CliArgs *args, const SearchJob *job, double limit, ProgressLine *line,
                            SearchReport *report, int64_t *out_least, Diag *diag) {
    const SearchResult *result = report->result;
    RefusedLayout *refused = ARENA_ARRAY(args->arena, RefusedLayout, result->n_found);
    report->refused = refused;
    for (int i = 0; i < result->n_found; i++) {
        char text[LAYOUT_TEXT];
        progress_line_show(line, i, result->n_found,
                           layout_text(&result->found[i].candidate, text));
        Plan *plan = plan_of(args, job, &result->found[i], diag);
        if (!plan) return NULL;
        int64_t bytes = plan_fullest_bytes(plan);
        if ((double)bytes <= limit) {
            report->chosen = i;
            report->exact_bytes = bytes;
            return plan;
        }
        if (bytes < *out_least) *out_least = bytes;
        refused[report->n_refused++] = (RefusedLayout){i, bytes};
    }
    return NULL;
}

Plan *search_plan_best(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag) {
    double limit = search_memory_limit(&job->request, job->cluster);
    int64_t least = INT64_MAX;
    ProgressLine line = progress_line_start("planned");
    Plan *plan = plan_first_fit(args, job, limit, &line, report, &least, diag);
    progress_line_end(&line);
    if (plan || diag_error_count(diag) > 0) return plan;
    diag_error(
        diag, NO_LOC,
        "none of the %d best layouts fits once it is planned to the byte: %.2f GiB at least, "
        "of %.2f; --memory-limit makes the search leave more room",
        report->result->n_found, (double)least / (1 << 30), limit / (1 << 30));
    return NULL;
}
