/* perilune average: files of weights -> their mean. */
#include "frontend/commands/cli.h"
#include "frontend/progress_line.h"
#include "planner/show/show_facts.h"
#include "runtime/checkpoint/average.h"
#include "runtime/engine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

/* "3,1,1": [n_operands]. False: reported. */
static bool read_shares(const CliArgs *args, double *out, Diag *diag) {
    const char *text = cli_text(args, OPT_SHARES, ""), *at = text;
    double sum = 0;
    int n = 0;
    bool good = true, more = true;
    for (; good && more; n++) {
        size_t length = strcspn(at, ",");
        good = n < args->n_operands &&
               cli_parse_real(arena_strndup(args->arena, at, length), &out[n]) && out[n] >= 0;
        if (good) sum += out[n];
        more = at[length] == ',';
        at += length + more;
    }
    if (good && n == args->n_operands && sum > 0 && isfinite(sum)) return true;
    diag_error(diag, NO_LOC,
               "--shares: '%s' is not one number for each of %d files, all 0 or more and one more "
               "than 0",
               text, args->n_operands);
    return false;
}

static void print_average(const CliArgs *args, const AverageOptions *options,
                          const AverageTotals *totals) {
    char numbers[UNIT_TEXT];
    printf("mean    of %d files: %" PRId64 " tensors, %s numbers", options->n, totals->n_tensors,
           unit_count((double)totals->n_numbers, numbers));
    if (totals->n_states) printf("; the optimizer's states are left out");
    printf("\n");
    if (totals->differs > 0) {
        printf("note    %s was made with other settings than %s, which the mean has\n",
               options->paths[totals->differs], options->paths[0]);
    }
    for (int i = 0; i < options->n; i++) {
        printf("apart   %.3f %% of its length: %s\n", 100 * totals->distances[i],
               options->paths[i]);
    }
    printf("wrote   %s\n", cli_text(args, OPT_OUTPUT_WEIGHTS, ""));
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
    if (weighed && !read_shares(args, shares, diag)) return EXIT_USAGE;
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
