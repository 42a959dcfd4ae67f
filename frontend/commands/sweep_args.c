#include "frontend/commands/sweep_args.h"

#include "frontend/commands/plan_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/train_run.h"
#include "frontend/job/job_estimate.h"
#include "frontend/progress_line.h"
#include "frontend/sweep/halving.h"
#include "frontend/sweep/sweep_script.h"
#include "frontend/sweep/vary.h"
#include "planner/plan/plan_library.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { TRAIN_GROUPS = IN_TRAINING | IN_PLANNING | IN_LAYOUT | IN_TEACHING, TRAIN_STEPS = 1000 };
enum { MOST_DRAWS = 64 /* for each run, until it is one that is not there yet */ };

/* What the sweep says itself, or that makes no sense for runs beside each other. */
static const CliOption OWN[] = {OPT_LOG,     OPT_RESUME, OPT_CONTINUE, OPT_STOP_AT,
                                OPT_ISLANDS, OPT_ISLAND, OPT_HELP,     OPT_QUIET};

/* Names in a run's folder. */
static const char *const OWN_NAMES[] = {"log.jsonl", "output.txt", "result.json", "command.sh"};
static const char OWN_CHECKPOINT[] = "run.ckpt";

typedef struct Reading {
    CliArgs *args;
    Arena *arena;
    Sweep *sweep;
    Diag *diag;
    const char *from;   /* "--vary", or the script: begins errors about keys */
    SweepOptions *runs; /* [n] */
    int n, capacity;
} Reading;

/* --- keys --- */

static bool is_own(CliOption option) {
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (OWN[i] == option) return true;
    }
    return false;
}

/* "set.layers": the option, and *out_name: "layers". N_OPTIONS: it is no such key. */
static CliOption find_setting(const char *key, const char **out_name) {
    static const CliOption SETS[] = {OPT_SET, OPT_TEACHER_SET};
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(CLI_OPTIONS[SETS[i]].name);
        if (strncmp(key, CLI_OPTIONS[SETS[i]].name, length) != 0 || key[length] != '.') continue;
        *out_name = key + length + 1;
        return SETS[i];
    }
    return N_OPTIONS;
}

static CliOption find_option(const char *key) {
    for (int i = 0; i < N_OPTIONS; i++) {
        if ((CLI_OPTIONS[i].groups & TRAIN_GROUPS) && strcmp(CLI_OPTIONS[i].name, key) == 0) {
            return (CliOption)i;
        }
    }
    return N_OPTIONS;
}

static bool refuse_key(const Reading *reading, const char *key, const char *why) {
    diag_error(reading->diag, NO_LOC, "%s: '%s' %s", reading->from, key, why);
    return false;
}

static bool refuse_unknown(const Reading *reading, const char *key) {
    const char *nearest = cli_nearest_option(key, TRAIN_GROUPS);
    return refuse_key(
        reading, key,
        nearest ? arena_printf(reading->arena, "is no option of train; did you mean %s?", nearest)
                : "is no option of train, nor set.NAME");
}

/* What is varied cannot be said for all runs, too. */
static bool check_key(const Reading *reading, const char *key) {
    const char *name;
    const CliOption set = find_setting(key, &name);
    if (set != N_OPTIONS) {
        const CliValue *given = &reading->args->values[set];
        const size_t length = strlen(name);
        if (length == 0 || strchr(name, '=')) return refuse_key(reading, key, "names no setting");
        for (int i = 0; i < given->n_list; i++) {
            if (strncmp(given->list[i], name, length) != 0 || given->list[i][length] != '=')
                continue;
            return refuse_key(reading, key, "is given for all runs, too");
        }
        return true;
    }
    const CliOption option = find_option(key);
    if (option == N_OPTIONS) return refuse_unknown(reading, key);
    if (option == OPT_SET || option == OPT_TEACHER_SET) {
        return refuse_key(reading, key, "takes a name: set.NAME=VALUES");
    }
    if (is_own(option) || CLI_OPTIONS[option].kind == KIND_WRITE || option == OPT_CHECKPOINT_KEEP ||
        option == OPT_CHECKPOINT_KEEP_EVERY) {
        return refuse_key(reading, key, "is not for varying");
    }
    return !cli_given(reading->args, option) ||
           refuse_key(reading, key, "is given for all runs, too");
}

