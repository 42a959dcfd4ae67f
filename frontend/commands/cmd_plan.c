/* perilune plan, show, check: make a plan, print its forms, prove it. */
#include "frontend/commands/plan_args.h"
#include "frontend/commands/plan_search.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/run_curve.h"
#include "frontend/commands/search_args.h"
#include "frontend/commands/show_cuda.h"
#include "frontend/commands/show_run.h"
#include "frontend/commands/show_weights.h"
#include "frontend/commands/sweep_report.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "planner/plan/plan_text.h"
#include "planner/show/show.h"

#include <inttypes.h>
#include <string.h>

typedef bool ShowFunction(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

static bool write_form(ShowFunction *show, const Device *device, const Plan *plan, const char *path,
                       Diag *diag) {
    StrBuf text = strbuf_create();
    bool good = show(&text, plan, device, diag) && cli_write(path, &text, diag);
    strbuf_destroy(&text);
    return good;
}

static bool write_plan(CliArgs *args, const Device *device, const Plan *plan, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    ShowFunction *show = cli_given(args, OPT_JSON) ? show_cuda_json : show_cuda_text;
    if (!path) return write_form(show, device, plan, NULL, diag);
    if (strcmp(path, "-") == 0) {
        StrBuf text = strbuf_create();
        plan_print(&text, plan);
        bool good = cli_write(NULL, &text, diag);
        strbuf_destroy(&text);
        return good;
    }
    return plan_write(plan, path, diag) && write_form(show, device, plan, NULL, diag);
}

/* Graphs take the place of the plan and of what is said about it. */
static bool check_dump(const CliArgs *args, Diag *diag) {
    static const CliOption OTHERS[] = {OPT_JSON, OPT_PROFILE};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cli_given(args, OTHERS[i])) continue;
        diag_error(diag, NO_LOC, "--dump-after and --%s: one of them says what is written",
                   CLI_OPTIONS[OTHERS[i]].name);
        return false;
    }
    return true;
}

/* The graphs are written also where a later pass fails. */
static int write_dump(CliArgs *args, Diag *diag) {
    StrBuf graphs = strbuf_create();
    int status = EXIT_USAGE;
    if (check_dump(args, diag)) {
        const Plan *plan = plan_from_model(args, &graphs, diag);
        if (plan) status = EXIT_DONE;
        if (graphs.length && !cli_write(cli_text(args, OPT_OUTPUT, NULL), &graphs, diag)) {
            status = EXIT_FAILED;
        }
    }
    strbuf_destroy(&graphs);
    return status;
}

static int make_plan(CliArgs *args, Diag *diag) {
    const DeviceProfile *profile;
    Device device;
    if (!plan_without_search(args, diag)) return EXIT_USAGE;
    if (cli_given(args, OPT_DUMP_AFTER)) return write_dump(args, diag);
    if (!profile_from_args(args, &profile, diag)) return EXIT_USAGE;
    const Plan *plan = plan_from_model(args, NULL, diag);
    if (!plan || !device_of_plan(args, profile, plan, &device, diag)) return EXIT_USAGE;
    return write_plan(args, &device, plan, diag) ? EXIT_DONE : EXIT_FAILED;
}

int cmd_plan(CliArgs *args) {
    if (search_is_wanted(args)) return plan_by_search(args);
    Diag *diag = diag_create();
    int status = make_plan(args, diag);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}

static const struct {
    CliOption option;
    ShowFunction *show;
} FORMS[] = {{OPT_JSON, show_cuda_json},
             {OPT_DOT, show_dot},
             {OPT_HTML, show_html},
             {OPT_TRACE, show_trace}};

/* The one form asked for; NULL, reported, when there are two. */
static ShowFunction *choose_form(const CliArgs *args, Diag *diag) {
    ShowFunction *chosen = NULL;
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++) {
        if (!cli_given(args, FORMS[i].option)) continue;
        if (chosen) {
            diag_error(diag, NO_LOC, "--%s: one form at a time", CLI_OPTIONS[FORMS[i].option].name);
            return NULL;
        }
        chosen = FORMS[i].show;
    }
    return chosen ? chosen : show_cuda_text;
}

