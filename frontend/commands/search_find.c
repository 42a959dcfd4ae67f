#include "frontend/commands/search_find.h"

#include "frontend/commands/plan_args.h"
#include "frontend/progress_line.h"

#include <math.h>

enum { LOSS_PARTS = 16, EXPERT_PARTS = 2 };

/* Made when it is first asked for. NULL: the model has none (no experts, too few slots, no logits
 * to cut). */
static const SearchVariant *variant(CliArgs *args, SearchJob *job, int how) {
    SearchVariant *v = &job->variants[how];
    if (!v->made) {
        v->made = true;
        v->plan = job->plan;
        PlanOptions *options = &v->plan.options;
        if (how & VARIANT_EXPERT_PARTS) {
            options->expert_parts = EXPERT_PARTS;
            options->parts_if_divided = true;
        }
        if (how & VARIANT_LOSS_PARTS) options->loss_parts = LOSS_PARTS;
        if (how & VARIANT_LOW_STATES) options->state_dtype = DTYPE_BF16;
        if (how & VARIANT_STATES_IN_8_BITS) options->state_dtype = DTYPE_DYN8;
        if (how & VARIANT_LOW_GRADIENTS) options->gradient_dtype = DTYPE_BF16;
        if (how & VARIANT_SPLIT_MASTERS) options->split_masters = true;
        int halves = how % VARIANT_OFFLOAD / VARIANT_ACTIVATIONS;
        if (halves) options->offload_activations = halves * 50;
        if (how >= VARIANT_OFFLOAD)
            options->offload = how / VARIANT_OFFLOAD * 100 / OFFLOAD_QUARTERS;
        Diag *aside = diag_create();
        v->costs =
            how ? model_costs_create(args->arena, &v->plan, job->cluster, aside) : job->costs;
        diag_destroy(aside);
        const SearchVariant *whole =
            how & VARIANT_EXPERT_PARTS ? variant(args, job, how - VARIANT_EXPERT_PARTS) : NULL;
        if (v->costs && whole) model_costs_share(v->costs, whole->costs);
    }
    return v->costs ? v : NULL;
}

/* What is under way, and its line. */
typedef struct SearchLine {
    const char *what;
    int n_begun;
    ProgressLine line;
} SearchLine;

static void show_progress(void *user, const char *what, int n_begun, int n_items) {
    SearchLine *on = user;
    if (on->what != what || n_begun < on->n_begun) { /* another piece of work */
        if (on->what) progress_line_end(&on->line);
        *on = (SearchLine){what, 0, progress_line_start(what)};
    }
    on->n_begun = n_begun;
    progress_line_show(&on->line, n_begun, n_items, "search");
}

/* The request, with who is told how far it is; ends with progress_line_end. */
static SearchRequest watch(const CliArgs *args, const SearchRequest *request, SearchLine *on) {
    SearchRequest watched = *request;
    *on = (SearchLine){0};
    if (!cli_given(args, OPT_QUIET)) watched.crew.progress = show_progress;
    watched.crew.user = on;
    return watched;
}

/* beats_us: of interest if it is as fast; 0: in any case. */
static SearchFind find_with(CliArgs *args, SearchJob *job, const SearchRequest *request, int how,
                            double beats_us, Diag *diag) {
    const SearchVariant *v = variant(args, job, how);
    if (!v) return (SearchFind){0};
    SearchLine on;
    SearchRequest watched = watch(args, request, &on);
    watched.beats_us = beats_us;
    /* Variants are looked at for what fits alone. */
    if (how) watched.leaves_out |= PART_RANKS | PART_MISSING;
    SearchFind find = {search_layouts(args->arena, v->costs, &watched, diag), v->costs, v->plan};
    if (on.what) progress_line_end(&on.line);
    return find;
}

static bool has_bf16(const SearchJob *job) {
    return dtype_of_activations(job->plan.options.precision) == DTYPE_BF16;
}

static bool found_any(const SearchFind *find) {
    return find->result && find->result->n_found > 0;
}

bool search_has_runs(const CliArgs *args, const SearchJob *job, const SearchRequest *request) {
    bool hides = job->cluster->software.overlaps_block && job->costs->n_experts > 1;
    return hides && !cli_given(args, OPT_EXPERT_PARTS) && request->e != 1;
}

