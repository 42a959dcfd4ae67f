/* The rows of a comparison and its sentences, computed once. Internal to compare*.c. */
#ifndef PLANNER_SHOW_COMPARE_FACTS_H
#define PLANNER_SHOW_COMPARE_FACTS_H

#include "planner/show/compare.h"
#include "planner/show/show_facts.h"

typedef enum RowUnit { UNIT_WORD, UNIT_BYTES, UNIT_SECONDS, UNIT_NUMBER, UNIT_FRACTION } RowUnit;

typedef struct Row {
    const char *key, *label;
    RowUnit unit;
    const char *texts[2]; /* of UNIT_WORD */
    double values[2];
} Row;

enum { MAX_ROWS = 64, MAX_SENTENCES = 12 };

/* The second side against the first. */
typedef struct Comparison {
    Arena *arena;
    const ComparedPlan *sides;
    const Cluster *cluster;
    const Facts *facts[2];
    int n_rows, n_sentences;
    Row rows[MAX_ROWS];
    const char *sentences[MAX_SENTENCES];
} Comparison;

/* NULL: reported. */
Comparison *comparison_create(Arena *arena, const ComparedPlan sides[2], const Cluster *cluster,
                              Diag *diag);
bool row_differs(const Row *row);

#endif
