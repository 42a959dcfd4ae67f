/* Show a search: what search_layouts found, for people and for other programs. Every form gives the
 * same figures (search_facts.h). Each function appends one whole document to `out`. Names of models
 * and clusters are untrusted: each form escapes them by its own rules.
 */
#ifndef PLANNER_SHOW_SHOW_SEARCH_H
#define PLANNER_SHOW_SHOW_SEARCH_H

#include "planner/cost/island_exchange.h"
#include "planner/cost/run_goodput.h"
#include "planner/options.h"
#include "planner/search/search.h"
#include "planner/simulate/pipeline_sim.h"

/* A layout that was predicted to fit and whose plan, made to the byte, does not; or that cannot be
 * planned. */
typedef struct RefusedLayout {
    int found;           /* index in result->found */
    int64_t exact_bytes; /* 0: there is no plan */
    const char *reason;  /* then why; else NULL */
} RefusedLayout;

typedef struct SearchReport {
    ModelCosts *costs;
    const SearchRequest *request;
    const SearchResult *result;    /* n_found > 0 */
    PlanOptions options;           /* that all layouts have; expert_parts: those with e */
    int chosen;                    /* index in result->found: the layout that is reported as best */
    int n_top;                     /* runners-up to list */
    bool explain;                  /* the text lists alternatives, too; JSON and page always do */
    double days_tokens;            /* to train on, for days and price; 0: not asked for */
    const FailureChoice *failures; /* what is said of them; NULL: nothing */
    const IslandChoice *islands;   /* such runs apart; NULL, or n_islands 0: not asked for */
    int64_t exact_bytes; /* of a rank's plan, with what lies beyond its arena; 0: not made */
    int n_refused;       /* layouts before `chosen` */
    const RefusedLayout *refused;
    const LayoutCost *layout;   /* of the best; NULL: no traffic is shown */
    const PipelineLoad *load;   /* how the best was simulated, with spans; NULL: */
    const PipelineResult *step; /* no timeline is shown */
    const char *hint;           /* an option that may find something faster, and why; NULL: none */
    int n_warnings;
    const char *const *warnings;
} SearchReport;

/* At most a screen: 24 to 40 lines of at most 100 columns; alternatives of --explain come on top.
 */
void show_search_text(StrBuf *out, const SearchReport *report);

/* One JSON object; keys: see the head of show_search_json.c. */
void show_search_json(StrBuf *out, const SearchReport *report);

/* One self-contained HTML page: no link leaves the file. */
void show_search_html(StrBuf *out, const SearchReport *report);

/* One line, without an end: how much memory is missing where nothing fits, and how many ranks would
 * do. */
void show_search_nothing(StrBuf *out, const SearchRequest *request, const SearchResult *result,
                         const Cluster *cluster);
void show_search_nothing_json(StrBuf *out, const SearchRequest *request, const SearchResult *result,
                              const Cluster *cluster);

#endif