/* The faster of experts' slots as one and, where e divides them, in two runs. */
static SearchFind find_runs(CliArgs *args, SearchJob *job, const SearchRequest *request, int how,
                            bool runs, Diag *diag) {
    SearchFind one = find_with(args, job, request, how, 0, diag);
    if (!one.result || !runs || !search_has_runs(args, job, request)) return one;
    Diag *aside = diag_create();
    double beats_us = found_any(&one) ? one.result->found[0].cost.step_us : 0;
    SearchFind two = find_with(args, job, request, how | VARIANT_EXPERT_PARTS, beats_us, aside);
    diag_destroy(aside);
    if (!found_any(&two)) return one;
    if (found_any(&one) && one.result->found[0].cost.step_us < two.result->found[0].cost.step_us) {
        return one;
    }
    two.result->seconds += one.result->seconds;
    return two;
}

enum { MOST_WAYS = 4 };

/* As it is; and, for where nothing fits, with copies of weights that are halves of them, which
 * costs nothing, with logits in parts, and with both: those that were not said by hand. */
static int list_ways(const CliArgs *args, const SearchJob *job, int how, int ways[MOST_WAYS]) {
    const int MORE[] = {VARIANT_SPLIT_MASTERS, VARIANT_LOSS_PARTS,
                        VARIANT_SPLIT_MASTERS | VARIANT_LOSS_PARTS};
    int said = 0, n = 0;
    if (cli_given(args, OPT_LOSS_PARTS)) said |= VARIANT_LOSS_PARTS;
    /* Offloaded masters are whole, and so are those that a formula or an average reads. */
    bool whole = how >= VARIANT_OFFLOAD || job->plan.recipe.optimizer == OPTIMIZER_RULE ||
                 job->plan.options.ema_decay != 0;
    if (cli_given(args, OPT_MASTERS) || !has_bf16(job) || whole) said |= VARIANT_SPLIT_MASTERS;
    ways[n++] = how;
    for (int i = 0; i < 3; i++) {
        if (!(MORE[i] & said)) ways[n++] = how | MORE[i];
    }
    return n;
}

/* In the first of these ways in which anything fits. */
static SearchFind find_near(CliArgs *args, SearchJob *job, const SearchRequest *request, int how,
                            bool runs, Diag *diag) {
    SearchFind first = find_runs(args, job, request, how, runs, diag);
    if (!first.result || found_any(&first)) return first;
    double seconds = first.result->seconds;
    int ways[MOST_WAYS], n = list_ways(args, job, how, ways);
    for (int i = 1; i < n; i++) {
        Diag *aside = diag_create();
        SearchFind find = find_runs(args, job, request, ways[i], runs, aside);
        diag_destroy(aside);
        if (!find.result) continue;
        seconds += find.result->seconds;
        find.result->seconds = seconds;
        if (found_any(&find)) return find;
    }
    return first;
}

static double step_of(const SearchFind *find) {
    return found_any(find) ? find->result->found[0].cost.step_us : INFINITY;
}

static int64_t host_bytes_of(const SearchFind *find) {
    return find->result->found[0].cost.host_bytes;
}

/* The best of what was looked at with something in the hosts' memory. */
typedef struct OffloadFind {
    CliArgs *args;
    SearchJob *job;
    const SearchRequest *request;
    bool runs;
    SearchFind *best;
    double near_us, best_us, seconds; /* near_us: with nothing there */
} OffloadFind;

/* Is there any with it? It is taken if a step is shorter by a hundredth than with nothing there,
 * and than the best by that or, if less is there than of the best, about as short. */
static bool try_offloaded(OffloadFind *of, int how) {
    const double worth = 0.99, alike = 1.002;
    Diag *aside = diag_create();
    SearchFind find = find_near(of->args, of->job, of->request, how, of->runs, aside);
    diag_destroy(aside);
    if (find.result) of->seconds += find.result->seconds;
    if (!found_any(&find)) return false;
    double us = step_of(&find);
    bool less = found_any(of->best) && host_bytes_of(&find) < host_bytes_of(of->best);
    if (us >= worth * of->near_us || us >= (less ? alike : worth) * of->best_us) return true;
    of->best_us = us;
    *of->best = find;
    return true;
}

/* With some or all states and masters in the hosts' memory: the fastest, and of those that are
 * about as fast the one that needs least there. If all of them do not make room, fewer will not.
 * With activations there, and some or no states, if `all`, or where nothing fits yet. */
