#include "frontend/commands/train_layout.h"

#include "frontend/commands/engine_args.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/search_find.h"
#include "frontend/commands/search_plan.h"
#include "frontend/progress_line.h"
#include "planner/show/search_facts.h"
#include "planner/show/show_facts.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <string.h>

enum { LARGEST_ODD = 15, MOST_COUNTS = 1 + (LARGEST_ODD + 1) / 2, N_FOUND = 16 };

/* What jobs whose layout is searched have in common while they have no plan ("layout"). */
static const uint64_t NO_PLAN_YET = UINT64_C(0x6c61796f7574);

bool train_layout_is_wanted(const CliArgs *args) {
    return search_is_wanted(args) && plan_is_model(args->operand);
}

/* Without these a run would be another one on other machines. */
static bool check_options(const CliArgs *args, Diag *diag) {
    if (cli_given(args, OPT_GLOBAL_BATCH)) return true;
    diag_error(
        diag, NO_LOC,
        "train: --global-batch: how many sequences a step? with --cluster or --ranks it must "
        "be given, so that the number of ranks does not change what is learned");
    return false;
}

/* How many ranks to find layouts for where `world` processes were started: all of them, and less
 * than twice as few, as products of a power of two and a small odd number, which batches and models
 * have as divisors. Of several whole nodes, whole nodes. */
static int pick_counts(int world, int n_per_node, int out[MOST_COUNTS]) {
    bool whole_nodes = world > n_per_node && world % n_per_node == 0;
    int n = 0;
    out[n++] = world;
    for (int odd = 1; odd <= LARGEST_ODD && odd < world; odd += 2) {
        int count = odd;
        while (count * 2 <= world) count *= 2;
        if (count < world && (!whole_nodes || count % n_per_node == 0)) out[n++] = count;
    }
    return n;
}

/* What was found for each number of ranks. */
typedef struct Finds {
    int n, counts[MOST_COUNTS];
    SearchRequest requests[MOST_COUNTS];
    SearchFind found[MOST_COUNTS]; /* no result: cannot be */
    int best;                      /* -1: none fits */
    int64_t n_layouts;
    double seconds;
} Finds;

/* Fewer ranks than all must be faster by more than predictions can be told apart by. */
static bool is_faster(const Finds *finds, int i) {
    double best_us = finds->found[finds->best].result->found[0].cost.step_us;
    return finds->found[i].result->found[0].cost.step_us < best_us * (finds->best == 0 ? 0.97 : 1);
}

/* Of the number of ranks that is taken, also with experts' slots in runs. */
static void look_at_runs(CliArgs *args, SearchJob *job, Finds *finds) {
    const SearchRequest *request = &finds->requests[finds->best];
    if (!search_has_runs(args, job, request)) return;
    Diag *aside = diag_create();
    SearchFind find = search_find(args, job, request, true, aside);
    if (find.result) finds->found[finds->best] = find;
    diag_destroy(aside);
}

/* Of equally fast ones the first. Why the first of all has none is reported. */
static bool search_counts(CliArgs *args, SearchJob *job, Finds *finds, Diag *diag) {
    ProgressLine line = progress_line_start("searched");
    finds->best = -1;
    for (int i = 0; i < finds->n; i++) {
        char what[48];
        snprintf(what, sizeof(what), "%d ranks", finds->counts[i]);
        progress_line_show(&line, i, finds->n, what);
        Diag *aside = i == 0 && finds->n == 1 ? diag : diag_create();
        SearchRequest *request = &finds->requests[i];
        *request = job->request;
        request->n_ranks = finds->counts[i];
        request->n_top = N_FOUND;
        request->leaves_out = PART_SAMPLES | (i > 0 ? PART_RANKS : 0);
        finds->found[i] = search_find(args, job, request, false, aside);
        if (aside != diag) diag_destroy(aside);
        const SearchResult *result = finds->found[i].result;
        if (!result) continue;
        finds->n_layouts += result->n_candidates;
        if (result->n_found == 0) continue;
        if (finds->best < 0 || is_faster(finds, i)) finds->best = i;
    }
    if (finds->best >= 0) look_at_runs(args, job, finds);
    finds->seconds = progress_line_end(&line);
    if (finds->best >= 0) return true;
    SearchResult *all = finds->found[0].result;
    if (all) {
        StrBuf why = strbuf_create();
        all->remedy = search_remedy(args, job, &finds->requests[0]);
        show_search_nothing(&why, &finds->requests[0], all, job->cluster);
        diag_error(diag, NO_LOC, "%s", why.text);
        strbuf_destroy(&why);
    } else if (finds->n > 1) { /* says what contradicts what */
        search_layouts(args->arena, job->costs, &finds->requests[0], diag);
    }
    return false;
}