/* --- runs --- */

static bool add_run(Reading *reading, const SweepOptions *options) {
    if (reading->n == SWEEP_MOST_RUNS) {
        diag_error(reading->diag, NO_LOC, "sweep: more than %d runs", SWEEP_MOST_RUNS);
        return false;
    }
    ARENA_PUSH(reading->arena, reading->runs, reading->n, reading->capacity, *options);
    return true;
}

static SweepOptions pair(Arena *arena, const Vary *varies, int n, const char *const *values) {
    SweepOptions options = {0};
    for (int k = 0; k < n; k++) {
        SweepOption option = {varies[k].key, values[k]};
        ARENA_PUSH(arena, options.items, options.count, options.capacity, option);
    }
    return options;
}

static bool is_there(const Reading *reading, const char *const *values) {
    for (int i = 0; i < reading->n; i++) {
        const SweepOptions *run = &reading->runs[i];
        int k = 0;
        while (k < run->count && strcmp(run->items[k].value, values[k]) == 0) k++;
        if (k == run->count) return true;
    }
    return false;
}

static bool draw_runs(Reading *reading, const Vary *varies, int n) {
    const int64_t wanted = cli_int(reading->args, OPT_RANDOM, 0);
    uint64_t state = (uint64_t)cli_int(reading->args, OPT_RANDOM_SEED, 1);
    const char *values[VARY_MOST_KEYS];
    for (int64_t left = wanted * MOST_DRAWS; reading->n < wanted && left > 0; left--) {
        vary_draw(reading->arena, varies, n, &state, values);
        if (is_there(reading, values)) continue;
        const SweepOptions run = pair(reading->arena, varies, n, values);
        if (!add_run(reading, &run)) return false;
    }
    if (reading->n == wanted) return true;
    diag_error(reading->diag, NO_LOC,
               "--random %" PRId64 ": no more than %d different runs were found", wanted,
               reading->n);
    return false;
}

static bool combine_runs(Reading *reading, const Vary *varies, int n) {
    const int64_t count = vary_count(varies, n);
    const char *values[VARY_MOST_KEYS];
    if (count > SWEEP_MOST_RUNS) {
        diag_error(reading->diag, NO_LOC,
                   "--vary: more than %d combinations: --random N draws some of them",
                   SWEEP_MOST_RUNS);
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        vary_combine(varies, n, i, values);
        const SweepOptions run = pair(reading->arena, varies, n, values);
        if (!add_run(reading, &run)) return false;
    }
    return true;
}

static bool read_varies(Reading *reading) {
    const CliValue *given = &reading->args->values[OPT_VARY];
    const bool draws = cli_given(reading->args, OPT_RANDOM);
    Vary varies[VARY_MOST_KEYS];
    if (given->n_list > VARY_MOST_KEYS) {
        diag_error(reading->diag, NO_LOC, "--vary: given more than %d times", VARY_MOST_KEYS);
        return false;
    }
    reading->from = "--vary";
    for (int i = 0; i < given->n_list; i++) {
        if (!vary_parse(reading->arena, given->list[i], draws, &varies[i], reading->diag) ||
            !check_key(reading, varies[i].key)) {
            return false;
        }
        for (int k = 0; k < i; k++) {
            if (strcmp(varies[k].key, varies[i].key) != 0) continue;
            return refuse_key(reading, varies[i].key, "is given twice");
        }
    }
    return draws ? draw_runs(reading, varies, given->n_list)
                 : combine_runs(reading, varies, given->n_list);
}

/* What the script says of a run goes behind what --vary says. */
static bool add_said(Reading *reading, const SweepOptions *varied, const SweepOptions *said) {
    SweepOptions run = {0};
    for (int i = 0; i < varied->count + said->count; i++) {
        const bool is_varied = i < varied->count;
        const SweepOption option = is_varied ? varied->items[i] : said->items[i - varied->count];
        for (int k = 0; k < run.count; k++) {
            if (strcmp(run.items[k].key, option.key) != 0) continue;
            return refuse_key(reading, option.key, "is varied already");
        }
        if (!is_varied && !check_key(reading, option.key)) return false;
        ARENA_PUSH(reading->arena, run.items, run.count, run.capacity, option);
    }
    return add_run(reading, &run);
}

