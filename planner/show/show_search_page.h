/* The sections of a search's HTML page. Internal to show_search_*.c. */
#ifndef PLANNER_SHOW_SHOW_SEARCH_PAGE_H
#define PLANNER_SHOW_SHOW_SEARCH_PAGE_H

#include "planner/show/search_facts.h"
#include "planner/show/show_html.h"

/* Each candidate of the sample as a point: time against memory. */
void html_put_candidates(StrBuf *out, const SearchFacts *facts);
extern const char CANDIDATES_STYLE[], CANDIDATES_SCRIPT[];

/* The predicted step: timeline, memory over time, traffic by link; what the report has of them. */
void html_put_step(StrBuf *out, const SearchFacts *facts);

/* Log axes: where `value` lies from 0 to 1. */
typedef struct LogAxis {
    double least, most;
} LogAxis;
double log_axis_at(const LogAxis *axis, double value);
/* The least of 1, 2, 5, 10, ... that is not below the axis. */
double log_axis_first(const LogAxis *axis);
/* Ascending: 1, 2, 5, 10 ... within the axis or, where these are fewer than two, multiples of one
 * of them. Returns how many. */
enum { MOST_TICKS = 40 };
int log_axis_ticks(const LogAxis *axis, double out[MOST_TICKS]);

#endif
