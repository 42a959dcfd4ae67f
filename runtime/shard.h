/* Shards: which part of a whole logical tensor a rank holds, and copies between the two. */
#ifndef RUNTIME_SHARD_H
#define RUNTIME_SHARD_H

#include "ir/type.h"

typedef struct Shard {
    Type whole, local;
    DimSpan span[MAX_RANK];  /* where local elements lie in the whole */
    int64_t valid[MAX_RANK]; /* local elements that exist; the rest is padding */
} Shard;

Shard shard_of(const Type *type, const Sharding *sharding, const Mesh *mesh, MeshCoord coord);

/* Elements that lie together both in the local part and in the whole: the numbers of the first, and
 * how many there are. */
typedef struct ShardRun {
    int64_t local, whole, count;
} ShardRun;

/* A shard's runs, as long as they can be, in ascending order. Padding is left out. */
typedef struct ShardWalk {
    const Shard *shard;
    int inner; /* dimensions from here on are whole in both */
    int64_t at[MAX_RANK], count;
    bool ended;
} ShardWalk;
ShardWalk shard_walk(const Shard *shard);
/* False: there is none any more. */
bool shard_next(ShardWalk *walk, ShardRun *out);

/* The same with a function that is called for each run. */
typedef void ShardVisitor(void *user, int64_t local_at, int64_t whole_at, int64_t count);
void shard_visit(const Shard *shard, ShardVisitor *visit, void *user);

/* Between whole[...] and local[...], row-major; padding is not touched. What is gathered is of the
 * type's size, but from 16 bits or fewer becomes f32; what is scattered is f32, bf16 or f16, as
 * `dtype` says, perhaps unaligned, and becomes f32. */
void shard_gather(const Shard *shard, const void *local, void *whole);
void shard_scatter(const Shard *shard, DType dtype, const void *whole, float *local);
/* Sets the padding of a local f32 buffer to zero. */
void shard_zero_padding(const Shard *shard, float *local);

#endif
