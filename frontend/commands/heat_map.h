/* A heat map in a page about a run: rows of something, columns of steps. */
#ifndef FRONTEND_COMMANDS_HEAT_MAP_H
#define FRONTEND_COMMANDS_HEAT_MAP_H

#include "ir/base/arena.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

typedef struct HeatMap {
    const char *title;        /* of its section; printable */
    const char *label;        /* a word for those who do not see it */
    const char *what, *whats; /* what a row is, one and several: "rank", "ranks"; or "" */
    int n_rows, n_columns;
    const char *const *names; /* [n_rows]; not trusted */
    const double *steps;      /* [n_columns], ascending */
    const float *values;      /* [n_rows][n_columns]; NAN: there is none */
    float none, least;        /* what has no colour; below `least` nothing is drawn */
    float full;               /* what is drawn in full colour, unless something is larger */
    bool logarithmic;         /* colour by the logarithm of what values are to `none` */
    const char *format;       /* of a value, a float's: "%.2f" */
} HeatMap;

/* The rows that have most, where they are too many, and columns of several steps, likewise. Nothing
 * where there is no value. */
void heat_map_put(StrBuf *out, const HeatMap *map, Arena *arena);

#endif
