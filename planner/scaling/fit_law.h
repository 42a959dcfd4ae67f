/* Fits a scaling law to finished runs, as Hoffmann et al. 2022, section 3.3, do: the least sum over
 * runs of Huber(log L - log L(N, D)), delta 0.001, where single bad runs count little; from many
 * starts, and summed, not averaged (what stopped that paper's optimizer early, say Besiroglu et al.
 * 2024). Deterministic. */
#ifndef PLANNER_SCALING_FIT_LAW_H
#define PLANNER_SCALING_FIT_LAW_H

#include "planner/scaling/scaling_law.h"

enum { FIT_LEAST_RUNS = 6, FIT_MOST_RUNS = 4096, FIT_DRAWS = 200 };

typedef struct FitRun {
    const char *name;
    double parameters, tokens, loss; /* all > 0; loss in nats a token */
} FitRun;

/* The 10th and the 90th percentile over resamples. */
typedef struct Interval {
    double low, high;
} Interval;

typedef struct LawFit {
    ScalingLaw law;                         /* name and source are the caller's */
    double *residuals;                      /* [n_runs]: L(N, D) / loss - 1 */
    double median_residual, worst_residual; /* of their absolute values */
    /* The run with the most FLOPs, predicted from the others; -1: they are too few. */
    int held_out;
    double held_out_loss;
} LawFit;

/* NULL: reported; the runs do not determine five numbers. Everything is owned by `arena`, and the
 * law has FIT_DRAWS draws, of runs drawn with replacement, or fewer where such a draw determines
 * none. */
LawFit *fit_law(Arena *arena, const FitRun *runs, int n_runs, Diag *diag);

/* Of a number that each of n draws gives. Sorts them. */
Interval interval_of(double *values, int n);

#endif