static bool ask_script(Reading *reading, SweepScript *script) {
    const SweepOptions none = {0};
    int n = 0;
    const SweepOptions *runs = sweep_script_runs(script, &n);
    const bool asks = sweep_script_is_function(script);
    const bool varied = reading->args->values[OPT_VARY].n_list > 0;
    if (asks != varied) {
        diag_error(reading->diag, NO_LOC,
                   asks ? "--trials %s: is a function of what varies: give --vary, too"
                        : "--trials %s: is a list of all runs: without --vary",
                   cli_text(reading->args, OPT_TRIALS, ""));
        return false;
    }
    if (asks) {
        if (!read_varies(reading)) return false;
        runs = reading->runs, n = reading->n;
        reading->runs = NULL, reading->n = reading->capacity = 0;
    }
    reading->from =
        arena_printf(reading->arena, "--trials %s", cli_text(reading->args, OPT_TRIALS, ""));
    for (int i = 0; i < n; i++) {
        SweepOptions said = none;
        bool left_out = false;
        if (asks && !sweep_script_call(script, &runs[i], &said, &left_out)) return false;
        if (left_out) continue;
        if (!(asks ? add_said(reading, &runs[i], &said) : add_said(reading, &none, &runs[i]))) {
            return false;
        }
    }
    if (reading->n > 0) return true;
    diag_error(reading->diag, NO_LOC, "%s: leaves all runs out", reading->from);
    return false;
}

static bool read_runs(Reading *reading) {
    CliArgs *args = reading->args;
    const char *path = cli_text(args, OPT_TRIALS, NULL);
    const bool varied = args->values[OPT_VARY].n_list > 0;
    if (!varied && !path) {
        diag_error(reading->diag, NO_LOC,
                   "sweep: what is to vary? give --vary KEY=VALUES, as in --vary lr=1e-4,1e-3");
        return false;
    }
    if (cli_given(args, OPT_RANDOM_SEED) && !cli_given(args, OPT_RANDOM)) {
        diag_error(reading->diag, NO_LOC, "--random-seed: goes with --random N");
        return false;
    }
    if (cli_given(args, OPT_RANDOM) && !varied) {
        diag_error(reading->diag, NO_LOC, "--random: draws from what --vary says");
        return false;
    }
    if (!path) return read_varies(reading);
    SweepScript *script = sweep_script_open(reading->arena, path, reading->diag);
    bool good = script && ask_script(reading, script);
    sweep_script_close(script);
    return good;
}

static const char *value_of(const SweepOptions *run, const char *key) {
    for (int i = 0; i < run->count; i++) {
        if (strcmp(run->items[i].key, key) == 0) return run->items[i].value;
    }
    return NULL;
}

static bool differs(const Reading *reading, const char *key) {
    const char *first = value_of(&reading->runs[0], key);
    for (int i = 1; i < reading->n; i++) {
        const char *value = value_of(&reading->runs[i], key);
        if (!first != !value || (first && strcmp(first, value) != 0)) return true;
    }
    return reading->n == 1;
}

static void set_keys(Reading *reading) {
    Sweep *sweep = reading->sweep;
    int capacity = 0;
    for (int i = 0; i < reading->n; i++) {
        for (int o = 0; o < reading->runs[i].count; o++) {
            const char *key = reading->runs[i].items[o].key;
            int k = 0;
            while (k < sweep->n_keys && strcmp(sweep->keys[k], key) != 0) k++;
            if (k < sweep->n_keys || !differs(reading, key)) continue;
            ARENA_PUSH(reading->arena, sweep->keys, sweep->n_keys, capacity, key);
        }
    }
    sweep->n_runs = reading->n;
    sweep->runs = ARENA_ARRAY(reading->arena, SweepRun, reading->n);
    for (int i = 0; i < reading->n; i++) {
        sweep->runs[i].settings = ARENA_ARRAY(reading->arena, const char *, sweep->n_keys + 1);
        for (int k = 0; k < sweep->n_keys; k++) {
            sweep->runs[i].settings[k] = value_of(&reading->runs[i], sweep->keys[k]);
        }
    }
    sweep_name_runs(sweep);
}

