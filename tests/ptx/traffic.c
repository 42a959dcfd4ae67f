#include "tests/ptx/traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 32, SECTOR = 32, BANKS = 32, MOST_ROWS = 16384, MOST_SHOWN = 3 };

/* Of one instruction of a kernel. */
typedef struct Row {
    const char *kernel;
    int line;
    bool shared;
    long long accesses, taken, fewest; /* sectors or turns */
} Row;

static Row rows[MOST_ROWS];
static int n_rows;

/* Sectors that the lanes touch. */
static int count_sectors(uint32_t mask, const uint64_t *addresses, int bytes) {
    uint64_t seen[2 * LANES];
    int n = 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1)) continue;
        uint64_t sector = addresses[lane] / SECTOR;
        int k = 0;
        (void)bytes; /* at most 16, aligned: never two */
        while (k < n && seen[k] != sector) k++;
        if (k == n) seen[n++] = sector;
    }
    return n;
}

/* Lanes go together as long as they ask for 128 bytes; of those, each bank gives one word at a
 * turn, to all that want it. */
static int count_turns(uint32_t mask, const uint64_t *addresses, int bytes, int *out_fewest) {
    const int together = bytes <= 4 ? LANES : LANES * 4 / bytes;
    int turns = 0;
    *out_fewest = 0;
    for (int first = 0; first < LANES; first += together) {
        uint64_t words[BANKS][LANES];
        int n[BANKS] = {0}, most = 0;
        for (int lane = first; lane < first + together; lane++) {
            for (int b = 0; b < bytes && mask >> lane & 1; b += 4) {
                uint64_t word = addresses[lane] / 4 + (uint64_t)b / 4;
                int bank = (int)(word % BANKS), k = 0;
                while (k < n[bank] && words[bank][k] != word) k++;
                if (k == n[bank]) words[bank][n[bank]++] = word;
                if (n[bank] > most) most = n[bank];
            }
        }
        turns += most;
        *out_fewest += most > 0;
    }
    return turns;
}

static int compare_rows(const void *a, const void *b) {
    const Row *x = a, *y = b;
    int order = strcmp(x->kernel, y->kernel);
    long long more = (y->taken - y->fewest) - (x->taken - x->fewest);
    if (order) return order;
    if (x->shared != y->shared) return x->shared - y->shared;
    return more > 0 ? 1 : more < 0 ? -1 : 0;
}

static void print_rows(void) {
    qsort(rows, (size_t)n_rows, sizeof(Row), compare_rows);
    for (int first = 0, end; first < n_rows; first = end) {
        const Row *row = &rows[first];
        long long taken = 0, fewest = 0;
        for (end = first; end < n_rows && strcmp(rows[end].kernel, row->kernel) == 0 &&
                          rows[end].shared == row->shared;
             end++) {
            taken += rows[end].taken;
            fewest += rows[end].fewest;
        }
        fprintf(stderr, "traffic %-34s %s %9lld of %9lld %-7s %5.1f %%", row->kernel,
                row->shared ? "shared" : "global", fewest, taken, row->shared ? "turns" : "sectors",
                100.0 * (double)fewest / (double)taken);
        for (int k = first; k < end && k < first + MOST_SHOWN; k++) {
            if (rows[k].taken > rows[k].fewest)
                fprintf(stderr, "; line %d: %lld for %lld", rows[k].line, rows[k].taken,
                        rows[k].fewest);
        }
        fputc('\n', stderr);
    }
}

static Row *find_row(const PtxKernel *kernel, const Instruction *i, bool shared) {
    static Row *last;
    if (last && last->line == i->line && last->kernel == kernel->name) return last;
    for (int k = 0; k < n_rows; k++) {
        if (rows[k].line == i->line && rows[k].kernel == kernel->name) return last = &rows[k];
    }
    if (n_rows == MOST_ROWS) return NULL;
    if (n_rows == 0) atexit(print_rows);
    rows[n_rows] = (Row){.kernel = kernel->name, .line = i->line, .shared = shared};
    return last = &rows[n_rows++];
}

bool traffic_wanted(void) {
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("PERILUNE_PTX_TRAFFIC") != NULL;
    return wanted;
}

void traffic_note(const PtxKernel *kernel, const Instruction *i, uint32_t mask,
                  const uint64_t addresses[LANES], int bytes, bool shared) {
    if (!traffic_wanted() || !mask) return;
    Row *row = find_row(kernel, i, shared);
    int fewest, taken;
    if (!row) return;
    if (shared) {
        taken = count_turns(mask, addresses, bytes, &fewest);
    } else {
        taken = count_sectors(mask, addresses, bytes);
        fewest = (__builtin_popcount(mask) * bytes + SECTOR - 1) / SECTOR;
        /* Lanes that read the same bytes need them once. */
        if (taken < fewest) fewest = taken;
    }
    row->accesses++;
    row->taken += taken;
    row->fewest += fewest;
}
