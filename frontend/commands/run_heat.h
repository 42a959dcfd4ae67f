/* How much work each rank had beside the others of its stage, window by window, as --stragglers has
 * told a run's log: a heat map. */
#ifndef FRONTEND_COMMANDS_RUN_HEAT_H
#define FRONTEND_COMMANDS_RUN_HEAT_H

#include "ir/base/arena.h"
#include "ir/base/strbuf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct HeatWindow {
    double step; /* its last */
    int n_ranks;
    float *ratio; /* [n_ranks]; NAN: compared with nobody */
} HeatWindow;

typedef struct RunHeat {
    HeatWindow *windows;
    int count, capacity;
    int n_ranks; /* of the window that has most */
    int64_t n_values;
} RunHeat;

/* Of a line of the log, untrusted, its object "stragglers"; what is no array of numbers is passed
 * over. False: more than most_values in all. */
bool run_heat_add(RunHeat *heat, double step, const json_t *stragglers, int64_t most_values,
                  Arena *arena);

/* The drawing: a row for each rank, or for those that had most beside others, a column for each
 * window, or for several. Nothing where no rank was compared with others. */
void run_heat_put(StrBuf *out, const RunHeat *heat, Arena *arena);

#endif
