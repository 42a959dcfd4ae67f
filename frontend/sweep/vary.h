/* --vary KEY=VALUES: the values that an option takes over the runs of a sweep.
 *
 *     lr=1e-4,3e-4,1e-3   a list; with `;` between values, these may have commas: mesh=t=2,p=2;d=4
 *     lr=1e-4..1e-2*10    1e-4, 1e-3, 1e-2
 *     seed=1..7+2         1, 3, 5, 7;   seed=1..3: all whole numbers
 *     lr=log:1e-4..1e-2   only drawn: its logarithm is uniform; without log: it itself is
 *
 * Texts are untrusted; what is drawn is the same for the same seed everywhere. */
#ifndef FRONTEND_SWEEP_VARY_H
#define FRONTEND_SWEEP_VARY_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum { SWEEP_MOST_RUNS = 1024, VARY_MOST_KEYS = 32 };

typedef struct Vary {
    const char *key;
    const char **values; /* [n_values]; none of a range that is drawn from */
    int n_values;
    bool is_log, whole; /* of that range */
    double least, most;
} Vary;

/* Has no control characters, which would garble tables and terminals. */
bool vary_is_plain(const char *text);

/* `draws`: ranges may be without a step. False: reported. */
bool vary_parse(Arena *arena, const char *text, bool draws, Vary *out, Diag *diag);

/* Combinations of n keys' values, none of which is drawn; above SWEEP_MOST_RUNS: how many beyond it
 * does not matter. */
int64_t vary_count(const Vary *varies, int n);
/* Combination `index`, the last key's value changing first: out[n]. */
void vary_combine(const Vary *varies, int n, int64_t index, const char **out);
/* One value of each, drawn: out[n]. *state: a seed at first. */
void vary_draw(Arena *arena, const Vary *varies, int n, uint64_t *state, const char **out);

#endif
