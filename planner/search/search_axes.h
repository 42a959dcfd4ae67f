/* Search axes: the space that a search goes through, as a table.
 *
 * One row per choice of a Candidate, in the order in which they are made: what a value may be can
 * depend on the rows before. A further choice is a further row.
 */
#ifndef PLANNER_SEARCH_SEARCH_AXES_H
#define PLANNER_SEARCH_SEARCH_AXES_H

#include "planner/search/search.h"

enum { MOST_VALUES = 1024 };

typedef struct SearchSpace {
    const ModelCosts *costs;
    const SearchRequest *request;
    int n_ranks, global_batch;
    int schedule; /* the fixed one, or -1 */
} SearchSpace;

/* c as it is fixed by hand, or because sequences are too short for another; ANY: it is searched. */
int search_fixed_c(const SearchSpace *space);
/* Likewise e, where there are no experts. */
int search_fixed_e(const SearchSpace *space);

typedef struct SearchAxis {
    const char *name, *option; /* as alternatives and as the command line call it */
    bool divides_blocks;       /* software that splits blocks evenly says which values can be */
    const char *rule;          /* what a value must be, for a reader whose value is not */
    int (*get)(const Candidate *candidate);
    void (*set)(const SearchSpace *space, Candidate *candidate, int value);
    /* The value fixed by hand, or -1. */
    int (*fixed)(const SearchSpace *space);
    /* Those worth a try after the rows before have been set; at most MOST_VALUES, ascending. */
    int (*values)(const SearchSpace *space, const Candidate *candidate, int *out);
    /* Can this be at all? Asked for values fixed by hand. */
    bool (*allows)(const SearchSpace *space, const Candidate *candidate, int value);
    const char *(*name_value)(int value); /* NULL: a number */
} SearchAxis;

extern const SearchAxis SEARCH_AXES[];
extern const int N_SEARCH_AXES;
/* From this row on the rows before say which LayoutCost it is. */
extern const int SEARCH_LAYOUT_AXES;
/* Likewise how many micro-batches of what a stage keeps: what follows is ZeRO's. */
extern const int SEARCH_FRAME_AXES;

/* The value as text, kept in `arena` or static. */
const char *search_value_text(Arena *arena, const SearchAxis *axis, int value);

/* How many (t, c, e, p, d) there are for so many ranks, fixed ones respected. */
int search_count_meshes(const SearchSpace *space, int n_ranks);

/* What t, c, e and p can leave for d, times e, ascending, into out[MOST_VALUES]: what divides the
 * global batch, or what does not. */
int search_list_d(const SearchSpace *space, bool divides, int *out);

#endif
