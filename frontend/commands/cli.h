/* The command line: a table of commands, a table of options, and what both give: parsing, checks,
 * help, suggestions. argv -> CliArgs, whose texts point into argv.
 *
 * Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 130 interrupted.
 */
#ifndef FRONTEND_COMMANDS_CLI_H
#define FRONTEND_COMMANDS_CLI_H

#include "frontend/nearest.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

typedef enum CliOption {
#define OPTION(upper, ...) OPT_##upper,
#include "frontend/commands/cli_options.def"
#undef OPTION
    N_OPTIONS
} CliOption;

/* Groups of options; a command takes some of them. */
enum CliGroup {
    IN_PLANNING = 1 << 0,
    IN_TRAINING = 1 << 1,
    IN_GENERATION = 1 << 2,
    IN_PLAN = 1 << 3,
    IN_FORMS = 1 << 4,
    IN_CHECK = 1 << 5,
    IN_PASSES = 1 << 6,
    IN_DEVICES = 1 << 7,
    IN_PROFILING = 1 << 8,
    IN_TUNING = 1 << 9,
    IN_SEARCH = 1 << 10,
    IN_CLUSTERS = 1 << 11,
    IN_LAYOUT = 1 << 12, /* of planning, what no search can be told */
    IN_TOKENIZER = 1 << 13,
    IN_VALIDATION = 1 << 14,
    IN_COMPARE = 1 << 15,
    IN_SCALE = 1 << 16,
    IN_IMPORT = 1 << 18,
    IN_AVERAGE = 1 << 22,
    IN_EXPORT = 1 << 19,
    IN_RUN_SEARCH = 1 << 20, /* what a search is told that a run begins with */
    IN_EVALUATION = 1 << 21,
    IN_TEACHING = 1 << 23, /* what a model learns from another */
    IN_FITTING = 1 << 24,
    IN_BUDGET = 1 << 25,
    IN_RENT = 1 << 26,
    IN_JOB = 1 << 27,
    IN_SWEEP = 1 << 28,
    IN_GROW = 1 << 29,
    IN_SEARCHED = 1 << 17, /* no command's: what a search chooses where it is not given */
    IN_RUNS = IN_TRAINING | IN_GENERATION | IN_EVALUATION,
    IN_ALL = ~IN_SEARCHED
};

typedef enum CliKind {
    KIND_FLAG,
    KIND_INT,
    KIND_REAL,
    KIND_TEXT,  /* the last one given counts, as of numbers: scripts append what differs */
    KIND_READ,  /* the same, a file to read */
    KIND_WRITE, /* a file to write, or a folder to write into */
    KIND_LIST,  /* all that are given, in order */
    KIND_READS, /* the same, files to read */
} CliKind;

typedef struct CliOptionInfo {
    const char *name;
    char letter; /* 0: none */
    CliKind kind;
    const char *value; /* what the help calls it */
    double least, most;
    int groups;
    const char *help;
} CliOptionInfo;
extern const CliOptionInfo CLI_OPTIONS[N_OPTIONS];

typedef struct CliValue {
    bool given;
    int64_t integer;
    double real;
    const char *text;
    const char **list; /* [n_list], owned by the arena */
    int n_list, list_capacity;
} CliValue;

typedef struct CliCommand CliCommand;

enum { MAX_OPERANDS = 1024, CLI_MOST_READS = 64, CLI_MOST_CLUSTERS = 16 };

typedef struct CliArgs {
    Arena *arena;
    const CliCommand *command;
    const char *operand;                /* the first; NULL: none */
    const char *operands[MAX_OPERANDS]; /* [n_operands]: all of them */
    int n_operands;
    CliValue values[N_OPTIONS];
    bool model_noted; /* the model's note is printed: a search loads it more than once */
    bool joined;      /* tried to: the job's other processes know of this one, or cannot be told */
} CliArgs;

