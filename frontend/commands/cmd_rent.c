/* perilune rent: which of several clusters, and how many of its nodes, a run is best made on. */
#include "frontend/commands/search_find.h"
#include "frontend/lua/cluster_read.h"
#include "frontend/progress_line.h"
#include "planner/show/show_rent.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_RANKS = 16384 };

/* One command. */
typedef struct Rent {
    CliArgs *args;
    Diag *diag;
    const char *names[CLI_MOST_CLUSTERS]; /* as they were given */
    RentMachine machines[CLI_MOST_CLUSTERS];
    SearchJob *jobs[CLI_MOST_CLUSTERS]; /* NULL: not searched */
    int64_t first_ranks, last_ranks;    /* 0: not given */
    RentReport report;
} Rent;

/* --- what was asked for --- */

static bool check_options(Rent *rent) {
    const CliArgs *args = rent->args;
    Diag *diag = rent->diag;
    if (!cli_given(args, OPT_CLUSTER)) {
        diag_error(diag, NO_LOC,
                   "--cluster: which to compare? several have commas between them: "
                   "h100-dgx,h200-dgx; see perilune cluster list");
    } else if (!cli_given(args, OPT_DAYS_FOR_TOKENS)) {
        diag_error(diag, NO_LOC, "--days-for-tokens: on how many tokens will the model train?");
    } else if (!cli_given(args, OPT_GLOBAL_BATCH)) {
        diag_error(diag, NO_LOC,
                   "--global-batch: how many sequences does a step learn from? days are compared "
                   "for the same batch on all machines");
    } else if (!cli_given(args, OPT_WITHIN_DAYS) && !cli_given(args, OPT_WITHIN_MONEY) &&
               !cli_given(args, OPT_RANKS)) {
        diag_error(diag, NO_LOC,
                   "what is the limit? --within-days N, --within-money X, or both; or --ranks "
                   "FIRST..LAST to see all of these");
    } else {
        rent->report.limits = (RentLimits){.days = cli_real(args, OPT_WITHIN_DAYS, 0),
                                           .money = cli_real(args, OPT_WITHIN_MONEY, 0)};
        return !cli_given(args, OPT_RANKS) ||
               search_range_from_args(args, &rent->first_ranks, &rent->last_ranks, diag);
    }
    return false;
}

/* As if --cluster were given with this one alone. */
static void set_cluster(CliArgs *args, const char *name) {
    args->values[OPT_CLUSTER].text = name;
}

/* False: reported. */
static bool read_machine(Rent *rent, const char *name) {
    CliArgs *args = rent->args;
    int n = rent->report.n_machines;
    if (n == CLI_MOST_CLUSTERS) {
        diag_error(rent->diag, NO_LOC, "--cluster: at most %d are compared", CLI_MOST_CLUSTERS);
        return false;
    }
    if (!*name) {
        diag_error(rent->diag, NO_LOC, "--cluster: a name between two commas is missing");
        return false;
    }
    set_cluster(args, name);
    const Cluster *cluster = search_cluster_from_args(args, rent->diag);
    if (!cluster) return false;
    for (int i = 0; i < n; i++) {
        if (strcmp(rent->machines[i].cluster->name, cluster->name) != 0) continue;
        diag_error(rent->diag, NO_LOC, "--cluster: '%.64s' is there twice", cluster->name);
        return false;
    }
    rent->names[n] = name;
    rent->machines[n] = (RentMachine){.cluster = cluster};
    rent->report.n_machines++;
    return true;
}

/* Is every price of one that is compared? */
static bool check_prices(const Rent *rent) {
    const CliValue *prices = &rent->args->values[OPT_PRICE];
    for (int i = 0; i < prices->n_list; i++) {
        const char *text = prices->list[i];
        bool known = false;
        for (int k = 0; k < rent->report.n_machines; k++) {
            const char *name = rent->machines[k].cluster->name;
            size_t length = strlen(name);
            known |= strncmp(text, name, length) == 0 && text[length] == '=';
        }
        if (known) continue;
        diag_error(rent->diag, NO_LOC,
                   "--price: '%.64s' is not NAME=X with one of --cluster's names, as in %s=2.5",
                   text, rent->machines[0].cluster->name);
        return false;
    }
    return true;
}

