/* Which machines to rent: numbers of ranks to search on each, and the choice among what was found.
 *
 * First a climb, by the rungs that the caller gives (doublings of whole nodes, and what the batch
 * divides over better than over the next of them), until the limits are passed: the days are met,
 * the money is spent, or more ranks are no faster. Then two bisections, for the fewest nodes that
 * meet the days and the most that the money pays for. Their midpoints are not the middles but the
 * numbers of nodes that the batch divides best over: others waste ranks.
 *
 * But for that, fewer nodes are taken to be slower, and device-hours of nodes between two that were
 * tried to be at least 0.97 of the least that were seen. Plain arithmetic; no searches here.
 */
#ifndef PLANNER_SEARCH_RENT_WALK_H
#define PLANNER_SEARCH_RENT_WALK_H

#include <stdbool.h>

/* What is asked for: 0: no limit. Money is in one currency. */
typedef struct RentLimits {
    double days, money;
} RentLimits;

/* One machine on one number of ranks. */
typedef struct RentPoint {
    int machine, n_ranks;
    double days;  /* with failures; 0: nothing fits, or there is no end */
    double money; /* 0: no price is known */
    bool front;   /* nothing has fewer days and costs less */
} RentPoint;

enum { RENT_MOST_TRIES = 64 };

typedef struct RentWalk {
    int n_per_node, global_batch;
    int n_rungs;
    const int *rungs; /* of ranks, ascending */
    RentLimits limits;
    double device_hour; /* its price; 0: not known */
    int n_tries;
    RentPoint tries[RENT_MOST_TRIES]; /* in the order they were asked for */
} RentWalk;

/* The walk's rungs, and before each of whole nodes over which the batch divides less than over some
 * number of nodes between it and the rung before, that number, which may be faster: 240 ranks than
 * 256 for a batch of 480. Returns how many, at most twice as many. */
int rent_walk_rungs(const RentWalk *walk, int *out);
/* How many ranks to search next; 0: enough are known. */
int rent_walk_next(const RentWalk *walk);
/* What was found there; 0 days: nothing. */
void rent_walk_add(RentWalk *walk, int n_ranks, double days);

/* Indices of points, or -1: none does, or there is no such limit. */
typedef struct RentChoice {
    int cheapest; /* of those within the days; of equal ones the faster */
    int fastest;  /* of those within the money; of equal ones the cheaper */
    int n_within; /* points within all limits */
} RentChoice;

/* Sets `front`, too. */
RentChoice rent_choose(RentPoint *points, int n_points, const RentLimits *limits);

#endif