static void find_offloaded(CliArgs *args, SearchJob *job, const SearchRequest *request, int how,
                           bool runs, bool all, SearchFind *best) {
    double us = step_of(best);
    OffloadFind of = {args, job, request, runs, best, us, us, best->result->seconds};
    for (int quarters = OFFLOAD_QUARTERS; quarters > 0; quarters--) {
        if (!try_offloaded(&of, how + quarters * VARIANT_OFFLOAD)) break;
    }
    if (all || !found_any(best)) {
        for (int quarters = 0; quarters <= OFFLOAD_QUARTERS; quarters += OFFLOAD_QUARTERS) {
            int with = how + quarters * VARIANT_OFFLOAD;
            if (try_offloaded(&of, with + 2 * VARIANT_ACTIVATIONS))
                try_offloaded(&of, with + VARIANT_ACTIVATIONS);
        }
    }
    best->result->seconds = of.seconds;
}

static bool knows_bus(const SearchJob *job) {
    return job->cluster->node.host_bytes_per_second > 0 && !job->cluster->is_cpu;
}

/* Unasked only where nothing fits otherwise, and the bus is known. */
static SearchFind find_fitting(CliArgs *args, SearchJob *job, const SearchRequest *request, int how,
                               bool runs, Diag *diag) {
    bool asked = plan_offload_is_searched(args), given = cli_given(args, OPT_OFFLOAD);
    SearchFind best = find_near(args, job, request, how, runs, diag);
    if (best.result && knows_bus(job) && (asked || (!given && !found_any(&best)))) {
        find_offloaded(args, job, request, how, runs, asked, &best);
    }
    return best;
}

SearchFind search_find(CliArgs *args, SearchJob *job, const SearchRequest *request, bool runs,
                       Diag *diag) {
    return find_fitting(args, job, request, 0, runs, diag);
}

static bool fits_near(CliArgs *args, SearchJob *job, const SearchRequest *request, int how) {
    int ways[MOST_WAYS], n = list_ways(args, job, how, ways);
    bool fits = false;
    for (int i = 0; i < n && !fits; i++) {
        const SearchVariant *v = variant(args, job, ways[i]);
        if (!v && i == 0) return false;
        if (!v) continue;
        SearchLine on;
        const SearchRequest watched = watch(args, request, &on);
        fits = search_finds_any(v->costs, &watched);
        if (on.what) progress_line_end(&on.line);
    }
    return fits;
}

/* Would find_fitting find anything? */
static bool fits_with(CliArgs *args, SearchJob *job, const SearchRequest *request, int how) {
    bool offloads =
        knows_bus(job) && (plan_offload_is_searched(args) || !cli_given(args, OPT_OFFLOAD));
    const int MORE[] = {OFFLOAD_QUARTERS * VARIANT_OFFLOAD, 2 * VARIANT_ACTIVATIONS,
                        OFFLOAD_QUARTERS * VARIANT_OFFLOAD + 2 * VARIANT_ACTIVATIONS};
    bool fits = fits_near(args, job, request, how);
    for (int i = 0; i < 3 && offloads && !fits; i++) {
        fits = fits_near(args, job, request, how + MORE[i]);
    }
    return fits;
}

/* The least first: gradients are rounded once, where PyTorch's autocast does so, too. */
const char *search_remedy(CliArgs *args, SearchJob *job, const SearchRequest *request) {
    static const struct {
        int how;
        const char *text;
    } REMEDIES[] = {
        {VARIANT_LOW_GRADIENTS, "--gradients bf16"},
        {VARIANT_LOW_STATES, "--optimizer-state bf16"},
        {VARIANT_LOW_GRADIENTS | VARIANT_LOW_STATES, "--gradients bf16 --optimizer-state bf16"},
        {VARIANT_STATES_IN_8_BITS, "--optimizer-state dyn8"},
        {VARIANT_LOW_GRADIENTS | VARIANT_STATES_IN_8_BITS,
         "--gradients bf16 --optimizer-state dyn8"}};
    int said = 0;
    if (!has_bf16(job) || cli_given(args, OPT_GRADIENTS)) said |= VARIANT_LOW_GRADIENTS;
    if (cli_given(args, OPT_OPTIMIZER_STATE)) said |= VARIANT_LOW_STATES | VARIANT_STATES_IN_8_BITS;
    for (size_t i = 0; i < sizeof(REMEDIES) / sizeof(REMEDIES[0]); i++) {
        if (REMEDIES[i].how & said) continue;
        if (fits_with(args, job, request, REMEDIES[i].how)) return REMEDIES[i].text;
    }
    return NULL;
}
