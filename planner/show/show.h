/* Show: a plan for people and for other programs. Every form gives the same figures, which come
 * from the plan itself and from simulate_plan on the described device.
 *
 * Each function appends one whole document to `out` and returns true; false: reported, because the
 * plan's task lists do not finish (a plan that passed verify_plan always does). Names in a plan are
 * untrusted: each form escapes them by its own rules.
 */
#ifndef PLANNER_SHOW_SHOW_H
#define PLANNER_SHOW_SHOW_H

#include "planner/cost/cost.h"

/* One screen of text, at most 100 columns: layout, time, memory by class, traffic. */
bool show_text(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

/* One JSON object; keys: see the head of show_json.c. */
bool show_json(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

/* Every program as a cluster of a Graphviz digraph: nodes by op, edges by value. */
bool show_dot(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

/* One self-contained HTML page: no link leaves the file. */
bool show_html(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

/* The predicted step as Chrome trace events (the "JSON object format"), for Perfetto: a process
 * per stage with threads compute, send and receive; times in microseconds. */
bool show_trace(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

#endif