/* One currency, and with --within-money one price at least. */
static bool check_money(const Rent *rent) {
    const Cluster *priced = NULL;
    for (int i = 0; i < rent->report.n_machines; i++) {
        const Cluster *cluster = rent->machines[i].cluster;
        if (cluster->price_per_device_hour <= 0) continue;
        if (!priced) priced = cluster;
        if (strcmp(cluster->currency, priced->currency) == 0) continue;
        diag_error(rent->diag, NO_LOC,
                   "--cluster: %s is priced in %.8s and %s in %.8s, which are not compared: state "
                   "both in one (price.currency)",
                   priced->name, priced->currency, cluster->name, cluster->currency);
        return false;
    }
    if (priced || rent->report.limits.money <= 0) return true;
    diag_error(rent->diag, NO_LOC,
               "--within-money: none of the clusters states a price (price.per_device_hour); "
               "--price %s=X says one",
               rent->machines[0].cluster->name);
    return false;
}

static bool read_machines(Rent *rent) {
    const char *text = cli_text(rent->args, OPT_CLUSTER, NULL);
    while (text) {
        if (!read_machine(rent, cli_next_cluster(rent->args, &text))) return false;
    }
    return check_prices(rent) && check_money(rent);
}

/* --- the searches --- */

/* NULL: machine->refusal says why; what was reported is added to `diag`. */
static SearchJob *make_job(Rent *rent, int index, Diag *diag) {
    RentMachine *machine = &rent->machines[index];
    const RentLimits *limits = &rent->report.limits;
    if (limits->days <= 0 && limits->money > 0 && machine->cluster->price_per_device_hour <= 0) {
        machine->refusal = "not searched: it states no price";
        return NULL;
    }
    set_cluster(rent->args, rent->names[index]);
    SearchJob *job = search_job_from_args(rent->args, diag);
    if (!job) machine->refusal = search_first_line(rent->args->arena, diag);
    return job;
}

/* False: no machine has a job, and the first mistake is reported. */
static bool make_jobs(Rent *rent) {
    Diag *first = NULL;
    int n_made = 0;
    for (int i = 0; i < rent->report.n_machines; i++) {
        Diag *diag = diag_create();
        rent->jobs[i] = make_job(rent, i, diag);
        n_made += rent->jobs[i] != NULL;
        if (!first && *diag_text(diag)) {
            first = diag;
        } else {
            diag_destroy(diag);
        }
    }
    if (n_made == 0 && first) diag_append(rent->diag, first);
    if (first) diag_destroy(first);
    return n_made > 0;
}

/* On so few ranks no layout is near the days: at the peak they would take it eight times as long.
 */
static bool is_far(const Rent *rent, const SearchJob *job, int n_ranks) {
    const double far = 8;
    const Cluster *cluster = job->cluster;
    double peak = cluster->device.peak_flops[cluster_math(cluster, job->plan.options.precision)];
    double flops = job->costs->model_flops * job->days_tokens / (double)job->costs->seq;
    double days = flops / peak / n_ranks / 86400, most = rent->report.limits.days;
    return most > 0 && days > far * most;
}

/* The rungs within --ranks, or else of those that are not far, and the cluster's. Returns how many;
 * 0: it has too few devices. */
static int pick_rungs(const Rent *rent, const SearchJob *job, int out[SEARCH_MOST_RUNGS]) {
    const Cluster *cluster = job->cluster;
    int64_t first = rent->first_ranks, last = rent->last_ranks, most = cluster->max_devices;
    bool given = first > 0;
    if (!given) {
        first = cluster->node.n_devices;
        last = LAST_RANKS > first ? LAST_RANKS : first;
    }
    if (most > 0 && most < last) last = most;
    if (first > last) return 0;
    int n = search_pick_ranks(first, last, cluster->node.n_devices, out), n_far = 0;
    while (!given && n_far < n - 1 && is_far(rent, job, out[n_far])) n_far++;
    memmove(out, out + n_far, (size_t)(n - n_far) * sizeof(*out));
    return n - n_far;
}

static double search_row(Rent *rent, int index, ScaleRow *row, int n_ranks) {
    SearchJob *job = rent->jobs[index];
    Diag *diag = diag_create();
    *row = (ScaleRow){.request = job->request};
    row->request.n_ranks = n_ranks;
    row->request.n_top = 1;
    row->request.leaves_out = PART_SAMPLES | PART_RANKS;
    SearchFind find = search_find(rent->args, job, &row->request, true, diag);
    row->result = find.result;
    row->options = find.plan.options;
    if (!find.result) row->refusal = search_first_line(rent->args->arena, diag);
    diag_destroy(diag);
    return rent_row_days(&rent->machines[index].scale, row);
}

static int by_ranks(const void *a, const void *b) {
    int x = ((const ScaleRow *)a)->request.n_ranks, y = ((const ScaleRow *)b)->request.n_ranks;
    return (x > y) - (x < y);
}

