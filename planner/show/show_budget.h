/* Show which size of a model a budget is best spent on: the best layout of each, what loss a
 * scaling law predicts for it, and which is the best of all. */
#ifndef PLANNER_SHOW_SHOW_BUDGET_H
#define PLANNER_SHOW_SHOW_BUDGET_H

#include "planner/cost/run_goodput.h"
#include "planner/options.h"
#include "planner/scaling/scaling_law.h"
#include "planner/search/search.h"

typedef struct BudgetRow {
    const char *size;
    SearchRequest request;
    const SearchResult *result; /* NULL: could not be searched */
    const char *refusal;        /* then why */
    ModelCosts *costs;          /* NULL: the model could not be made */
    PlanOptions options;        /* as in SearchReport */
} BudgetRow;

typedef struct BudgetReport {
    const char *model;
    const Cluster *cluster;
    const ScalingLaw *law;
    const char *law_name; /* as it was given */
    int n_ranks, global_batch;
    double days;                   /* the budget; 0: */
    double target_loss;            /* the loss to reach is given instead */
    double tokens_limit;           /* different ones that there are; 0: enough */
    const FailureChoice *failures; /* NULL: as the cluster says */
    int n_rows;
    const BudgetRow *rows; /* from the smallest model to the largest */
    double seconds;        /* that all searches took */
    const char *planned;   /* what was planned where that is not the fastest layout; or NULL */
    int n_warnings;
    const char *const *warnings;
} BudgetReport;

/* Lines of at most 100 columns. */
void show_budget_text(StrBuf *out, const BudgetReport *report);
/* One JSON object; keys: see the head of show_budget_json.c. */
void show_budget_json(StrBuf *out, const BudgetReport *report);
/* One self-contained HTML page. */
void show_budget_html(StrBuf *out, const BudgetReport *report);

/* The row that is the best; -1: none fits, or none reaches the loss. */
int show_budget_best(const BudgetReport *report);

#endif
