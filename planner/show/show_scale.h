/* Show how a model scales: the best layout on each of several numbers of ranks. */
#ifndef PLANNER_SHOW_SHOW_SCALE_H
#define PLANNER_SHOW_SHOW_SCALE_H

#include "planner/options.h"
#include "planner/search/search.h"

typedef struct ScaleRow {
    SearchRequest request;      /* n_ranks and global_batch; the rest is the same in all rows */
    const SearchResult *result; /* NULL: could not be searched */
    const char *refusal;        /* then why */
    PlanOptions options;        /* as in SearchReport */
} ScaleRow;

typedef struct ScaleReport {
    ModelCosts *costs;
    PlanOptions options;           /* as they were given */
    double days_tokens;            /* 0: not asked for */
    const FailureChoice *failures; /* as in SearchReport */
    bool weak;                     /* the batch grows with the ranks */
    int n_rows;
    const ScaleRow *rows; /* ranks ascending */
    double seconds;       /* that all searches took */
    int n_warnings;
    const char *const *warnings;
} ScaleReport;

/* Lines of at most 100 columns. */
void show_scale_text(StrBuf *out, const ScaleReport *report);
/* One JSON object; keys: see the head of show_scale.c. */
void show_scale_json(StrBuf *out, const ScaleReport *report);
/* One self-contained HTML page. */
void show_scale_html(StrBuf *out, const ScaleReport *report);

#endif
