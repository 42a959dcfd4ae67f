/* What was found of stragglers, as lines for a terminal and as JSON for the run's log. */
#ifndef FRONTEND_COMMANDS_STRAGGLER_TEXT_H
#define FRONTEND_COMMANDS_STRAGGLER_TEXT_H

#include "frontend/commands/find_stragglers.h"
#include "ir/base/strbuf.h"
#include "runtime/launch/control.h"

/* Whom the numbers of a report are about. */
typedef struct StragglerContext {
    const Plan *plan;
    StragglerLayout layout;
    const Control *control; /* NULL: one process */
    const RankWork *work;   /* [n_ranks] */
    int64_t n_steps;        /* of the window */
    /* Bytes that a rank of a stage sends a step, as planned: [n_stages][N_MESSAGE_CLASSES]. */
    const double *bytes;
    const double *predicted_seconds; /* [n_stages] of work and the messages within it; NULL: none */
} StragglerContext;

/* [n_stages][N_MESSAGE_CLASSES]; collectives by ring, as the plan counts its traffic. */
double *straggler_planned_bytes(const Plan *plan, Arena *arena);

/* [n_stages]: the median of each stage's ranks, of own work and what messages took, without
 * reading of data and without messages of the pipeline. */
double *straggler_stage_seconds(const StragglerContext *context, const StragglerReport *report,
                                Arena *arena);

/* A line for each that is named, up to a few, of step `step`'s window; none: nothing. */
void straggler_put_lines(StrBuf *out, const StragglerContext *context,
                         const StragglerReport *report, int64_t step, Arena *arena);

/* One object, without an end of line:
 *     {"steps":20,"step_ms":310,"without_ms":282,
 *      "ratio":[1.31,1,...],        by rank, own work to the median of the others of its stage;
 * null "work_ms":[131.2,...],       by rank, own work "waiting_ms":[...],          by rank, in
 * messages for other ranks "stage_ms":[...],            by stage, its ranks' median of work and
 * messages within it "predicted_ms":[...],        likewise, with a profile
 *      "messages":{"t":{"groups":4,"median_gb_per_s":25.4,"least_gb_per_s":12.1,"of_rank":8}},
 *      "named":[{"rank":5,"who":"rank 5 (gpu-a2)","device":"cuda:1","stage":0,"ratio":1.31,
 *                "work_ms":131.2,"median_ms":100.1,"alike":7,"class":"products",
 *                "class_ratio":1.42},
 *               {"ranks":"0-7","messages":"d","ratio":2.1,"ms":52.1,"median_ms":25,"alike":3}]} */
void straggler_put_json(StrBuf *out, const StragglerContext *context, const StragglerReport *report,
                        Arena *arena);

/* "rank 5 (gpu-a2)" */
ShownRank straggler_show_rank(const StragglerContext *context, int rank);

#endif
