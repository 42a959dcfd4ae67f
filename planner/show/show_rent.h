/* Show which machines to rent: days and money on each of several clusters, and the choice. */
#ifndef PLANNER_SHOW_SHOW_RENT_H
#define PLANNER_SHOW_SHOW_RENT_H

#include "planner/search/rent_walk.h"
#include "planner/show/show_scale.h"

typedef struct RentMachine {
    const Cluster *cluster;
    const char *refusal; /* it was not searched, and why; NULL: it was */
    ScaleReport scale;   /* rows: ranks ascending; days_tokens is asked for */
} RentMachine;

typedef struct RentReport {
    int n_machines;
    const RentMachine *machines; /* one was searched, at least; prices are of one currency */
    RentLimits limits;
    double seconds; /* that all searches took */
} RentReport;

/* Of the best of a row, with failures; 0: nothing fits, or there is no end. */
double rent_row_days(const ScaleReport *report, const ScaleRow *row);
/* How many rows are within all limits. */
int show_rent_within(const RentReport *report);

/* Lines of at most 100 columns. */
void show_rent_text(StrBuf *out, const RentReport *report);
/* One JSON object; keys: see the head of show_rent.c. */
void show_rent_json(StrBuf *out, const RentReport *report);
/* One self-contained HTML page. */
void show_rent_html(StrBuf *out, const RentReport *report);

#endif
