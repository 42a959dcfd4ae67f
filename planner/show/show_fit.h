/* Show a scaling law that was fitted to runs: as text, as JSON, as a page. */
#ifndef PLANNER_SHOW_SHOW_FIT_H
#define PLANNER_SHOW_SHOW_FIT_H

#include "ir/base/strbuf.h"
#include "planner/scaling/fit_law.h"

typedef struct FitReport {
    int n_runs;
    const FitRun *runs; /* names are untrusted */
    const LawFit *fit;
    const char *losses; /* what they are: "validation" */
    int n_warnings;
    const char *const *warnings;
} FitReport;

/* Lines of at most 100 columns. */
void show_fit_text(StrBuf *out, const FitReport *report);
/* One JSON object; keys: see the head of show_fit.c. */
void show_fit_json(StrBuf *out, const FitReport *report);
/* One self-contained HTML page. */
void show_fit_html(StrBuf *out, const FitReport *report);

/* What the law says of some budgets of FLOPs: the largest run's, and 10, 100 and 1000 times that.
 */
enum { FIT_BUDGETS = 4 };
typedef struct FitBudget {
    double flops;
    LawOptimum best;
    Interval parameters, tokens, loss; /* NaN without draws */
} FitBudget;
void fit_budgets(const FitReport *report, FitBudget out[FIT_BUDGETS]);

/* Of the law's numbers over its draws; growth: the power of C that N grows as. */
typedef struct FitIntervals {
    Interval e, alpha, beta, growth;
} FitIntervals;
FitIntervals fit_intervals(const ScalingLaw *law);

#endif