/* --- files of runs --- */

static bool check_name(const Reading *reading, CliOption option, const char *name) {
    const Sweep *sweep = reading->sweep;
    const char *why = NULL;
    if (!*name || strchr(name, '/') || strcmp(name, "-") == 0 || name[0] == '.') {
        why = "must be a file's name alone: it will be in each run's folder";
    }
    for (size_t i = 0; i < sizeof(OWN_NAMES) / sizeof(OWN_NAMES[0]); i++) {
        if (strcmp(name, OWN_NAMES[i]) == 0) why = "is the sweep's own file";
    }
    for (int i = 1; i < sweep->n_outputs; i += 2) {
        if (strcmp(name, sweep->outputs[i]) == 0) why = "is written by two options";
    }
    if (sweep->checkpoint && strcmp(name, sweep->checkpoint) == 0) why = "is the checkpoint";
    if (!why) return true;
    diag_error(reading->diag, NO_LOC, "--%s: '%s' %s", CLI_OPTIONS[option].name, name, why);
    return false;
}

static bool set_outputs(Reading *reading) {
    CliArgs *args = reading->args;
    Sweep *sweep = reading->sweep;
    int capacity = 0;
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (OWN[i] == OPT_QUIET || !cli_given(args, OWN[i])) continue;
        diag_error(reading->diag, NO_LOC, "sweep: --%s: is not for a sweep's runs%s",
                   CLI_OPTIONS[OWN[i]].name,
                   OWN[i] == OPT_LOG ? ": each has log.jsonl in its folder" : "");
        return false;
    }
    const char *name = cli_text(args, OPT_CHECKPOINT, NULL);
    if (name && !check_name(reading, OPT_CHECKPOINT, name)) return false;
    if (!name && (cli_given(args, OPT_CHECKPOINT_EVERY) || sweep->stop_worse)) {
        name = OWN_CHECKPOINT;
        sweep->removes_checkpoint = true;
    }
    for (int i = 0; i < 2 && !cli_given(args, OPT_CHECKPOINT); i++) {
        const CliOption keeps = i ? OPT_CHECKPOINT_KEEP_EVERY : OPT_CHECKPOINT_KEEP;
        if (!cli_given(args, keeps)) continue;
        diag_error(reading->diag, NO_LOC,
                   "--%s: needs --checkpoint NAME: others are removed when their run has ended",
                   CLI_OPTIONS[keeps].name);
        return false;
    }
    sweep->checkpoint = name;
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliOptionInfo *info = &CLI_OPTIONS[i];
        if (i == OPT_CHECKPOINT || info->kind != KIND_WRITE || !cli_given(args, (CliOption)i) ||
            !(info->groups & TRAIN_GROUPS)) {
            continue;
        }
        const char *file = args->values[i].text;
        if (!check_name(reading, (CliOption)i, file)) return false;
        ARENA_PUSH(args->arena, sweep->outputs, sweep->n_outputs, capacity, info->name);
        ARENA_PUSH(args->arena, sweep->outputs, sweep->n_outputs, capacity, file);
    }
    return true;
}

/* --- arguments --- */

static void add(Reading *reading, SweepRun *run, int *capacity, const char *text) {
    ARENA_PUSH(reading->arena, run->arguments, run->n_arguments, *capacity, text);
}

static const char *dashed(Arena *arena, CliOption option) {
    return arena_printf(arena, "--%s", CLI_OPTIONS[option].name);
}

/* What is said for all runs. A profile predicts for the sweep; train takes it only with what it
 * compares it with. */
