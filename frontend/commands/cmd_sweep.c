/* perilune sweep: many runs of train that differ in some settings, their table and page. */
#include "frontend/commands/job_args.h"
#include "frontend/commands/sweep_loss.h"
#include "frontend/commands/sweep_report.h"
#include "frontend/commands/sweep_work.h"
#include "frontend/commands/text_columns.h"
#include "frontend/job/job.h"
#include "frontend/sweep/halving.h"
#include "ir/base/file.h"
#include "ir/base/host.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_json_put.h"
#include "runtime/cuda/devices.h"
#include "runtime/launch/launch_environment.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SHOWN = 40 /* before runs start; --dry-run shows all */ };

/* --- what the runs come to --- */

static double run_seconds(const SweepPlan *plan, int r) {
    return plan->estimates[r].step_s * (double)plan->sweep.runs[r].n_steps;
}

/* Largest memory of runs at a time: of so many, those that need most. */
static double together_bytes(const SweepPlan *plan, int64_t n_jobs) {
    double most = 0;
    for (int r = 0; r < plan->sweep.n_runs; r++) {
        most = fmax(most, (double)plan->estimates[r].planned_bytes);
    }
    return most * (double)(n_jobs < plan->sweep.n_runs ? n_jobs : plan->sweep.n_runs);
}

static void put_table(StrBuf *out, const SweepPlan *plan) {
    const Sweep *sweep = &plan->sweep;
    bool has_steps = false; /* among what varies */
    for (int k = 0; k < sweep->n_keys; k++) has_steps |= strcmp(sweep->keys[k], "steps") == 0;
    const int n_columns = sweep->n_keys + 6 - has_steps;
    const char **cells = ARENA_ARRAY(sweep->arena, const char *, (sweep->n_runs + 1) * n_columns);
    const char **cell = cells;
    char text[UNIT_TEXT];
    *cell++ = "run";
    for (int k = 0; k < sweep->n_keys; k++) *cell++ = sweep->keys[k];
    *cell++ = "parameters";
    if (!has_steps) *cell++ = "steps";
    *cell++ = "tokens";
    *cell++ = "memory", *cell++ = "predicted";
    for (int r = 0; r < sweep->n_runs; r++) {
        const SweepEstimate *estimate = &plan->estimates[r];
        const SweepRun *run = &sweep->runs[r];
        *cell++ = run->name;
        for (int k = 0; k < sweep->n_keys; k++) *cell++ = run->settings[k] ? run->settings[k] : "-";
        *cell++ = arena_strdup(sweep->arena, unit_count(estimate->n_parameters, text));
        if (!has_steps) *cell++ = arena_printf(sweep->arena, "%" PRId64, run->n_steps);
        *cell++ = arena_strdup(sweep->arena, unit_count(estimate->n_tokens, text));
        *cell++ = arena_strdup(sweep->arena, unit_bytes((double)estimate->planned_bytes, text));
        *cell++ = arena_strdup(sweep->arena, unit_us(run_seconds(plan, r) * 1e6, text));
    }
    text_columns_put(out, cells, sweep->n_runs + 1, n_columns, 1, false);
}

static void put_sum(StrBuf *out, const SweepPlan *plan, int64_t n_jobs) {
    const Sweep *sweep = &plan->sweep;
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    double tokens = 0, seconds = 0;
    for (int r = 0; r < sweep->n_runs; r++) {
        tokens += plan->estimates[r].n_tokens;
        seconds += run_seconds(plan, r);
    }
    strbuf_printf(
        out, "%d run%s, %s tokens%s, %" PRId64 " at a time in %s; %s in all, predicted on %s\n",
        sweep->n_runs, sweep->n_runs == 1 ? "" : "s", unit_count(tokens, a),
        sweep->n_rungs ? " if none stopped" : "", n_jobs < sweep->n_runs ? n_jobs : sweep->n_runs,
        unit_bytes(together_bytes(plan, n_jobs), b), unit_us(seconds * 1e6, c), plan->on);
    for (int i = 0; i < sweep->n_rungs; i++) {
        const SweepRun *run = &sweep->runs[0];
        strbuf_printf(
            out, "rung    the best 1/%d go on from step %" PRId64 " of %" PRId64 "\n",
            sweep->stop_worse,
            halving_step(run->n_steps, sweep->stop_worse, sweep->n_rungs, i, run->eval_every),
            run->n_steps);
    }
    const double has = (double)host_memory_bytes();
    if (!plan->cuda && together_bytes(plan, n_jobs) > has) {
        strbuf_printf(out, "warning more than the %s that %s: fewer --jobs\n", unit_bytes(has, a),
                      host_memory_phrase());
    }
}

