/* How large a run's parameters, their gradients and changes were, as --norms has told its log: heat
 * maps, a row for each block. */
#ifndef FRONTEND_COMMANDS_RUN_NORMS_H
#define FRONTEND_COMMANDS_RUN_NORMS_H

#include "ir/base/arena.h"
#include "ir/base/strbuf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Sums of squares of a row's parameters at a step; NAN: not told. */
typedef struct NormSums {
    float weight, gradient, change;
} NormSums;

typedef struct NormColumn {
    double step;
    int n_rows;     /* that there were by then */
    NormSums *rows; /* [n_rows] */
} NormColumn;

typedef struct RunNorms {
    const char **names; /* [n_rows]: "blocks.3", or a parameter's own */
    int n_rows, row_capacity;
    NormColumn *columns;
    int n_columns, capacity;
    int64_t n_values;
    NormSums *room; /* for a column; NULL: not needed yet */
} RunNorms;

/* Of a line of the log, untrusted, its object "norms"; what is no list of three numbers is passed
 * over. False: more than most_values in all. */
bool run_norms_add(RunNorms *norms, double step, const json_t *object, int64_t most_values,
                   Arena *arena);

/* Gradients beside their own median, and changes beside weights. Nothing where nothing was told. */
void run_norms_put(StrBuf *out, const RunNorms *norms, Arena *arena);

#endif
