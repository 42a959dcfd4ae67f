/* What runs that train apart and average their weights now and then (islands: DiLoCo, Douillard et
 * al. 2023) send over the link between them, against one run that spans it.
 *
 * Islands exchange by a star (runtime/islands/islands.h): island 0's link carries the weights of
 * all others, in and then out, so that seconds are 2 (n - 1) weights / link; what the processors do
 * with them is not counted. One run of as many islands would add up gradients every step: a ring of
 * islands sends 2 (n - 1) / n of them over each link, the least there is (Patarasuk & Yuan 2009),
 * and none of it is taken to hide. Links are full-duplex.
 *
 * Parts of the model (Streaming DiLoCo, Douillard et al. 2025) are taken as even, and meet evenly
 * over the steps between two meetings of each. Behind training, a part's exchange hides behind as
 * many steps as it is merged later, or as lie before the next part's, whose turn it is then.
 */
#ifndef PLANNER_COST_ISLAND_EXCHANGE_H
#define PLANNER_COST_ISLAND_EXCHANGE_H

#include <stdint.h>

typedef struct IslandChoice {
    int n_islands;     /* 0: not asked for */
    int64_t every;     /* steps */
    double word_bytes; /* of a weight on its way */
    int n_parts;       /* 0: as 1 */
    int64_t overlap;   /* steps from sending a part to merging it; 0: training waits */
    double link_bytes_per_second;
} IslandChoice;

typedef struct IslandExchange {
    double bytes;          /* of the weights that train: what an island sends, and what it gets */
    double hub_bytes;      /* in and, as many, out of island 0 */
    double seconds;        /* of all parts' exchanges, once each */
    double part_bytes;     /* of hub_bytes, at a time */
    double hidden_seconds; /* of seconds, behind training */
    double wait_seconds;   /* and before it goes on */
    double share;          /* of those of all time */
    double tokens_per_second; /* of all islands */
    double one_run_seconds;   /* more a step, of one run over such links */
    double one_run_share;     /* of all its time */
} IslandExchange;

/* Of islands whose step takes step_seconds for step_tokens each; gradient_bytes: of one weight's.
 */
IslandExchange island_exchange(const IslandChoice *choice, int64_t n_trained, int gradient_bytes,
                               double step_seconds, double step_tokens);

#endif
