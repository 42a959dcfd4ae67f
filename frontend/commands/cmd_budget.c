/* perilune budget: which size of a model a number of days, a sum of money or a loss asks for. */
#include "frontend/commands/search_find.h"
#include "frontend/commands/search_plan.h"
#include "frontend/lua/model.h"
#include "frontend/progress_line.h"
#include "planner/show/search_facts.h"
#include "planner/show/show_budget.h"

#include <math.h>
#include <string.h>

enum { MOST_SIZES = 64, LEAST_FOUND = 16 };
/* Vocabularies are often filled up by some per cent. */
static const double MOST_PADDING = 1.1;
static const char DEFAULT_LAW[] = "besiroglu-2024";

/* One command. */
typedef struct Budget {
    CliArgs *args;
    Diag *diag;
    int n_sizes;
    const char *sizes[MOST_SIZES];
    BudgetRow rows[MOST_SIZES];
    SearchJob *jobs[MOST_SIZES]; /* of the rows */
    const char *warnings[4];
    BudgetReport report;
} Budget;

/* --- what was asked for --- */

static bool check_options(const CliArgs *args, Diag *diag) {
    int n =
        cli_given(args, OPT_DAYS) + cli_given(args, OPT_MONEY) + cli_given(args, OPT_TARGET_LOSS);
    const CliValue *set = &args->values[OPT_SET];
    for (int i = 0; i < set->n_list; i++) {
        if (strncmp(set->list[i], "size=", 5) != 0) continue;
        diag_error(diag, NO_LOC,
                   "--set size: the size is what is looked for; --sizes says among "
                   "which");
        return false;
    }
    if (cli_given(args, OPT_SET_FROM)) {
        diag_error(diag, NO_LOC,
                   "--set-from: a file of weights is of one size, and the size is what "
                   "is looked for; --sizes says among which");
    } else if (n != 1) {
        diag_error(diag, NO_LOC, "%s: --days of the ranks, --money for them, or a --loss to reach",
                   n == 0 ? "what is the budget?" : "a budget is one of these");
    } else {
        return true;
    }
    return false;
}

static bool find_law(Budget *budget) {
    const char *name = cli_text(budget->args, OPT_LAW, DEFAULT_LAW);
    const ScalingLaw *law =
        law_is_path(name) ? law_read(budget->args->arena, name, budget->diag) : law_find(name);
    double loss = cli_real(budget->args, OPT_TARGET_LOSS, INFINITY);
    budget->report.law = law;
    budget->report.law_name = name;
    if (law && loss <= law->terms.e) {
        diag_error(budget->diag, NO_LOC,
                   "--loss: %.6g is not above E, %.6g, below which no model comes by law %s", loss,
                   law->terms.e, name);
        return false;
    }
    if (law || law_is_path(name)) return law;
    const char *names = "";
    for (int i = 0; law_shipped(i); i++) {
        names = arena_printf(budget->args->arena, "%s%s, ", names, law_shipped(i)->name);
    }
    diag_error(budget->diag, NO_LOC,
               "--law: there is no law '%.64s'; there are: %sor a FILE.json of "
               "perilune fit -o",
               name, names);
    return false;
}

static bool add_size(Budget *budget, const char *name, const char **known) {
    Diag *diag = budget->diag;
    bool found = false;
    for (const char **at = known; *at; at++) found |= strcmp(*at, name) == 0;
    if (!found) {
        const char *nearest = nearest_name(name, known), *names = "";
        for (const char **at = known; *at; at++) {
            names = arena_printf(budget->args->arena, "%s%s%s", names, *names ? ", " : "", *at);
        }
        diag_error(diag, NO_LOC, "--sizes: the model has no size '%.64s'; %s%s", name,
                   nearest ? "did you mean " : "it has: ",
                   nearest ? arena_printf(budget->args->arena, "%s?", nearest) : names);
        return false;
    }
    for (int i = 0; i < budget->n_sizes; i++) {
        if (strcmp(budget->sizes[i], name) != 0) continue;
        diag_error(diag, NO_LOC, "--sizes: '%s' is there twice", name);
        return false;
    }
    if (budget->n_sizes == MOST_SIZES) {
        diag_error(diag, NO_LOC, "--sizes: at most %d are compared", MOST_SIZES);
        return false;
    }
    budget->sizes[budget->n_sizes++] = name;
    return true;
}