static const char *describe(Arena *arena, const Cluster *cluster, const Finds *finds,
                            const SearchReport *report) {
    char layout[LAYOUT_TEXT], time[UNIT_TEXT];
    const Found *best = &report->result->found[report->chosen];
    int n_ranks = finds->counts[finds->best], world = finds->counts[0];
    StrBuf out = strbuf_create();
    strbuf_printf(&out,
                  "layout  %s: predicted %s a step on %s, the best of %" PRId64 " in %.2f s\n",
                  layout_text(&best->candidate, layout), unit_us(best->cost.step_us, time),
                  cluster->name, finds->n_layouts, finds->seconds);
    const PlanOptions *options = &finds->found[finds->best].plan.options;
    SearchRemark remarks[SEARCH_REMARKS];
    int n = search_remarks(arena, options, best, remarks);
    for (int i = 0; i < n; i++) {
        strbuf_printf(&out, "        %s %s\n", remarks[i].label, remarks[i].text);
    }
    for (int i = 0; i < report->n_refused; i++) {
        strbuf_put(&out, "        left out: ");
        refused_put(&out, report, i, search_memory_limit(&finds->requests[finds->best], cluster));
        strbuf_put(&out, "\n");
    }
    if (n_ranks < world) {
        const SearchResult *all = finds->found[0].result;
        strbuf_printf(&out, "        %d of %d processes have nothing to do: ", world - n_ranks,
                      world);
        if (all && all->n_found > 0) {
            strbuf_printf(&out, "with all of them a step is predicted to take %s\n",
                          unit_us(all->found[0].cost.step_us, time));
        } else {
            strbuf_put(&out, all ? "no layout of all of them fits\n"
                                 : "batch and model cannot be divided over all of them\n");
        }
    }
    const char *text = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return text;
}

/* Rank 0's part: the plan, for `world` processes or (1) for as many ranks as the options say.
 * *out_status changes where it is not the input that is wrong. */
static Plan *find_plan(CliArgs *args, int world, TrainLayout *out, int *out_status, Diag *diag) {
    SearchJob *job = search_job_from_args(args, diag);
    if (!job) return NULL;
    bool says_ranks = cli_given(args, OPT_RANKS);
    Finds finds = {.n = 1, .counts = {world}};
    const SearchRequest *fixed = &job->request;
    if (says_ranks || (fixed->t && fixed->d && fixed->p)) {
        finds.counts[0] = search_ranks_from_args(args, job, diag);
        if (finds.counts[0] == 0) return NULL;
        says_ranks = true;
    }
    if (world > 1 && finds.counts[0] != world) {
        diag_error(diag, NO_LOC, "%d processes were started for %d ranks%s", world, finds.counts[0],
                   cli_given(args, OPT_RANKS) ? "; leave out --ranks" : "");
        return NULL;
    }
    if (world > 1 && !says_ranks) {
        finds.n = pick_counts(world, job->cluster->node.n_devices, finds.counts);
    }
    if (!search_counts(args, job, &finds, diag)) {
        if (finds.found[0].result)
            *out_status = EXIT_FAILED; /* nothing fits, as perilune plan ends */
        return NULL;
    }
    *out_status = EXIT_FAILED;
    const SearchFind *best = &finds.found[finds.best];
    SearchReport report = {.result = best->result};
    job->costs = best->costs;
    job->plan = best->plan;
    Plan *plan = search_plan_best(args, job, &report, diag);
    if (plan) out->text = describe(args->arena, job->cluster, &finds, &report);
    return plan;
}

/* Rank 0's text (NULL: it has none, which it has reported) on all ranks. NULL: reported. */
static const char *share_text(Arena *arena, Control *control, bool is_first, const char *text,
                              Diag *diag) {
    int64_t n_bytes = text ? (int64_t)strlen(text) : 0;
    const char *why = "rank 0 made no plan";
    /* However long rank 0 searches. */
    bool good = control_await(control) && control_broadcast(control, 0, &n_bytes, sizeof(n_bytes));
    char *copy = arena_alloc(arena, (size_t)n_bytes + 1);
    if (is_first && good) memcpy(copy, text ? text : "", (size_t)n_bytes);
    good = good && control_share(control, 0, copy, (size_t)n_bytes) && control_close(control);
    if (good && n_bytes > 0) {
        copy[n_bytes] = '\0';
        return copy;
    }
    if (!good) control_failed(control, &why);
    if (!is_first || !good) diag_error(diag, NO_LOC, "%s", why);
    return NULL;
}

/* The text of rank 0's plan, on every process of a job. NULL: reported. */
static const char *agree_on_plan(CliArgs *args, const LaunchEnvironment *launch, TrainLayout *out,
                                 int *out_status, Diag *diag) {
    StrBuf own = strbuf_create();
    Plan *plan = NULL;
    *out_status = EXIT_FAILED;
    Control *control = engine_args_connect(args, launch, NO_PLAN_YET, diag);
    if (control && launch->rank == 0) {
        int status = EXIT_USAGE;
        plan = find_plan(args, launch->world, out, &status, diag);
        if (plan) plan_print(&own, plan);
        if (!plan) *out_status = status;
    }
    const char *text =
        control ? share_text(args->arena, control, launch->rank == 0, plan ? own.text : NULL, diag)
                : NULL;
    control_destroy(control);
    strbuf_destroy(&own);
    return text;
}

Plan *train_layout(CliArgs *args, TrainLayout *out, int *out_status, Diag *diag) {
    LaunchEnvironment launch;
    *out = (TrainLayout){0};
    *out_status = EXIT_USAGE;
    if (!check_options(args, diag) || !launch_read_environment(&launch, diag)) return NULL;
    if (launch.world == 1) return find_plan(args, 1, out, out_status, diag);
    const char *text = agree_on_plan(args, &launch, out, out_status, diag);
    if (!text) return NULL;
    args->joined = false; /* that job has ended well; the plan's begins */
    Plan *plan = plan_from_text(args->arena, "rank 0's plan", text, diag);
    if (!plan) return NULL;
    out->unused = launch.rank >= mesh_rank_count(&plan->mesh);
    if (!out->unused) return plan;
    fprintf(stderr, "perilune: rank %d has nothing to do: the layout has %d ranks\n", launch.rank,
            mesh_rank_count(&plan->mesh));
    *out_status = EXIT_DONE;
    return NULL;
}