/* What predicts must not be given for a form or file that has no predictions. */
static bool check_predicts(const CliArgs *args, const char *what, Diag *diag) {
    static const CliOption PREDICTS[] = {OPT_PROFILE, OPT_CLUSTER};
    for (size_t i = 0; i < sizeof(PREDICTS) / sizeof(PREDICTS[0]); i++) {
        if (!cli_given(args, PREDICTS[i])) continue;
        diag_error(diag, NO_LOC, "--%s: nothing is predicted for %s", CLI_OPTIONS[PREDICTS[i]].name,
                   what);
        return false;
    }
    return true;
}

static int show_log(CliArgs *args, ShowFunction *form, Diag *diag) {
    if (!check_predicts(args, "a run log", diag)) return EXIT_USAGE;
    bool (*show)(StrBuf *, const char *, Diag *) = form == show_html        ? show_run_html
                                                   : form == show_cuda_json ? show_run_json
                                                   : form == show_cuda_text ? show_run_text
                                                                            : NULL;
    if (!show) {
        diag_error(diag, NO_LOC, "%s: a run log is shown as text, with --json or with --html",
                   args->operand);
        return EXIT_USAGE;
    }
    StrBuf text = strbuf_create();
    int status = EXIT_DONE;
    if (!show(&text, args->operand, diag)) {
        status = EXIT_USAGE;
    } else if (!cli_write(cli_text(args, OPT_OUTPUT, NULL), &text, diag)) {
        status = EXIT_FAILED;
    }
    strbuf_destroy(&text);
    return status;
}

static int show_weights(CliArgs *args, ShowFunction *form, Diag *diag) {
    if (!check_predicts(args, "weights", diag)) return EXIT_USAGE;
    if (form != show_cuda_text && form != show_cuda_json) {
        diag_error(diag, NO_LOC, "%s: weights are shown as text, or with --json", args->operand);
        return EXIT_USAGE;
    }
    StrBuf text = strbuf_create();
    bool as_json = form == show_cuda_json;
    int status = EXIT_DONE;
    bool values = cli_given(args, OPT_VALUES);
    if (!(as_json ? show_weights_json : show_weights_text)(&text, args->operand, values, diag)) {
        status = EXIT_USAGE;
    } else if (!cli_write(cli_text(args, OPT_OUTPUT, NULL), &text, diag)) {
        status = EXIT_FAILED;
    }
    strbuf_destroy(&text);
    return status;
}

static int show_plan(CliArgs *args, ShowFunction *form, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    const DeviceProfile *profile;
    if (form == show_dot && !check_predicts(args, "--dot", diag)) return EXIT_USAGE;
    if (!profile_from_args(args, &profile, diag)) return EXIT_USAGE;
    Plan *plan = plan_read(args->arena, args->operand, diag);
    Device device;
    if (!plan || !device_of_plan(args, profile, plan, &device, diag)) return EXIT_USAGE;
    return write_form(form, &device, plan, path, diag) ? EXIT_DONE : EXIT_FAILED;
}

