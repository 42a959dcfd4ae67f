/* What failures make of a run's time, in words and as JSON. Internal to show_search*.c and
 * show_scale*.c. */
#ifndef PLANNER_SHOW_SHOW_GOODPUT_H
#define PLANNER_SHOW_SHOW_GOODPUT_H

#include "planner/show/search_facts.h"
#include "planner/show/show_json_put.h"

/* Are failures counted, so that there are two numbers of days? */
bool goodput_is_counted(const RunGoodput *of);

/* A phrase, without an end: "94.1 %: a failure every 3.1 h on 16384 devices, a checkpoint every
 * 11 min (--checkpoint-every 95, 4.2 s each), 10 min to restart"; or why nothing is known, or
 * assumed. Nothing if that is what the user said. */
void goodput_put(StrBuf *out, const RunGoodput *of, const Cluster *cluster, int n_ranks);

/* "94.1", "99.97": percent, in at most 5 columns. */
const char *goodput_percent(double share, char *text);

/* Key `goodput`: null where days are; else
 *   state       unasked (--mtbf none), none (the cluster states no failures), unknown (nor what a
 *               checkpoint takes), hopeless (no progress is expected), known
 *   share       of the time that trains (0 if hopeless; else null where it is not known); with it,
 *               days, price (null: hopeless, or no price)
 *   failure_seconds, restart_seconds   mean time between failures of all ranks; from one to the
 *               next step
 *   checkpoint_bytes, checkpoint_every (steps), checkpoint_seconds (that training waits for each),
 *   write_seconds (behind training: with --checkpoint-async)
 *   checkpoint_share, lost_share, restart_share  of the time, what is not training */
void json_put_goodput(json_t *json, const LayoutFacts *of);

#endif