static bool find_sizes(Budget *budget) {
    CliArgs *args = budget->args;
    const char *text = cli_text(args, OPT_SIZES, NULL);
    const char **known = model_sizes(args->arena, args->operand, budget->diag);
    bool good = known != NULL;
    if (good && !known[0]) {
        diag_error(
            budget->diag, (SourceLoc){args->operand, 0},
            "the model has no sizes to choose from: its table needs sizes = { small = { ... }, "
            "... }");
        return false;
    }
    for (const char **at = known; good && !text && *at; at++) good = add_size(budget, *at, known);
    while (good && text) {
        size_t length = strcspn(text, ",");
        good = add_size(budget, arena_strndup(args->arena, text, length), known);
        text = text[length] ? text + length + 1 : NULL;
    }
    return good;
}

/* --- each size --- */

/* As if --set size= were given after all others, which is where it counts the same. */
static void set_size(CliArgs *args, const char *size) {
    CliValue *set = &args->values[OPT_SET];
    int n = set->n_list;
    if (n > 0 && strncmp(set->list[n - 1], "size=", 5) == 0) n--;
    const char **list = ARENA_ARRAY(args->arena, const char *, n + 1);
    for (int i = 0; i < n; i++) list[i] = set->list[i];
    list[n] = arena_printf(args->arena, "size=%s", size);
    set->list = list;
    set->n_list = set->list_capacity = n + 1;
    set->given = true;
}

/* Of the n rows so far the size that has the same settings, or NULL. */
static const char *find_alike(const Budget *budget, int n, const SearchJob *job) {
    for (int i = 0; i < n; i++) {
        const SearchJob *other = budget->jobs[i];
        if (other && strcmp(other->plan.settings, job->plan.settings) == 0) {
            return budget->rows[i].size;
        }
    }
    return NULL;
}

static bool check_trains(const Budget *budget, const ModelCosts *costs) {
    if (costs->n_trained == costs->n_parameters) return true;
    diag_error(budget->diag, NO_LOC,
               "%s: %lld of %lld parameters are frozen; a scaling law is of models that learn from "
               "the beginning",
               costs->model, (long long)(costs->n_parameters - costs->n_trained),
               (long long)costs->n_parameters);
    return false;
}

/* Of row `i`. NULL: row->refusal says why; what was reported is added to `diag`. */
static SearchJob *make_job(Budget *budget, int i, Diag *diag) {
    Arena *arena = budget->args->arena;
    BudgetRow *row = &budget->rows[i];
    *row = (BudgetRow){.size = budget->sizes[i]};
    set_size(budget->args, row->size);
    SearchJob *job = search_job_from_args(budget->args, diag);
    const char *alike = job ? find_alike(budget, i, job) : NULL;
    if (!job) row->refusal = search_first_line(arena, diag);
    if (alike) row->refusal = arena_printf(arena, "the same as %s", alike);
    if (row->refusal) return NULL;
    row->costs = job->costs;
    row->options = job->plan.options;
    return job;
}

/* From the smallest model to the largest; those that could not be made come last. */
static void sort_rows(Budget *budget) {
    for (int i = 1; i < budget->n_sizes; i++) {
        BudgetRow row = budget->rows[i];
        SearchJob *job = budget->jobs[i];
        int at = i;
        for (; job && at > 0; at--) {
            const ModelCosts *before = budget->rows[at - 1].costs;
            if (before && before->n_active_parameters <= row.costs->n_active_parameters) break;
            budget->rows[at] = budget->rows[at - 1];
            budget->jobs[at] = budget->jobs[at - 1];
        }
        budget->rows[at] = row;
        budget->jobs[at] = job;
    }
}

/* False: there is no job for any size, and the first one's mistake is reported. */
static bool make_jobs(Budget *budget) {
    Diag *first = NULL;
    int n_made = 0;
    for (int i = 0; i < budget->n_sizes; i++) {
        Diag *diag = diag_create();
        budget->jobs[i] = make_job(budget, i, diag);
        n_made += budget->jobs[i] != NULL;
        if (i == 0) {
            first = diag;
        } else {
            diag_destroy(diag);
        }
    }
    if (n_made == 0) diag_append(budget->diag, first);
    diag_destroy(first);
    sort_rows(budget);
    return n_made > 0 && check_trains(budget, budget->jobs[0]->costs);
}

