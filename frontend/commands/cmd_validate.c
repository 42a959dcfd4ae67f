/* perilune validate: predictions beside runs that were measured. */
#include "frontend/commands/cli.h"
#include "frontend/progress_line.h"
#include "frontend/validate/validate.h"

#include <string.h>

typedef void PutForm(StrBuf *out, const Validation *result);

static bool write_file(const CliArgs *args, CliOption option, PutForm *put,
                       const Validation *result, Diag *diag) {
    const char *path = cli_text(args, option, NULL);
    if (!path) return true;
    StrBuf text = strbuf_create();
    put(&text, result);
    bool good = cli_write(path, &text, diag);
    strbuf_destroy(&text);
    return good;
}

/* Page or drawing go to standard output: then nothing else does. */
static bool prints_file(const CliArgs *args) {
    return strcmp(cli_text(args, OPT_HTML_FILE, ""), "-") == 0 ||
           strcmp(cli_text(args, OPT_SVG_FILE, ""), "-") == 0;
}

static bool write_all(const CliArgs *args, const Validation *result, Diag *diag) {
    StrBuf text = strbuf_create();
    bool good = true;
    if (cli_given(args, OPT_JSON)) {
        good = validate_show_json(&text, result, diag);
    } else if (!prints_file(args)) {
        validate_show_text(&text, result);
    }
    good = good && cli_write(NULL, &text, diag);
    strbuf_destroy(&text);
    return good && write_file(args, OPT_HTML_FILE, validate_show_html, result, diag) &&
           write_file(args, OPT_SVG_FILE, validate_show_svg, result, diag);
}

/* The rows that are asked for, checked. */
static bool read_table(CliArgs *args, RunTable *table, Diag *diag) {
    CsvTable *csv = csv_read(args->arena, args->operand, validate_check_header, diag);
    const char *family = cli_text(args, OPT_FAMILY, NULL);
    return csv && validate_read(args->arena, csv, cli_given(args, OPT_AS_STATED), table, diag) &&
           (!family || validate_filter(table, family, diag));
}

/* EXIT_FAILED with a reason when nothing could be predicted. */
static int check_any(const RunTable *table, Diag *diag) {
    for (int r = 0; r < table->n_runs; r++) {
        if (!table->runs[r].skipped) return EXIT_DONE;
    }
    diag_error(diag, (SourceLoc){table->path, table->runs[0].line},
               "nothing could be predicted: %s", table->runs[0].skipped);
    return EXIT_FAILED;
}

int cmd_validate(CliArgs *args) {
    Diag *diag = diag_create();
    RunTable table;
    int status = EXIT_USAGE;
    if (read_table(args, &table, diag)) {
        ProgressLine line = progress_line_start("predicted");
        ValidateOptions options = {.cluster = cli_text(args, OPT_CLUSTER, NULL),
                                   .software = cli_text(args, OPT_SOFTWARE, NULL),
                                   .model = cli_text(args, OPT_MODEL_FILE, NULL),
                                   .progress = progress_line_show,
                                   .user = &line};
        bool good = validate_predict(args->arena, &table, &options, diag);
        Validation result = {.arena = args->arena,
                             .table = &table,
                             .cluster = options.cluster,
                             .software = options.software,
                             .elapsed_seconds = progress_line_end(&line)};
        if (good) status = check_any(&table, diag);
        if (good && status == EXIT_DONE) {
            result.stats = validate_stats(args->arena, &table, &result.n_stats);
            if (!write_all(args, &result, diag)) status = EXIT_FAILED;
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