static void add_common(Reading *reading, SweepRun *run, int *capacity) {
    const CliArgs *args = reading->args;
    const bool measures = cli_given(args, OPT_TRACE_FILE) || cli_given(args, OPT_STRAGGLERS);
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliOption option = (CliOption)i;
        const CliOptionInfo *info = &CLI_OPTIONS[i];
        const CliValue *value = &args->values[i];
        if (!value->given || !(info->groups & TRAIN_GROUPS) || is_own(option) ||
            info->kind == KIND_WRITE || (option == OPT_PROFILE && !measures)) {
            continue;
        }
        for (int k = 0; k < value->n_list; k++) {
            add(reading, run, capacity, dashed(reading->arena, option));
            add(reading, run, capacity, value->list[k]);
        }
        if (value->n_list) continue;
        add(reading, run, capacity, dashed(reading->arena, option));
        if (info->kind != KIND_FLAG) add(reading, run, capacity, value->text);
    }
}

static bool add_varied(Reading *reading, SweepRun *run, int *capacity, const SweepOption *option) {
    const char *name;
    const CliOption set = find_setting(option->key, &name);
    if (set != N_OPTIONS) {
        add(reading, run, capacity, dashed(reading->arena, set));
        add(reading, run, capacity, arena_printf(reading->arena, "%s=%s", name, option->value));
        return true;
    }
    const CliOption found = find_option(option->key);
    const bool flag = CLI_OPTIONS[found].kind == KIND_FLAG;
    const bool off = strcmp(option->value, "false") == 0;
    if (flag && !off && strcmp(option->value, "true") != 0) {
        return refuse_key(reading, option->key, "is true or false");
    }
    if (flag && off) return true;
    add(reading, run, capacity, dashed(reading->arena, found));
    if (!flag) add(reading, run, capacity, option->value);
    return true;
}

static bool set_arguments(Reading *reading) {
    for (int i = 0; i < reading->n; i++) {
        int capacity = 0;
        SweepRun *run = &reading->sweep->runs[i];
        add_common(reading, run, &capacity);
        for (int o = 0; o < reading->runs[i].count; o++) {
            if (!add_varied(reading, run, &capacity, &reading->runs[i].items[o])) return false;
        }
    }
    return true;
}

const char **sweep_command(Arena *arena, const Sweep *sweep, const SweepRun *run,
                           const char *program, int64_t last_step, int n_threads, int *out_count) {
    const char **argv = NULL;
    int n = 0, capacity = 0;
#define PUT(text) ARENA_PUSH(arena, argv, n, capacity, (text))
    PUT(program);
    PUT("train");
    PUT(sweep->model);
    for (int i = 0; i < run->n_arguments; i++) PUT(run->arguments[i]);
    for (int i = 0; i < sweep->n_outputs; i += 2) {
        PUT(arena_printf(arena, "--%s", sweep->outputs[i]));
        PUT(sweep_file(arena, run, sweep->outputs[i + 1]));
    }
    PUT("--log");
    PUT(sweep_file(arena, run, "log.jsonl"));
    if (sweep->checkpoint) {
        PUT("--checkpoint");
        PUT(sweep_file(arena, run, sweep->checkpoint));
        PUT("--continue");
    }
    if (last_step < run->n_steps) {
        PUT("--stop-at");
        PUT(arena_printf(arena, "%" PRId64, last_step));
    }
    if (n_threads) {
        PUT("--threads");
        PUT(arena_printf(arena, "%d", n_threads));
    }
    *out_count = n;
    PUT(NULL);
#undef PUT
    return argv;
}

/* --- plans --- */

/* One for all runs that differ in nothing that a plan depends on; a learning rate and a seed change
 * neither its sizes nor its times. */
typedef struct KnownPlan {
    const char *key;
    Plan *plan;
    SweepEstimate estimate;
    const char *fingerprint;
} KnownPlan;

typedef struct Planning {
    Reading *reading;
    SweepPlan *out;
    const DeviceProfile *profile;
    KnownPlan *plans;
    int n_plans, capacity;
    bool noted;
} Planning;

