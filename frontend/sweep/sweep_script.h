/* The script of --trials: a list of tables of options, one for each run, or a function that is
 * given what --vary says of a run, and returns more of it (or nil: the run is left out).
 *
 *     return function(run)
 *       return { steps = 20 * run["set.layers"], set = { heads = run["set.layers"] // 2 } }
 *     end
 *
 * Keys are options of train without dashes; `set` may be a table. Values are numbers, texts, true
 * (a flag that is given) or false. */
#ifndef FRONTEND_SWEEP_SWEEP_SCRIPT_H
#define FRONTEND_SWEEP_SWEEP_SCRIPT_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>

typedef struct SweepOption {
    const char *key, *value; /* "set.layers", "4" */
} SweepOption;

/* Of one run, in the order of their keys where they are a script's. */
typedef struct SweepOptions {
    SweepOption *items;
    int count, capacity;
} SweepOptions;

typedef struct SweepScript SweepScript;

/* NULL: reported. Freed by sweep_script_close. */
SweepScript *sweep_script_open(Arena *arena, const char *path, Diag *diag);
void sweep_script_close(SweepScript *script);

bool sweep_script_is_function(const SweepScript *script);
/* The runs of a script that is a list. */
const SweepOptions *sweep_script_runs(const SweepScript *script, int *out_count);
/* What the function says beside `varied`; *out_left_out: this is no run. False: reported. */
bool sweep_script_call(SweepScript *script, const SweepOptions *varied, SweepOptions *out,
                       bool *out_left_out);

#endif