static void put_plan_json(StrBuf *out, const SweepPlan *plan) {
    const Sweep *sweep = &plan->sweep;
    json_t *root = json_object(), *runs = json_array();
    json_put_name(root, "model", sweep->model);
    json_put_name(root, "predicted_on", plan->on);
    for (int r = 0; r < sweep->n_runs; r++) {
        const SweepRun *run = &sweep->runs[r];
        json_t *object = json_object(), *settings = json_object(), *arguments = json_array();
        json_put_name(object, "run", run->name);
        for (int k = 0; k < sweep->n_keys; k++) {
            if (run->settings[k]) json_put_name(settings, sweep->keys[k], run->settings[k]);
        }
        json_put_new(object, "settings", settings);
        for (int i = 0; i < run->n_arguments; i++) {
            json_array_append_new(arguments, json_name(run->arguments[i]));
        }
        json_put_new(object, "arguments", arguments);
        json_put_real(object, "parameters", plan->estimates[r].n_parameters);
        json_put_int(object, "steps", run->n_steps);
        json_put_real(object, "tokens", plan->estimates[r].n_tokens);
        json_put_int(object, "memory_bytes", plan->estimates[r].planned_bytes);
        json_put_real(object, "predicted_seconds", run_seconds(plan, r));
        json_array_append_new(runs, object);
    }
    json_put_new(root, "runs", runs);
    json_put_document(out, root);
}

static bool show_plan(const CliArgs *args, const SweepPlan *plan, int64_t n_jobs, Diag *diag) {
    StrBuf text = strbuf_create();
    bool good = true;
    if (cli_given(args, OPT_DRY_RUN) && cli_given(args, OPT_JSON)) {
        put_plan_json(&text, plan);
        good = cli_write(NULL, &text, diag);
    } else if (cli_given(args, OPT_DRY_RUN)) {
        put_table(&text, plan);
        put_sum(&text, plan, n_jobs);
        good = cli_write(NULL, &text, diag);
    } else if (!cli_given(args, OPT_QUIET)) {
        if (plan->sweep.n_runs <= MOST_SHOWN) put_table(&text, plan);
        put_sum(&text, plan, n_jobs);
        fputs(text.text, stderr);
    }
    strbuf_destroy(&text);
    return good;
}

/* --- commands, for people and for other launchers --- */

static void put_command(StrBuf *out, const Sweep *sweep, const SweepRun *run) {
    int n = 0;
    const char **argv = sweep_command(sweep->arena, sweep, run, job_args_own_program(sweep->arena),
                                      INT64_MAX, 0, &n);
    for (int i = 0; i < n; i++) {
        if (i > 0) strbuf_put(out, " ");
        job_put_word(out, argv[i]);
    }
}

static bool write_command(const Sweep *sweep, const SweepRun *run, Diag *diag) {
    StrBuf text = strbuf_create();
    char folder[PATH_MAX];
    strbuf_put(&text, "#!/bin/sh\n# Run of a sweep by perilune: ");
    job_put_comment(&text, sweep_describe(sweep->arena, sweep, run));
    strbuf_put(&text, "\n");
    if (getcwd(folder, sizeof(folder))) {
        strbuf_put(&text, "cd ");
        job_put_word(&text, folder);
        strbuf_put(&text, " || exit 2\n");
    }
    strbuf_put(&text, "exec ");
    put_command(&text, sweep, run);
    strbuf_put(&text, " \"$@\"\n");
    bool good =
        file_write(sweep_file(sweep->arena, run, "command.sh"), text.text, text.length, diag);
    strbuf_destroy(&text);
    return good;
}

