/* Parts of a model that islands exchange in turn, each with a meeting of its own within every so
 * many steps (Douillard et al. 2025, Streaming DiLoCo, arXiv 2501.18512: "fragments"), and what
 * training makes of the result of one that came while it went on.
 */
#ifndef RUNTIME_ISLANDS_OUTER_PARTS_H
#define RUNTIME_ISLANDS_OUTER_PARTS_H

#include <stdbool.h>
#include <stdint.h>

enum { OUTER_MOST_PARTS = 64, OUTER_NO_BLOCK = -1 };

/* When parts meet. n_parts <= every, overlap < every: a part is merged before it is sent again. */
typedef struct OuterTurns {
    int64_t every;   /* steps between two meetings of a part */
    int64_t n_steps; /* of the run: after the last one all meet, and wait for it */
    int n_parts;
    int64_t overlap; /* steps from sending a part to merging what comes back; 0: it waits */
    double mix;      /* share of an island's own weights in what is merged */
} OuterTurns;

/* Part p meets after steps (p + 1) every / n_parts, and every `every` from there: evenly, and one
 * part after each multiple of `every`. */
bool outer_part_is_due(const OuterTurns *turns, int part, int64_t step);

/* Of a part: the step of its last meeting; and the step at which what came of that is merged with
 * the weights that train, 0: it has been. */
typedef struct PartTurn {
    int64_t met, merge;
} PartTurn;

/* A parameter: its block (layer), or OUTER_NO_BLOCK, and how many numbers it has. */
typedef struct OuterItem {
    int block;
    int64_t n_values;
} OuterItem;

/* out_parts[n_items]: which part each belongs to. Blocks stay whole, and in the order of depth each
 * goes to the part that is smallest so far, so that equal ones are dealt out in turn: every part
 * reaches from the first layers to the last (the paper's strided fragments), and parts are even in
 * bytes. What is in no block comes after, the largest first. The layout plays no role. Returns how
 * many there are of what stays whole: the most parts that have something. */
int outer_parts_divide(const OuterItem *items, int n_items, int n_parts, int *out_parts);

/* own[n]: mix own + (1 - mix) met, rounded once; 0 and 1 are one of them to the bit. */
void outer_mix(double mix, const float *met, int64_t n, float *own);

#endif