/* A sweep's folder. */
static int show_sweep(CliArgs *args, ShowFunction *form, Diag *diag) {
    if (!check_predicts(args, "a sweep", diag)) return EXIT_USAGE;
    void (*put)(StrBuf *, Arena *, const SweepReport *) =
        form == show_html        ? sweep_report_html
        : form == show_cuda_json ? sweep_report_json
        : form == show_cuda_text ? sweep_report_text
                                 : NULL;
    if (!put) {
        diag_error(diag, NO_LOC, "%s: a sweep is shown as text, with --json or with --html",
                   args->operand);
        return EXIT_USAGE;
    }
    const SweepReport *report =
        sweep_report_read(args->arena, args->operand, form == show_html, diag);
    if (!report) return EXIT_USAGE;
    StrBuf text = strbuf_create();
    put(&text, args->arena, report);
    bool good = cli_write(cli_text(args, OPT_OUTPUT, NULL), &text, diag);
    strbuf_destroy(&text);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_show(CliArgs *args) {
    Diag *diag = diag_create();
    ShowFunction *form = choose_form(args, diag);
    int status = EXIT_USAGE;
    if (form && is_run_log(args->operand) && !cli_given(args, OPT_VALUES)) {
        status = show_log(args, form, diag);
    } else if (form && !cli_given(args, OPT_VALUES) && is_sweep_folder(args->operand)) {
        status = show_sweep(args, form, diag);
    } else if (form && is_weights(args->operand)) {
        status = show_weights(args, form, diag);
    } else if (form && cli_given(args, OPT_VALUES)) {
        diag_error(diag, (SourceLoc){args->operand, 0},
                   "is no file of weights: --values is for one");
    } else if (form) {
        status = show_plan(args, form, diag);
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}

/* The lines of text that the Diag holds, notes included, as a JSON array. */
static void put_messages(StrBuf *out, const Diag *diag) {
    const char *line = diag_text(diag);
    strbuf_put(out, "[");
    while (*line) {
        size_t length = strcspn(line, "\n");
        StrBuf text = strbuf_create();
        strbuf_put_bytes(&text, line, length);
        if (line != diag_text(diag)) strbuf_put(out, ",");
        json_put_text(out, text.text);
        strbuf_destroy(&text);
        line += length + (line[length] == '\n');
    }
    strbuf_put(out, "]");
}

static void print_verdict(const CliArgs *args, const Plan *plan, const Diag *diag) {
    int64_t n_tasks = 0;
    for (int s = 0; s < plan->n_stages; s++) n_tasks += plan->stages[s].n_tasks;
    if (cli_given(args, OPT_JSON)) {
        StrBuf messages = strbuf_create();
        put_messages(&messages, diag);
        printf("{\"sound\":%s,\"defects\":%d,\"messages\":%s,\"ranks\":%d,\"stages\":%d,"
               "\"tasks\":%" PRId64 ",\"fingerprint\":\"%016" PRIx64 "\"}\n",
               diag_error_count(diag) ? "false" : "true", diag_error_count(diag), messages.text,
               mesh_rank_count(&plan->mesh), plan->n_stages, n_tasks, plan->fingerprint);
        strbuf_destroy(&messages);
    } else if (diag_error_count(diag) == 0) {
        int n_ranks = mesh_rank_count(&plan->mesh);
        printf("%s is sound: %d rank%s, %d stage%s, %" PRId64 " tasks; fingerprint %016" PRIx64
               "\n",
               args->operand, n_ranks, n_ranks == 1 ? "" : "s", plan->n_stages,
               plan->n_stages == 1 ? "" : "s", n_tasks, plan->fingerprint);
    }
}

/* plan_read, but a plan that can be read and is not sound is an answer, not an input error. */
int cmd_check(CliArgs *args) {
    Diag *diag = diag_create();
    int status = EXIT_USAGE;
    size_t length;
    Arena *work = arena_create();
    char *text = file_read(work, args->operand, MAX_PLAN_BYTES, &length, diag);
    Plan *plan = NULL;
    if (text && strlen(text) != length) {
        diag_error(diag, (SourceLoc){args->operand, 0}, "is no plan: it has zero bytes");
    } else if (text) {
        plan = plan_parse(args->arena, args->operand, text, diag);
    }
    arena_destroy(work);
    if (plan) {
        uint64_t fingerprint = plan_fingerprint(plan);
        if (verify_plan(plan, diag) && fingerprint != plan->fingerprint) {
            diag_error(diag, (SourceLoc){args->operand, 0},
                       "was changed after it was written: fingerprint %016" PRIx64
                       ", but the text gives %016" PRIx64,
                       plan->fingerprint, fingerprint);
        }
        status = diag_error_count(diag) ? EXIT_FAILED : EXIT_DONE;
        print_verdict(args, plan, diag);
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
