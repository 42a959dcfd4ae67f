/* Whole logical tensors from their shards, piece by piece: memory for a piece, whatever the layout.
 *
 * Each shard's runs ascend both in the shard and in the whole, so that a piece of the whole needs
 * one stretch of every shard, and a walk over each shard passes once over the tensor.
 */
#include "runtime/engine_internal.h"

#include "ir/masters.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/halves.h"

#include <stdlib.h>
#include <string.h>

/* The first rank that has a shard. */
typedef struct Source {
    const RankContext *rank;
    Shard shard;
    ShardWalk walk;
    ShardRun run; /* the next numbers, 0: none are left */
} Source;

struct EnginePieces {
    Engine *engine;
    Value value;
    Source *sources;
    int n_sources;
    int64_t at;     /* the next number of the whole */
    uint16_t *room; /* for numbers in halves */
    int64_t room_count;
};

EnginePieces *engine_pieces_begin(Engine *engine, int stage, Value value) {
    EnginePieces *pieces = calloc(1, sizeof(*pieces));
    if (pieces) pieces->sources = calloc((size_t)engine->n_ranks, sizeof(Source));
    if (!pieces || !pieces->sources) BUG("out of memory");
    pieces->engine = engine;
    pieces->value = value;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        if (!engine_owns(rank, stage, value)) continue;
        Source *source = &pieces->sources[pieces->n_sources++];
        source->rank = rank;
        source->shard =
            shard_of(value_type(value), value_sharding(value), &engine->plan->mesh, rank->coord);
        source->walk = shard_walk(&source->shard);
        if (!shard_next(&source->walk, &source->run)) source->run = (ShardRun){0};
    }
    return pieces;
}

/* The source's next numbers before number `end` of the whole. False: there are none. */
static bool take(Source *source, int64_t end, ShardRun *out) {
    ShardRun *run = &source->run;
    if (run->count == 0 || run->whole >= end) return false;
    *out = *run;
    if (run->count > end - run->whole) {
        out->count = end - run->whole;
        *run = (ShardRun){run->local + out->count, end, run->count - out->count};
    } else if (!shard_next(&source->walk, run)) {
        *run = (ShardRun){0};
    }
    return true;
}

/* Numbers [first, first + n) of a shard in halves, as the halves of so many. */
static const void *view_halves(EnginePieces *pieces, const Source *source, int64_t first,
                               int64_t n) {
    const size_t each = sizeof(uint16_t), bytes = (size_t)n * each;
    const int64_t lower = type_elements(&source->shard.local);
    if (n > pieces->room_count) {
        free(pieces->room);
        pieces->room = malloc(2 * bytes);
        if (!pieces->room) BUG("out of memory for %zu bytes", 2 * bytes);
        pieces->room_count = n;
    }
    for (int half = 0; half < 2; half++) {
        size_t from = (size_t)(first + half * lower) * each;
        memcpy(pieces->room + half * n,
               engine_view_bytes(pieces->engine, source->rank, pieces->value, from, bytes), bytes);
    }
    return pieces->room;
}

/* What a source has of numbers [pieces->at, end). */
static void gather(EnginePieces *pieces, Source *source, int64_t end, float *out) {
    const DType dtype = source->shard.local.dtype;
    Source ahead = *source;
    ShardRun run;
    if (!take(&ahead, end, &run)) return;
    const int64_t first = run.local;
    int64_t n = run.count;
    while (take(&ahead, end, &run)) n = run.local + run.count - first;
    const bool in_halves = master_upper(source->rank->program->graph, pieces->value.node) != NULL;
    const void *numbers = in_halves ? view_halves(pieces, source, first, n)
                                    : engine_view_bytes(pieces->engine, source->rank, pieces->value,
                                                        (size_t)dtype_size(dtype, first),
                                                        (size_t)dtype_size(dtype, n));
    while (take(source, end, &run)) {
        float *to = out + (run.whole - pieces->at);
        if (in_halves) {
            halves_join(numbers, n, run.local - first, to, run.count);
        } else {
            weights_load(dtype, numbers, run.local - first, to, run.count);
        }
    }
}

void engine_pieces_next(EnginePieces *pieces, int64_t count, float *out) {
    for (int i = 0; i < pieces->n_sources; i++) {
        gather(pieces, &pieces->sources[i], pieces->at + count, out);
    }
    pieces->at += count;
}

void engine_pieces_end(EnginePieces *pieces) {
    free(pieces->sources);
    free(pieces->room);
    free(pieces);
}

void engine_assemble(Engine *engine, int stage, Value value, float *out) {
    const int64_t n = type_elements(value_type(value));
    EnginePieces *pieces = engine_pieces_begin(engine, stage, value);
    for (int64_t at = 0; at < n; at += ENGINE_PIECE) {
        engine_pieces_next(pieces, n - at < ENGINE_PIECE ? n - at : ENGINE_PIECE, out + at);
    }
    engine_pieces_end(pieces);
}
