/* What a sweep has come to so far: its runs, the best first, as text, JSON or a page. All of it is
 * read from the sweep's folder. */
#ifndef FRONTEND_COMMANDS_SWEEP_REPORT_H
#define FRONTEND_COMMANDS_SWEEP_REPORT_H

#include "frontend/commands/run_figures.h"
#include "frontend/commands/sweep_folder.h"
#include "frontend/commands/sweep_loss.h"

/* In the order of the table. */
typedef enum SweepState {
    SWEEP_DONE,
    SWEEP_STOPPED, /* others were better */
    SWEEP_BEGUN,   /* runs, or was interrupted */
    SWEEP_FAILED,
    SWEEP_WAITING
} SweepState;

typedef struct SweepRow {
    const SweepRun *run;
    SweepState state;
    bool has_log;          /* that can be read */
    RunFigures figures;    /* of it; without its curve, but where all are kept */
    const RunCurve *curve; /* NULL: is not kept */
    double parameters, tokens;
    SweepLoss losses;
    double loss;     /* that runs are ordered by, or what --by says, negated; NaN: none */
    const char *why; /* of one that failed, or whose log cannot be read; else "" */
} SweepRow;

/* Runs that differ in nothing but the seed. */
typedef struct SweepGroup {
    const SweepRun *run;    /* the first */
    int n;                  /* that are done */
    double mean, deviation; /* of their losses; deviation (n - 1): NaN where one is done */
} SweepGroup;

typedef struct SweepReport {
    const Sweep *sweep;
    SweepRow *rows; /* [n_runs] */
    bool validated; /* losses are those in validation */
    bool has_val;   /* any run has one */
    int n_done, n_failed;
    int seed;           /* place of that key; -1: it does not vary, or alone */
    SweepGroup *groups; /* [n_groups], the best first */
    int n_groups;
} SweepReport;

/* `curves`: are kept, for the page. NULL: reported. */
const SweepReport *sweep_report_read(Arena *arena, const char *dir, bool curves, Diag *diag);

/* A row's loss, or a group's mean, as it is told; and what of, as columns have it. */
double sweep_shown(const SweepReport *report, double loss);
const char *sweep_measure(const SweepReport *report);
const char *sweep_state_name(SweepState state);
/* What a cell of the table says of a run beside its figures: "stopped at 100", "failed: ...". */
const char *sweep_row_note(Arena *arena, const SweepRow *row);
/* "lr=1e-3 set.layers=4", without the seed. */
const char *sweep_group_name(Arena *arena, const SweepReport *report, const SweepGroup *group);

void sweep_report_text(StrBuf *out, Arena *arena, const SweepReport *report);
void sweep_report_json(StrBuf *out, Arena *arena, const SweepReport *report);
void sweep_report_html(StrBuf *out, Arena *arena, const SweepReport *report);

#endif
