/* The figures of a scaling report, computed once. Internal to show_scale*.c and show_rent*.c. */
#ifndef PLANNER_SHOW_SCALE_FACTS_H
#define PLANNER_SHOW_SCALE_FACTS_H

#include "planner/show/search_facts.h"
#include "planner/show/show_json_put.h"
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

/* Of the best of a row in which something was found. */
LayoutFacts scale_row_facts(const ScaleReport *report, const ScaleRow *row);

ScaleFacts *scale_facts_create(Arena *arena, const ScaleReport *report);

/* Lines on what is no column of a table; `where`: "8 ranks". */
void scale_put_parts(StrBuf *out, Arena *arena, const char *where, const ScalePoint *point);
/* The keys of a point that was found: see the head of show_scale.c. */
void scale_point_json(json_t *json, const ScalePoint *point);

#endif