static const char *plan_key(const CliArgs *train) {
    StrBuf text = strbuf_create();
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliValue *value = &train->values[i];
        if (!value->given || i == OPT_LR || i == OPT_SEED ||
            !(CLI_OPTIONS[i].groups & (IN_PLANNING | IN_LAYOUT | IN_TEACHING))) {
            continue;
        }
        strbuf_printf(&text, "%d\n", i);
        for (int k = 0; k < value->n_list; k++) strbuf_printf(&text, "%s\n", value->list[k]);
        if (!value->n_list && value->text) strbuf_printf(&text, "%s\n", value->text);
    }
    const char *key = arena_strdup(train->arena, text.text ? text.text : "");
    strbuf_destroy(&text);
    return key;
}

static bool make_plan(Planning *planning, CliArgs *train, KnownPlan *known) {
    Diag *diag = planning->reading->diag;
    train->model_noted = planning->noted;
    planning->noted = true;
    Plan *plan = known->plan = plan_from_operand(train, diag);
    Device device;
    if (!plan || !device_of_plan(planning->reading->args, planning->profile, plan, &device, diag)) {
        return false;
    }
    if (plan->cuda && mesh_rank_count(&plan->mesh) > 1 && !cli_given(train, OPT_VIRTUAL_RANKS)) {
        diag_error(diag, NO_LOC,
                   "sweep: %d ranks on GPUs need a process each, and a run is one: perilune job "
                   "writes what starts them",
                   mesh_rank_count(&plan->mesh));
        return false;
    }
    Arena *work = arena_create();
    known->estimate = (SweepEstimate){
        .n_parameters = (double)plan->n_parameters,
        .n_tokens = (double)plan->global_batch * (double)plan_row_tokens(plan),
        .planned_bytes = plan->cuda ? plan_fullest_bytes(plan)
                                    : train_run_planned_bytes(plan) + plan_library_bytes(plan),
        .step_s = job_step_seconds(work, plan, &device, diag),
    };
    arena_destroy(work);
    known->fingerprint = arena_printf(train->arena, "%016" PRIx64, plan->fingerprint);
    planning->out->cuda |= plan->cuda;
    planning->out->on = planning->profile ? planning->profile->path : default_cluster(plan->cuda);
    return known->estimate.step_s > 0;
}

static bool check_reads(const CliArgs *train, Diag *diag) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliOptionInfo *info = &CLI_OPTIONS[i];
        const CliValue *value = &train->values[i];
        if (i == OPT_CHAT_TEMPLATE || !value->given) continue; /* that may be a name */
        if (info->kind != KIND_READ && info->kind != KIND_READS) continue;
        const bool listed = info->kind == KIND_READS;
        for (int k = 0; k < (listed ? value->n_list : 1); k++) {
            const char *path = listed ? value->list[k] : value->text;
            if (access(path, R_OK) == 0) continue;
            diag_error(diag, NO_LOC, "--%s %s: %s", info->name, path, strerror(errno));
            return false;
        }
    }
    return true;
}

/* False: reported. */
static bool plan_run(Planning *planning, SweepRun *run, CliArgs *train) {
    Reading *reading = planning->reading;
    const char *key = plan_key(train);
    int p = 0;
    if (!cli_given(train, OPT_DATA)) {
        diag_error(reading->diag, NO_LOC, "sweep: what are the runs to learn from? give --data");
        return false;
    }
    while (p < planning->n_plans && strcmp(planning->plans[p].key, key) != 0) p++;
    if (p == planning->n_plans) {
        KnownPlan known = {.key = key};
        if (!make_plan(planning, train, &known)) return false;
        ARENA_PUSH(reading->arena, planning->plans, planning->n_plans, planning->capacity, known);
    }
    const KnownPlan *known = &planning->plans[p];
    SweepEstimate *estimate = &planning->out->estimates[run - reading->sweep->runs];
    run->n_steps = cli_int(train, OPT_STEPS, TRAIN_STEPS);
    run->eval_every = cli_int(train, OPT_EVAL_EVERY, 0);
    run->plan = known->fingerprint;
    *estimate = known->estimate;
    estimate->n_tokens *= (double)run->n_steps;
    return train_check(train, known->plan, reading->diag) && check_reads(train, reading->diag);
}