/* The part of help that lists the options of `groups`, under a heading. */
typedef struct CliSection {
    const char *heading;
    int groups;
} CliSection;
enum { MAX_SECTIONS = 3 };

struct CliCommand {
    /* operand: "PLAN"; "A.plan B.plan" takes two; the last may be missing, as [PLAN], or be
     * several, as [TEXT]...; "": none */
    const char *name, *operand;
    const char *summary;
    CliSection sections[MAX_SECTIONS];
    const char *details; /* paragraphs and examples */
    int (*run)(CliArgs *args);
};

/* Ends with NULL name. In main.c. */
extern const CliCommand CLI_COMMANDS[];
const CliCommand *cli_find_command(const char *name);

/* Parses what follows the command's name. Returns -1 to go on, or the exit code: a mistake has been
 * printed, or help was asked for. */
int cli_parse(CliArgs *args, int argc, char **argv);

/* The same for files: none that is written may be one that is read, or be written twice. But `tune`
 * writes its plan again, and training may go on from the weights that it replaces. One thing at
 * most goes to standard output. What cannot be opened for writing is wrong usage, too; failing
 * while writing is failed work. From here on, scripts cannot read what will be replaced. */
int cli_check_files(const CliArgs *args);

int64_t cli_int(const CliArgs *args, CliOption option, int64_t absent);
double cli_real(const CliArgs *args, CliOption option, double absent);
const char *cli_text(const CliArgs *args, CliOption option, const char *absent);
static inline bool cli_given(const CliArgs *args, CliOption option) {
    return args->values[option].given;
}

/* The next name or file of --cluster, which begins at *text: `rent` takes several, with commas
 * between them. Moves *text on, to NULL behind the last. */
const char *cli_next_cluster(const CliArgs *args, const char **text);

/* What `name` might have been meant to be among options of these groups; NULL: nothing near. */
const char *cli_nearest_option(const char *name, int groups);

/* Whole text as a number; false when it is none or does not fit. */
bool cli_parse_int(const char *text, int64_t *out);
bool cli_parse_real(const char *text, double *out); /* finite */

/* One line, `perilune: ...`, on stderr; returns EXIT_USAGE. */
int cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints what the Diag holds, each error without a place after `perilune: `; returns `exit_code`.
 */
int cli_fail(const Diag *diag, int exit_code);
/* The first line that either has printed, without `perilune: ` and its end; "": none. */
const char *cli_first_error(void);

/* Finds out before the work, not after it, that a file cannot be written; NULL and "-" can. */
bool cli_try_path(const char *path, Diag *diag);
/* All that the options name, but for logs, as cli_check_files does itself where it can. */
bool cli_try_outputs(const CliArgs *args, Diag *diag);
/* Whole file, or standard output for NULL and "-". False: reported. */
bool cli_write(const char *path, const StrBuf *text, Diag *diag);

void cli_print_overview(FILE *stream);
void cli_print_help(const CliCommand *command, FILE *stream);

int cmd_plan(CliArgs *args);
int cmd_show(CliArgs *args);
int cmd_check(CliArgs *args);
int cmd_train(CliArgs *args);
int cmd_evaluate(CliArgs *args);
int cmd_generate(CliArgs *args);
int cmd_opt(CliArgs *args);
int cmd_devices(CliArgs *args);
int cmd_profile(CliArgs *args);
int cmd_tune(CliArgs *args);
int cmd_cluster(CliArgs *args);
int cmd_validate(CliArgs *args);
int cmd_compare(CliArgs *args);
int cmd_scale(CliArgs *args);
int cmd_budget(CliArgs *args);
int cmd_rent(CliArgs *args);
int cmd_fit(CliArgs *args);
int cmd_import(CliArgs *args);
int cmd_export(CliArgs *args);
int cmd_average(CliArgs *args);
int cmd_grow(CliArgs *args);
int cmd_job(CliArgs *args);
int cmd_sweep(CliArgs *args);
int cmd_tokenizer(CliArgs *args);

#endif
