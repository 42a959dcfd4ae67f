/* Examples before a question (few-shot): rows of the same benchmark, with their answers. */
#ifndef FRONTEND_COMMANDS_BENCHMARK_SHOTS_H
#define FRONTEND_COMMANDS_BENCHMARK_SHOTS_H

#include "frontend/commands/benchmarks.h"

#include <stdint.h>

typedef struct BenchmarkShot {
    const char *text, *group; /* group NULL: none */
    size_t length;
} BenchmarkShot;

typedef struct BenchmarkShots {
    const char *path; /* where they are from */
    int n_wanted;     /* before each question */
    uint64_t seed;
    bool takes_first; /* the first of the question's group, else any */
    Arena *arena;     /* of what follows */
    BenchmarkShot *items;
    int n, capacity;
} BenchmarkShots;

void benchmark_shots_add(BenchmarkShots *shots, const BenchmarkItem *item);
/* Appends n_wanted of them, never one that is the question itself, the same ones for the same seed,
 * question and file. number: of the question. False: there are too few; reported. */
bool benchmark_shots_put(const BenchmarkShots *shots, const BenchmarkItem *item, int64_t number,
                         SourceLoc loc, StrBuf *out, Diag *diag);

#endif