static void search_machine(Rent *rent, int index, ProgressLine *line) {
    RentMachine *machine = &rent->machines[index];
    SearchJob *job = rent->jobs[index];
    Arena *arena = rent->args->arena;
    int rungs[SEARCH_MOST_RUNGS], more_rungs[2 * SEARCH_MOST_RUNGS];
    RentWalk walk = {.n_per_node = machine->cluster->node.n_devices,
                     .global_batch = job->request.global_batch,
                     .n_rungs = pick_rungs(rent, job, rungs),
                     .rungs = rungs,
                     .limits = rent->report.limits,
                     .device_hour = machine->cluster->price_per_device_hour};
    if (walk.n_rungs == 0) {
        machine->refusal = arena_printf(arena, "not searched: it has %lld device%s",
                                        (long long)machine->cluster->max_devices,
                                        machine->cluster->max_devices == 1 ? "" : "s");
        return;
    }
    if (walk.limits.days > 0 || walk.limits.money > 0) {
        walk.n_rungs = rent_walk_rungs(&walk, more_rungs);
        walk.rungs = more_rungs;
    }
    ScaleRow *rows = ARENA_ARRAY(arena, ScaleRow, RENT_MOST_TRIES);
    machine->scale = (ScaleReport){.costs = job->costs,
                                   .options = job->plan.options,
                                   .days_tokens = job->days_tokens,
                                   .failures = &job->failures,
                                   .rows = rows};
    set_cluster(rent->args, rent->names[index]);
    for (int n_ranks; (n_ranks = rent_walk_next(&walk)) > 0;) {
        const char *what = arena_printf(arena, "%.20s, %d ranks", machine->cluster->name, n_ranks);
        progress_line_show(line, index, rent->report.n_machines, what);
        rent_walk_add(&walk, n_ranks,
                      search_row(rent, index, &rows[machine->scale.n_rows++], n_ranks));
    }
    qsort(rows, (size_t)machine->scale.n_rows, sizeof(*rows), by_ranks);
}

/* False: none could be searched, which is reported. */
static bool search_machines(Rent *rent) {
    ProgressLine line = progress_line_start("searched");
    int n_searched = 0;
    const char *refusal = NULL, *whose = NULL;
    for (int i = 0; i < rent->report.n_machines; i++) {
        if (rent->jobs[i]) search_machine(rent, i, &line);
        const RentMachine *machine = &rent->machines[i];
        for (int k = 0; k < machine->scale.n_rows; k++)
            n_searched += !!machine->scale.rows[k].result;
        if (refusal) continue;
        refusal = machine->scale.n_rows ? machine->scale.rows[0].refusal : machine->refusal;
        whose = machine->cluster->name;
    }
    rent->report.seconds = progress_line_end(&line);
    if (n_searched == 0) diag_error(rent->diag, NO_LOC, "%.64s: %s", whose, refusal);
    return n_searched > 0;
}

/* --- what comes of it --- */

static bool write_all(Rent *rent) {
    const CliArgs *args = rent->args;
    const char *page = cli_text(args, OPT_HTML_FILE, NULL);
    StrBuf out = strbuf_create();
    bool good = true;
    if (page) {
        show_rent_html(&out, &rent->report);
        good = cli_write(page, &out, rent->diag);
        strbuf_destroy(&out);
        out = strbuf_create();
    }
    if (good && !(page && strcmp(page, "-") == 0)) {
        if (cli_given(args, OPT_JSON)) {
            show_rent_json(&out, &rent->report);
        } else {
            show_rent_text(&out, &rent->report);
        }
        good = cli_write(NULL, &out, rent->diag);
    }
    strbuf_destroy(&out);
    return good;
}

static int report_all(Rent *rent) {
    if (!write_all(rent)) return EXIT_FAILED;
    if (show_rent_within(&rent->report) > 0) return EXIT_DONE;
    const RentLimits *limits = &rent->report.limits;
    diag_error(rent->diag, NO_LOC, "no machine would do: none that was searched %s%s%s",
               limits->days > 0 ? "ends within the days" : "",
               limits->days > 0 && limits->money > 0 ? " and " : "",
               limits->money > 0 ? "costs no more than the money" : "");
    return EXIT_FAILED;
}

int cmd_rent(CliArgs *args) {
    Rent *rent = ARENA_NEW(args->arena, Rent);
    int status = EXIT_USAGE;
    rent->args = args;
    rent->diag = diag_create();
    rent->report.machines = rent->machines;
    if (check_options(rent) && read_machines(rent) && make_jobs(rent) && search_machines(rent)) {
        status = report_all(rent);
    }
    cli_fail(rent->diag, status);
    diag_destroy(rent->diag);
    return status;
}
