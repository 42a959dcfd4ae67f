/* Compare: what two plans differ in, side by side, and what each difference costs.
 *
 * Figures are those of `show` (show_facts.h): from the plans themselves and from simulating each on
 * its device. With a cluster, traffic is told apart by link: what stays inside nodes and what
 * crosses between them. Names in plans are untrusted. False: reported.
 */
#ifndef PLANNER_SHOW_COMPARE_H
#define PLANNER_SHOW_COMPARE_H

#include "planner/clusters/cluster.h"
#include "planner/cost/cost.h"

typedef struct ComparedPlan {
    const char *path;
    const Plan *plan;
    const Device *device;
} ComparedPlan;

/* Lines of at most 100 columns. `cluster` may be NULL. */
bool compare_text(StrBuf *out, const ComparedPlan sides[2], const Cluster *cluster, Diag *diag);

/* One JSON object; keys: see the head of compare.c. */
bool compare_json(StrBuf *out, const ComparedPlan sides[2], const Cluster *cluster, Diag *diag);

#endif