/* Ranks, batch and days, which are the same for all sizes. */
static bool set_counts(Budget *budget) {
    const CliArgs *args = budget->args;
    BudgetReport *report = &budget->report;
    const Cluster *cluster = budget->jobs[0]->cluster;
    SearchRequest request = budget->jobs[0]->request;
    request.n_ranks = search_ranks_from_args(args, budget->jobs[0], budget->diag);
    if (request.n_ranks == 0) return false;
    if (cluster->max_devices > 0 && request.n_ranks > cluster->max_devices) {
        diag_error(budget->diag, NO_LOC, "--ranks: %d: %s has %lld device%s", request.n_ranks,
                   cluster->name, (long long)cluster->max_devices,
                   cluster->max_devices == 1 ? "" : "s");
        return false;
    }
    if (request.global_batch == 0) {
        request.global_batch = search_assumed_batch(&request);
        budget->warnings[report->n_warnings++] =
            arena_printf(args->arena, "no --global-batch was given: %d sequences are assumed",
                         request.global_batch);
    }
    request.n_top = cli_given(args, OPT_OUTPUT) ? LEAST_FOUND : 1;
    request.leaves_out = PART_SAMPLES;
    for (int i = 0; i < budget->n_sizes; i++) budget->rows[i].request = request;
    report->n_rows = budget->n_sizes;
    report->n_ranks = request.n_ranks;
    report->global_batch = request.global_batch;
    report->cluster = cluster;
    report->model = budget->jobs[0]->costs->model;
    report->target_loss = cli_real(args, OPT_TARGET_LOSS, 0);
    report->tokens_limit = cli_real(args, OPT_TOKENS_LIMIT, 0);
    report->days = cli_real(args, OPT_DAYS, 0);
    report->failures = &budget->jobs[0]->failures;
    if (!cli_given(args, OPT_MONEY)) return true;
    if (cluster->price_per_device_hour <= 0) {
        diag_error(budget->diag, NO_LOC,
                   "--money: cluster %s states no price (price.per_device_hour); --days says the "
                   "same",
                   cluster->name);
        return false;
    }
    report->days =
        cli_real(args, OPT_MONEY, 0) / (cluster->price_per_device_hour * 24 * request.n_ranks);
    return true;
}

/* False: the options allow no search of any size, and the first one's mistake is reported. */
static bool search_rows(Budget *budget) {
    CliArgs *args = budget->args;
    ProgressLine line = progress_line_start("searched");
    int n_searched = 0;
    for (int i = 0; i < budget->n_sizes; i++) {
        BudgetRow *row = &budget->rows[i];
        SearchJob *job = budget->jobs[i];
        progress_line_show(&line, i, budget->n_sizes, row->size);
        if (!job) continue;
        Diag *diag = diag_create();
        set_size(args, row->size);
        SearchFind find = search_find(args, job, &row->request, true, diag);
        row->result = find.result;
        n_searched += find.result != NULL;
        if (find.result) {
            row->costs = find.costs;
            row->options = find.plan.options;
            job->plan = find.plan;
            job->costs = find.costs;
            job->request = row->request;
        } else {
            row->refusal = search_first_line(args->arena, diag);
        }
        diag_destroy(diag);
    }
    budget->report.seconds = progress_line_end(&line);
    if (n_searched == 0) diag_error(budget->diag, NO_LOC, "%s", budget->rows[0].refusal);
    return n_searched > 0;
}

static bool learns_by_diffusion(const SearchJob *job) {
    static const char KEY[] = "diffusion=";
    for (const char *at = job->plan.settings; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        const char *value = at + sizeof(KEY) - 1;
        if (strncmp(at, KEY, sizeof(KEY) - 1) == 0) return strncmp(value, "none", 4) != 0;
    }
    return false;
}

