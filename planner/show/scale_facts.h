/* The figures of a scaling report, computed once. Internal to show_scale*.c. */
#ifndef PLANNER_SHOW_SCALE_FACTS_H
#define PLANNER_SHOW_SCALE_FACTS_H

#include "planner/show/search_facts.h"
#include "planner/show/show_scale.h"

typedef struct ScalePoint {
    const ScaleRow *row;
    const Found *found;  /* NULL: nothing fits, or could not be searched */
    const char *trouble; /* then why */
    LayoutFacts facts;
    double efficiency;     /* tokens per second and rank against the first that fits */
    double tokens_price;   /* of 1e9 tokens; 0: no price is stated */
    const char *cut_short; /* as search_cut_short */
} ScalePoint;

typedef struct ScaleFacts {
    Arena *arena;
    const ScaleReport *report;
    const Cluster *cluster;
    double limit_bytes;
    int n_points, n_found;
    bool counts_failures; /* of any point */
    ScalePoint *points;
} ScaleFacts;

ScaleFacts *scale_facts_create(Arena *arena, const ScaleReport *report);

#endif
