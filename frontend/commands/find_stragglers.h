/* Find stragglers: the ranks that hold the others up, from what each one's time went into.
 *
 * Ranks of one stage do the same work: their own work is compared, never their steps, in which the
 * fast ones wait for the slow one. A rank whose own work takes more than `threshold` times the
 * median of the others of its stage is named, with the class of work that makes up most of the
 * difference. A rank that is alone in its stage is compared with nobody.
 *
 * A message ends for all of its group when it has come for the last one, so what it takes itself is
 * what the member that spends least in it does; the rest of the others' is waiting. (Where more
 * ranks than cores take turns, that member waits, too.) Groups along
 * one axis (of one stage, unless the axis crosses stages), and links between the same two stages,
 * are compared with each other: what one of them takes beyond STRAGGLER_MESSAGE_THRESHOLD times the
 * median of the others names it.
 *
 * What is less than STRAGGLER_LEAST_SHARE of a step, or than STRAGGLER_ERRORS standard errors of
 * both sides' means over the window, is nobody's fault.
 */
#ifndef FRONTEND_COMMANDS_FIND_STRAGGLERS_H
#define FRONTEND_COMMANDS_FIND_STRAGGLERS_H

#include "runtime/rank_work.h"

#define STRAGGLER_THRESHOLD 1.1
/* More: members of a group come late by turns, and each waits then. */
#define STRAGGLER_MESSAGE_THRESHOLD 1.5
#define STRAGGLER_LEAST_SHARE       0.01
#define STRAGGLER_ERRORS            3

/* What of a plan counts. */
typedef struct StragglerLayout {
    Mesh mesh;
    int n_micro, n_chunks; /* micro-batches; chunks a stage */
    bool goes_back;        /* chunks go down the stages and back up: links are not told apart */
    double threshold;      /* of ranks' own work */
} StragglerLayout;
StragglerLayout straggler_layout(const Plan *plan, double threshold);

typedef struct Straggler {
    int rank;                       /* of a group the first of its ranks, of a link its sender */
    int message;                    /* the class of messages; -1: a rank's own work */
    int n_alike;                    /* ranks, groups or links that it was compared with */
    double seconds, median_seconds; /* of a step; the median is the others' */
    WorkClass class;                /* own work: most of the difference */
    double class_seconds, class_median_seconds;
} Straggler;

/* Of an axis, or a direction between stages: what its groups or links take themselves. */
typedef struct MessageFigures {
    int n_groups;
    int slowest; /* its first rank */
    double median_seconds, slowest_seconds;
} MessageFigures;

typedef struct StragglerReport {
    int n_ranks;
    double *own_seconds;     /* [n_ranks] */
    double *ratio;           /* [n_ranks] to the median of the others of the stage; NAN: none */
    double *message_seconds; /* [n_ranks] what collectives took themselves */
    double *waiting_seconds; /* [n_ranks] in messages, beyond that */
    int slowest;             /* the rank with the largest ratio; -1: nobody was compared */
    double step_seconds;
    double without_seconds; /* about what a step would take, were all that are named like others */
    MessageFigures messages[N_MESSAGE_CLASSES]; /* n_groups 0: no such messages */
    int n_stragglers;
    Straggler *stragglers; /* what they cost most first */
} StragglerReport;

/* work[ranks of the mesh], means of a step. */
StragglerReport find_stragglers(const StragglerLayout *layout, const RankWork *work, Arena *arena);

/* Sets the ranks of a group or link, or the one rank: flags[n_ranks]. */
void straggler_put_ranks(const StragglerLayout *layout, int message, int first, bool *flags);

/* "t", "stages that share weights", "the pipeline, forward" */
const char *straggler_message_name(int message);

#endif
