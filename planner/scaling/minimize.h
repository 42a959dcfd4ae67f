/* The minimum of a smooth function of a few unknowns: the method of Broyden, Fletcher, Goldfarb and
 * Shanno (Nocedal & Wright 2006, "Numerical Optimization", algorithm 6.1), with a line search that
 * bisects for weak Wolfe conditions (Lewis & Overton 2013), which also suits functions with
 * corners.
 */
#ifndef PLANNER_SCALING_MINIMIZE_H
#define PLANNER_SCALING_MINIMIZE_H

enum { MINIMIZE_MOST = 8 }; /* unknowns */

/* Its value at at[n], and its gradient. Where it is none (not finite), no step is taken. */
typedef double SmoothFunction(void *context, const double *at, double *out_gradient);

/* Goes down from at[n], which becomes the lowest point found; returns the value there. */
double minimize(SmoothFunction *function, void *context, int n, double *at);

#endif
