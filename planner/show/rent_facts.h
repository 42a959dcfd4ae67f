/* The figures of a choice of machines, computed once. Internal to show_rent*.c. */
#ifndef PLANNER_SHOW_RENT_FACTS_H
#define PLANNER_SHOW_RENT_FACTS_H

#include "planner/show/scale_facts.h"
#include "planner/show/show_rent.h"

typedef struct RentFacts {
    Arena *arena;
    const RentReport *report;
    const ModelCosts *costs;  /* of the first machine that was searched */
    const SearchRequest *one; /* a request: the batch is the same in all */
    const char *currency;     /* NULL: no price is known */
    double tokens;
    ScaleFacts **machines; /* [n_machines]; NULL: not searched */
    int n_points;
    RentPoint *points;         /* [n_points], by machine and ranks */
    const ScalePoint **scaled; /* of the same */
    RentChoice choice;
    RentChoice *own; /* [n_machines]: among each one's points, of which first_point is the first */
    int *first_point;
} RentFacts;

RentFacts *rent_facts_create(Arena *arena, const RentReport *report);

static inline double rent_device_hours(const RentPoint *point) {
    return point->days * 24 * point->n_ranks;
}
/* "h100-dgx, 64 ranks"; the cluster's name is not trusted. */
const char *rent_place(const RentFacts *facts, const RentPoint *point);
/* "18.9 days, 29.0 k device-hours, 87.0 k USD"; `hours`: with the second of them. */
const char *rent_bill(const RentFacts *facts, const RentPoint *point, bool hours);
/* "most 30.0 days", "most 100 k USD": what follows "at". */
const char *rent_days_limit(const RentFacts *facts);
const char *rent_money_limit(const RentFacts *facts);
/* "8 x H100-SXM5-80GB a node; 3 USD a device-hour (source)"; of fp8 how it is multiplied there. */
const char *rent_offer(Arena *arena, const RentMachine *machine);
/* Why there is no choice; NULL: there is one. */
const char *rent_no_cheapest(const RentFacts *facts);
const char *rent_no_fastest(const RentFacts *facts);

#endif