static void warn(Budget *budget) {
    const ModelCosts *one = NULL;
    BudgetReport *report = &budget->report;
    bool words = false, experts = false, diffusion = false;
    for (int i = 0; i < budget->n_sizes; i++) {
        const BudgetRow *row = &budget->rows[i];
        if (!row->result || row->result->n_found == 0) continue;
        if (!one) one = row->costs;
        double ratio = (double)row->costs->vocab / (double)one->vocab;
        words |= ratio < 1 / MOST_PADDING || ratio > MOST_PADDING;
        diffusion |= learns_by_diffusion(budget->jobs[i]);
        experts |= row->costs->n_active_parameters < (double)row->costs->n_parameters;
    }
    if (words) {
        budget->warnings[report->n_warnings++] =
            "the sizes have different vocabularies: losses a token of different tokens are not "
            "comparable; --sizes or --set vocab= make them alike";
    }
    if (experts) {
        budget->warnings[report->n_warnings++] =
            "N is what a token meets of a mixture of experts, but the law is of dense models: a "
            "mixture's loss is likely lower";
    }
    if (diffusion) {
        budget->warnings[report->n_warnings++] =
            "the law is of models that say next tokens: of sizes that learn by diffusion it does "
            "not tell the loss; --sizes leaves them out";
    }
    report->warnings = budget->warnings;
}

/* --- what comes of it --- */

/* The best one's plan. */
static bool write_plan(Budget *budget, int best) {
    CliArgs *args = budget->args;
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    const BudgetRow *row = &budget->rows[best];
    SearchReport one = {.costs = row->costs,
                        .request = &row->request,
                        .result = row->result,
                        .options = row->options};
    set_size(args, row->size);
    Plan *plan = search_plan_best(args, budget->jobs[best], &one, budget->diag);
    if (!plan) return false;
    if (one.chosen > 0) {
        char layout[LAYOUT_TEXT];
        const Found *found = &row->result->found[one.chosen];
        budget->report.planned = arena_printf(
            args->arena,
            "%s under its layout number %d, %s (%.3g s a step): those before it need more memory "
            "than was predicted, or have no plan",
            row->size, one.chosen + 1, layout_text(&found->candidate, layout),
            found->cost.step_us * 1e-6);
    }
    if (strcmp(path, "-") != 0) return plan_write(plan, path, budget->diag);
    StrBuf out = strbuf_create();
    plan_print(&out, plan);
    bool good = cli_write(NULL, &out, budget->diag);
    strbuf_destroy(&out);
    return good;
}

static bool write_all(Budget *budget, int best) {
    const CliArgs *args = budget->args;
    const char *plan = cli_text(args, OPT_OUTPUT, NULL),
               *page = cli_text(args, OPT_HTML_FILE, NULL);
    if (plan && best >= 0 && !write_plan(budget, best)) return false;
    StrBuf out = strbuf_create();
    bool good = true;
    if (page) {
        show_budget_html(&out, &budget->report);
        good = cli_write(page, &out, budget->diag);
        strbuf_destroy(&out);
        out = strbuf_create();
    }
    bool taken = (plan && strcmp(plan, "-") == 0) || (page && strcmp(page, "-") == 0);
    if (good && !taken) {
        if (cli_given(args, OPT_JSON)) {
            show_budget_json(&out, &budget->report);
        } else {
            show_budget_text(&out, &budget->report);
        }
        good = cli_write(NULL, &out, budget->diag);
    }
    strbuf_destroy(&out);
    return good;
}

/* What was found, as told; the exit code. */
static int report_all(Budget *budget) {
    const BudgetReport *report = &budget->report;
    warn(budget);
    int best = show_budget_best(report);
    if (!write_all(budget, best)) return EXIT_FAILED;
    if (best >= 0) return EXIT_DONE;
    diag_error(budget->diag, NO_LOC, "no size would do: none both fits %d rank%s of %s and %s",
               report->n_ranks, report->n_ranks == 1 ? "" : "s", report->cluster->name,
               report->days > 0 ? "takes a step within the budget" : "reaches the loss");
    return EXIT_FAILED;
}

int cmd_budget(CliArgs *args) {
    Budget *budget = ARENA_NEW(args->arena, Budget);
    int status = EXIT_USAGE;
    budget->args = args;
    budget->diag = diag_create();
    budget->report.rows = budget->rows;
    if (check_options(args, budget->diag) && find_law(budget) && find_sizes(budget) &&
        make_jobs(budget) && set_counts(budget) && search_rows(budget)) {
        status = report_all(budget);
    }
    cli_fail(budget->diag, status);
    diag_destroy(budget->diag);
    return status;
}
