/* Goodput: the share of a run's time in which steps are taken that stay, when devices fail.
 *
 * Failures come at random, one every mtbf_seconds on average, at any time with the same chance
 * (exponential times between them); one ends the whole run, which starts again from the last
 * checkpoint that is on the disk. With a checkpoint after each `work` seconds of steps, for which
 * training waits `pause` and which is on the disk `write` later, restarts of `restart` seconds that
 * may fail as well, and a mean time M between failures, each `work` takes on average
 *
 *     M e^((restart + write) / M) (e^((work + pause) / M) - 1)
 *
 * which is Daly's (Future Generation Computer Systems 22, 2006) where nothing is written behind
 * training: of a time X without failures floor((X - write) / (work + pause))
 * checkpoints are left, and all of it and the restart before it are paid. It is least, whatever
 * `restart` and `write` are, where (1 - work / M) e^(work / M) = e^(-pause / M); Young (CACM 17,
 * 1974) has sqrt(2 pause M) for a small pause.
 */
#ifndef PLANNER_COST_GOODPUT_H
#define PLANNER_COST_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds; all but the first two may be 0. */
typedef struct GoodputInput {
    double mtbf_seconds; /* of the run: of one device, divided by their number */
    double step_seconds;
    double pause_seconds;   /* that training waits for a checkpoint */
    double write_seconds;   /* that it is then still written behind training; one at a time */
    double restart_seconds; /* from a failure to the next step */
    double n_steps;         /* that the run has; 0: no end */
} GoodputInput;

typedef struct Goodput {
    bool hopeless;           /* a restart, a checkpoint and a step take longer than failures need */
    int64_t every;           /* steps from checkpoint to checkpoint: --checkpoint-every; >= 1 */
    double interval_seconds; /* of these steps; below mtbf_seconds, but for one of a single step */
    double share;            /* of the time: in steps that stay; 0: hopeless. The others: */
    double checkpoint_share; /* waiting for checkpoints */
    double lost_share;       /* in what failures undid: steps, pauses */
    double restart_share;    /* between failures and the next steps */
} Goodput;

/* With the best whole number of steps between checkpoints; where they are written behind training
 * with the largest that costs a thousandth of the time more, for the storage's sake. */
Goodput goodput_of(const GoodputInput *of);

/* The same with so many steps between them; at least as long as a checkpoint is written. */
Goodput goodput_at(const GoodputInput *of, int64_t every);

/* The whole steps that so many seconds are expected to suffice for, with the last one's checkpoint;
 * of->n_steps is not looked at. 0: hopeless, or too short for one. */
double goodput_steps_in(const GoodputInput *of, double seconds);

/* The best seconds of work between checkpoints of so long a pause. */
double checkpoint_interval(double mtbf_seconds, double pause_seconds);

#endif