/* One line each; how a run ended is where the sweep itself would write it. */
static int write_jobs(CliArgs *args, const Sweep *sweep, Diag *diag) {
    const char *path = cli_text(args, OPT_WRITE_JOBS, "-");
    StrBuf text = strbuf_create();
    for (int r = 0; r < sweep->n_runs; r++) {
        const SweepRun *run = &sweep->runs[r];
        SweepResult result;
        if (!sweep_result_read(sweep->arena, run, &result, diag)) {
            strbuf_destroy(&text);
            return EXIT_USAGE;
        }
        if (result.known && !(result.exit_code && cli_given(args, OPT_RETRY))) continue;
        strbuf_put(&text, "(");
        put_command(&text, sweep, run);
        strbuf_put(&text, " > ");
        job_put_word(&text, sweep_file(sweep->arena, run, "output.txt"));
        strbuf_put(&text, " 2>&1; e=$?; [ $e = 130 ] || printf '{\"exit\":%d}\\n' $e > ");
        job_put_word(&text, sweep_file(sweep->arena, run, "result.json"));
        strbuf_put(&text, "; exit $e)\n");
    }
    const bool good = cli_write(path, &text, diag);
    strbuf_destroy(&text);
    return good ? EXIT_DONE : EXIT_FAILED;
}

/* --- the sweep --- */

/* Processes of a job, which would all start all runs; GPUs that there are not. */
static bool check_machine(CliArgs *args, const SweepPlan *plan, int64_t n_jobs, Diag *diag) {
    LaunchEnvironment launch;
    if (!launch_read_environment(&launch, diag)) return false;
    if (launch.world > 1) {
        diag_error(diag, NO_LOC,
                   "sweep: is started once, not by a launcher as %d processes; --write-jobs is for "
                   "several machines",
                   launch.world);
        return false;
    }
    if (!plan->cuda || n_jobs == 1) return true;
    CudaReport *cuda = arena_alloc(args->arena, sizeof(*cuda));
    cuda_report(cuda);
    if (cuda->n_devices == 0 || n_jobs <= cuda->n_devices) return true;
    diag_error(diag, NO_LOC, "--jobs %" PRId64 ": there %s %d GPU%s", n_jobs,
               cuda->n_devices == 1 ? "is" : "are", cuda->n_devices,
               cuda->n_devices == 1 ? "" : "s");
    return false;
}

static bool check_options(const CliArgs *args, Diag *diag) {
    static const CliOption RUNNING[] = {OPT_WRITE_JOBS, OPT_HTML_FILE};
    const char *dir = cli_text(args, OPT_DIR, NULL);
    if (!dir && !cli_given(args, OPT_DRY_RUN)) {
        diag_error(diag, NO_LOC, "sweep: where are the runs to be? give --dir DIR");
        return false;
    }
    if (dir && !*dir) {
        diag_error(diag, NO_LOC, "--dir: no folder has an empty name");
        return false;
    }
    for (int i = 0; i < 2 && cli_given(args, OPT_DRY_RUN); i++) {
        if (!cli_given(args, RUNNING[i])) continue;
        diag_error(diag, NO_LOC, "--%s: --dry-run ends before there is something to write",
                   CLI_OPTIONS[RUNNING[i]].name);
        return false;
    }
    if (!cli_given(args, OPT_WRITE_JOBS)) return true;
    if (cli_given(args, OPT_STOP_WORSE) || cli_given(args, OPT_JOBS) ||
        cli_given(args, OPT_HTML_FILE) || cli_given(args, OPT_JSON)) {
        diag_error(diag, NO_LOC,
                   "--write-jobs: without --jobs, --stop-worse, --html and --json: nothing runs "
                   "here; perilune show DIR tells what has");
        return false;
    }
    return true;
}

static bool write_report(const CliArgs *args, const char *dir, Diag *diag) {
    static void (*const PUT[])(StrBuf *, Arena *, const SweepReport *) = {
        sweep_report_text, sweep_report_json, sweep_report_html};
    const char *page = cli_text(args, OPT_HTML_FILE, NULL);
    const SweepReport *report = sweep_report_read(args->arena, dir, page, diag);
    const bool to_stdout = page && strcmp(page, "-") == 0;
    bool good = report;
    for (int form = 0; form < 3 && good; form++) {
        if (form < 2 && (to_stdout || form != cli_given(args, OPT_JSON))) continue;
        if (form == 2 && !page) continue;
        StrBuf text = strbuf_create();
        PUT[form](&text, args->arena, report);
        good = cli_write(form == 2 ? page : NULL, &text, diag);
        strbuf_destroy(&text);
    }
    if (!good || !report->sweep->by || report->n_done == 0) return good;
    for (int r = 0; r < report->sweep->n_runs; r++) {
        if (isfinite(report->rows[r].loss)) return true;
    }
    sweep_loss_report_absent(report->sweep->by, diag);
    return false;
}

