/* perilune average: files of weights -> their mean, or what else is made of them. */
#include "frontend/commands/cli.h"
#include "frontend/progress_line.h"
#include "planner/show/show_facts.h"
#include "runtime/checkpoint/average.h"
#include "runtime/engine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const METHODS[] = {[MERGE_MEAN] = "mean",
                                      [MERGE_SLERP] = "slerp",
                                      [MERGE_TASK] = "task",
                                      [MERGE_TIES] = "ties",
                                      [MERGE_DARE] = "dare"};
enum { N_METHODS = sizeof(METHODS) / sizeof(METHODS[0]) };

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

/* "3,1,1": [n_operands]; factors may be below 0. False: reported. */
static bool read_shares(const CliArgs *args, bool factors, double *out, Diag *diag) {
    const char *text = cli_text(args, OPT_SHARES, ""), *at = text;
    double sum = 0;
    int n = 0;
    bool good = true, more = true;
    for (; good && more; n++) {
        size_t length = strcspn(at, ",");
        good = n < args->n_operands &&
               cli_parse_real(arena_strndup(args->arena, at, length), &out[n]) &&
               (factors || out[n] >= 0);
        if (good) sum += out[n];
        more = at[length] == ',';
        at += length + more;
    }
    if (good && n == args->n_operands && isfinite(sum) && (factors || sum > 0)) return true;
    if (factors) {
        diag_error(diag, NO_LOC, "--shares: '%s' is not one number for each of %d files", text,
                   args->n_operands);
        return false;
    }
    diag_error(diag, NO_LOC,
               "--shares: '%s' is not one number for each of %d files, all 0 or more and one more "
               "than 0",
               text, args->n_operands);
    return false;
}

static void print_average(const CliArgs *args, const AverageOptions *options,
                          const AverageTotals *totals) {
    char numbers[UNIT_TEXT];
    printf("%-8sof %d files: %" PRId64 " tensors, %s numbers", METHODS[options->method], options->n,
           totals->n_tensors, unit_count((double)totals->n_numbers, numbers));
    if (totals->n_states) printf("; the optimizer's states are left out");
    printf("\n");
    if (totals->differs > 0) {
        printf("note    %s was made with other settings than %s, which the result has\n",
               options->paths[totals->differs], options->paths[0]);
    }
    for (int i = 0; i < options->n; i++) {
        printf("apart   %.3f %% of its length: %s\n", 100 * totals->distances[i],
               options->paths[i]);
    }
    printf("wrote   %s\n", cli_text(args, OPT_OUTPUT_WEIGHTS, ""));
}

static bool refuse_option(Diag *diag, const char *option, const char *method) {
    diag_error(diag, NO_LOC, "--%s is not for --method %s", option, method);
    return false;
}

/* --method and what belongs to it. False: reported. */
static bool read_method(const CliArgs *args, AverageOptions *out, Diag *diag) {
    const char *name = cli_text(args, OPT_METHOD, "mean");
    int method = 0;
    while (method < N_METHODS && strcmp(METHODS[method], name) != 0) method++;
    if (method == N_METHODS) {
        diag_error(diag, NO_LOC, "--method: '%s' is not mean, slerp, task, ties or dare", name);
        return false;
    }
    const bool thins = method == MERGE_TIES || method == MERGE_DARE;
    out->method = (MergeMethod)method;
    out->base = cli_text(args, OPT_MERGE_BASE, NULL);
    out->density = cli_real(args, OPT_DENSITY, method == MERGE_TIES ? 0.2 : 0.5);
    out->scale = cli_real(args, OPT_MERGE_SCALE, 1);
    out->seed = (uint64_t)cli_int(args, OPT_SEED, 1);
    if (!thins && cli_given(args, OPT_DENSITY)) return refuse_option(diag, "density", name);
    if (method != MERGE_DARE && cli_given(args, OPT_SEED)) return refuse_option(diag, "seed", name);
    if (!merge_needs_base(out->method)) {
        if (out->base) return refuse_option(diag, "base", name);
        if (cli_given(args, OPT_MERGE_SCALE)) return refuse_option(diag, "scale", name);
    } else if (!out->base) {
        diag_error(diag, NO_LOC, "--method %s: --base FILE says what the files were trained from",
                   name);
        return false;
    }
    if (thins && out->density <= 0) {
        diag_error(diag, NO_LOC, "--density: 0 keeps nothing; give more");
        return false;
    }
    if (method != MERGE_SLERP || out->n == 2) return true;
    diag_error(diag, NO_LOC, "--method slerp: is of two files, not of %d", out->n);
    return false;
}

static int average(CliArgs *args, Diag *diag) {
    int n = args->n_operands;
    double *shares = ARENA_ARRAY(args->arena, double, n);
    AverageTotals totals = {.distances = ARENA_ARRAY(args->arena, double, n)};
    ProgressLine line = progress_line_start("MiB averaged");
    bool quiet = cli_given(args, OPT_QUIET), weighed = cli_given(args, OPT_SHARES);
    AverageOptions options = {.paths = args->operands,
                              .shares = weighed ? shares : NULL,
                              .n = n,
                              .to = cli_text(args, OPT_OUTPUT_WEIGHTS, NULL),
                              .leaves_out = engine_is_place_key,
                              .settings_key = ENGINE_SETTINGS_KEY,
                              .progress = quiet ? NULL : show_bytes,
                              .progress_user = &line};
    if (!options.to || strcmp(options.to, "-") == 0) {
        return cli_usage_error("average: -o FILE says where to write the weights");
    }
    if (!read_method(args, &options, diag)) return EXIT_USAGE;
    const bool factors = options.method == MERGE_TASK || options.method == MERGE_DARE;
    if (weighed && !read_shares(args, factors, shares, diag)) return EXIT_USAGE;
    bool good = weights_average(&options, &totals, diag);
    progress_line_end(&line);
    if (!good) return totals.failed_to_write ? EXIT_FAILED : EXIT_USAGE;
    if (!quiet) print_average(args, &options, &totals);
    return EXIT_DONE;
}

int cmd_average(CliArgs *args) {
    Diag *diag = diag_create();
    int status = average(args, diag);
    if (diag_error_count(diag) > 0) status = cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