/* -1, or the exit code: printed, and which run it is of. */
static int plan_runs(Planning *planning) {
    Reading *reading = planning->reading;
    Sweep *sweep = reading->sweep;
    ProgressLine line = progress_line_start("runs planned");
    CliArgs *train = ARENA_NEW(reading->arena, CliArgs);
    int status = -1;
    for (int i = 0; i < sweep->n_runs && status < 0; i++) {
        SweepRun *run = &sweep->runs[i];
        int n = 0;
        const char **argv = sweep_command(reading->arena, sweep, run, "perilune", INT64_MAX, 0, &n);
        *train = (CliArgs){.arena = reading->arena, .command = cli_find_command("train")};
        const char *which = arena_printf(reading->arena, "run %s: %s", run->name,
                                         sweep_describe(reading->arena, sweep, run));
        progress_line_show(&line, i, sweep->n_runs, which);
        status = cli_parse(train, n - 2, (char **)argv + 2);
        if (status >= 0) {
            fprintf(stderr, "  note: in %s\n", which);
        } else if (!plan_run(planning, run, train)) {
            diag_note(reading->diag, NO_LOC, "in %s", which);
            status = EXIT_USAGE;
        }
    }
    progress_line_end(&line);
    return status;
}

/* --- all of them --- */

static bool set_rungs(Reading *reading) {
    Sweep *sweep = reading->sweep;
    sweep->stop_worse = (int)cli_int(reading->args, OPT_STOP_WORSE, 0);
    if (!sweep->stop_worse) {
        if (!cli_given(reading->args, OPT_RUNGS)) return true;
        diag_error(reading->diag, NO_LOC, "--rungs: goes with --stop-worse N");
        return false;
    }
    const int n_rungs = halving_rungs(reading->n, sweep->stop_worse);
    sweep->n_rungs = (int)cli_int(reading->args, OPT_RUNGS, n_rungs);
    if (n_rungs > 0) return true;
    diag_error(reading->diag, NO_LOC, "--stop-worse %d: of %d run%s none can be left out",
               sweep->stop_worse, reading->n, reading->n == 1 ? "" : "s");
    return false;
}

/* A rung at a run's end would leave nothing out. */
static bool check_rungs(const Sweep *sweep, Diag *diag) {
    for (int r = 0; r < sweep->n_runs && sweep->n_rungs > 0; r++) {
        const SweepRun *run = &sweep->runs[r];
        const int64_t last = halving_step(run->n_steps, sweep->stop_worse, sweep->n_rungs,
                                          sweep->n_rungs - 1, run->eval_every);
        if (last < run->n_steps) continue;
        diag_error(diag, NO_LOC,
                   "--stop-worse %d: the last rung of run %s would be its end, step %" PRId64
                   ": more --steps, or a smaller --eval-every",
                   sweep->stop_worse, run->name, run->n_steps);
        return false;
    }
    return true;
}

int sweep_plan_from_args(CliArgs *args, SweepPlan *out, Diag *diag) {
    Sweep *sweep = &out->sweep;
    Reading reading = {.args = args, .arena = args->arena, .sweep = sweep, .diag = diag};
    Planning planning = {.reading = &reading, .out = out};
    *sweep = (Sweep){.arena = args->arena,
                     .dir = cli_text(args, OPT_DIR, "sweep"),
                     .model = args->operand,
                     .by = cli_text(args, OPT_BY, NULL)};
    if (sweep->by && (!*sweep->by || !vary_is_plain(sweep->by))) {
        diag_error(diag, NO_LOC, "--by: is no name of a value, such as val_reward");
        return EXIT_USAGE;
    }
    if (!profile_from_args(args, &planning.profile, diag) || !read_runs(&reading) ||
        !set_rungs(&reading) || !set_outputs(&reading)) {
        return EXIT_USAGE;
    }
    set_keys(&reading);
    if (!set_arguments(&reading)) return EXIT_USAGE;
    out->estimates = ARENA_ARRAY(args->arena, SweepEstimate, sweep->n_runs);
    const int status = plan_runs(&planning);
    return status < 0 && !check_rungs(sweep, diag) ? EXIT_USAGE : status;
}