/* The folder, with how to start each run by hand. Returns EXIT_DONE, or the exit code: reported. */
static int make_folder(const CliArgs *args, const SweepPlan *plan, int64_t n_jobs, Diag *diag) {
    const Sweep *sweep = &plan->sweep;
    bool is_new;
    if (!cli_try_path(cli_text(args, OPT_HTML_FILE, NULL), diag) ||
        !cli_try_path(cli_text(args, OPT_WRITE_JOBS, NULL), diag) ||
        !sweep_folder_take(sweep, &is_new, diag)) {
        return EXIT_USAGE;
    }
    if (is_new && !show_plan(args, plan, n_jobs, diag)) return EXIT_FAILED;
    for (int r = 0; r < sweep->n_runs; r++) {
        const char *path = sweep_file(args->arena, &sweep->runs[r], "command.sh");
        if (!is_new && access(path, F_OK) == 0) continue;
        if (!write_command(sweep, &sweep->runs[r], diag)) return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* Cores of each run, where they share them; 0: as train has it, or the runs' options say. */
static int threads_of(const CliArgs *args, const SweepPlan *plan, int64_t n_jobs) {
    const int64_t together = n_jobs < plan->sweep.n_runs ? n_jobs : plan->sweep.n_runs;
    const int64_t share = host_count_cores() / together;
    if (together == 1 || plan->cuda || cli_given(args, OPT_THREADS)) return 0;
    for (int k = 0; k < plan->sweep.n_keys; k++) {
        if (strcmp(plan->sweep.keys[k], CLI_OPTIONS[OPT_THREADS].name) == 0) return 0;
    }
    return share > 1 ? (int)share : 1;
}

static int run_sweep(CliArgs *args, const SweepPlan *plan, int64_t n_jobs, Diag *diag) {
    const Sweep *sweep = &plan->sweep;
    int status = make_folder(args, plan, n_jobs, diag);
    if (status != EXIT_DONE) return status;
    if (cli_given(args, OPT_WRITE_JOBS)) return write_jobs(args, sweep, diag);
    double *step_s = ARENA_ARRAY(args->arena, double, sweep->n_runs);
    for (int r = 0; r < sweep->n_runs; r++) step_s[r] = plan->estimates[r].step_s;
    const SweepWork work = {.sweep = sweep,
                            .step_s = step_s,
                            .n_jobs = (int)n_jobs,
                            .n_threads = threads_of(args, plan, n_jobs),
                            .cuda = plan->cuda,
                            .quiet = cli_given(args, OPT_QUIET),
                            .retry = cli_given(args, OPT_RETRY)};
    status = sweep_work(&work, diag);
    if (status == EXIT_USAGE || diag_error_count(diag) > 0) return status;
    if (!write_report(args, sweep->dir, diag)) return EXIT_FAILED;
    if (status == EXIT_INTERRUPTED && !work.quiet) {
        fprintf(stderr, "interrupted: the same command goes on\n");
    }
    return status;
}

int cmd_sweep(CliArgs *args) {
    SweepPlan plan = {0};
    Diag *diag = diag_create();
    const int64_t n_jobs = cli_int(args, OPT_JOBS, 1);
    int status = check_options(args, diag) ? sweep_plan_from_args(args, &plan, diag) : EXIT_USAGE;
    if (status < 0) {
        status = EXIT_USAGE;
        if (cli_given(args, OPT_DRY_RUN)) {
            status = show_plan(args, &plan, n_jobs, diag) ? EXIT_DONE : EXIT_FAILED;
        } else if (check_machine(args, &plan, n_jobs, diag)) {
            status = run_sweep(args, &plan, n_jobs, diag);
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
