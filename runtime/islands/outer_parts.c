#include "runtime/islands/outer_parts.h"

#include "ir/base/diag.h"

#include <stdlib.h>
#include <string.h>

bool outer_part_is_due(const OuterTurns *turns, int part, int64_t step) {
    if (step == turns->n_steps) return true;
    const int64_t offset = (part + 1) * turns->every / turns->n_parts % turns->every;
    return step > 0 && step % turns->every == offset;
}

/* Items that go together. */
typedef struct Unit {
    int block, first; /* first: of its items; orders units that are alike */
    int64_t n_values;
} Unit;

/* Blocks by depth, then all else by size. */
static int by_turn(const void *a, const void *b) {
    const Unit *x = a, *y = b;
    const bool x_free = x->block == OUTER_NO_BLOCK, y_free = y->block == OUTER_NO_BLOCK;
    if (x_free != y_free) return x_free ? 1 : -1;
    if (!x_free) return (x->block > y->block) - (x->block < y->block);
    if (x->n_values != y->n_values) return x->n_values < y->n_values ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

/* unit_of[n_items]: into units. Returns how many there are. */
static int make_units(const OuterItem *items, int n_items, Unit *units, int *unit_of) {
    int n_units = 0, most = OUTER_NO_BLOCK;
    for (int i = 0; i < n_items; i++) {
        if (items[i].block > most) most = items[i].block;
    }
    int *of_block = malloc(((size_t)most + 2) * sizeof(int));
    if (!of_block) BUG("out of memory");
    for (int b = 0; b <= most; b++) of_block[b] = -1;
    for (int i = 0; i < n_items; i++) {
        const int block = items[i].block;
        int at = block == OUTER_NO_BLOCK ? -1 : of_block[block];
        if (at < 0) {
            at = n_units++;
            units[at] = (Unit){.block = block, .first = i};
            if (block != OUTER_NO_BLOCK) of_block[block] = at;
        }
        units[at].n_values += items[i].n_values;
        unit_of[i] = units[at].first;
    }
    free(of_block);
    return n_units;
}

int outer_parts_divide(const OuterItem *items, int n_items, int n_parts, int *out_parts) {
    int64_t sizes[OUTER_MOST_PARTS] = {0};
    Unit *units = calloc((size_t)n_items + 1, sizeof *units);
    int *first_of = calloc((size_t)n_items + 1, sizeof *first_of);
    int *part_of = calloc((size_t)n_items + 1, sizeof *part_of); /* by a unit's first item */
    if (!units || !first_of || !part_of) BUG("out of memory");
    const int n_units = make_units(items, n_items, units, first_of);
    qsort(units, (size_t)n_units, sizeof *units, by_turn);
    for (int u = 0; u < n_units; u++) {
        int least = 0;
        for (int p = 1; p < n_parts; p++) {
            if (sizes[p] < sizes[least]) least = p;
        }
        part_of[units[u].first] = least;
        sizes[least] += units[u].n_values;
    }
    for (int i = 0; i < n_items; i++) out_parts[i] = part_of[first_of[i]];
    free(units);
    free(first_of);
    free(part_of);
    return n_units;
}

void outer_mix(double mix, const float *met, int64_t n, float *own) {
    if (mix == 1) return;
    if (mix == 0) {
        memcpy(own, met, (size_t)n * sizeof(float));
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        own[i] = (float)(mix * (double)own[i] + (1 - mix) * (double)met[i]);
}
