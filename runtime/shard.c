#include "runtime/shard.h"

#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/cpu/blocks.h"

#include <string.h>

Shard shard_of(const Type *type, const Sharding *sharding, const Mesh *mesh, MeshCoord coord) {
    Shard shard = {.whole = *type, .local = type_local(type, sharding, mesh)};
    for (int i = 0; i < type->rank; i++) {
        shard.span[i] = type_span(type, i, sharding->mesh[i], mesh, coord);
        int64_t left = type->dims[i] - shard.span[i].first, local = shard.local.dims[i];
        if (mesh_deals(sharding->mesh[i])) left = local; /* there is no padding */
        shard.valid[i] = left < 0 ? 0 : left < local ? left : local;
    }
    return shard;
}

/* How many elements from `at` on lie together in the whole. */
static int64_t run_length(const Shard *shard, int i, int64_t at) {
    int64_t split = shard->span[i].split, end = shard->valid[i];
    return (at < split && split < end ? split : end) - at;
}

/* Dimensions before `inner` count; of the last of them, run by run. */
ShardWalk shard_walk(const Shard *shard) {
    ShardWalk walk = {.shard = shard, .inner = shard->local.rank, .count = 1};
    for (int i = 0; i < walk.inner; i++) walk.ended |= shard->valid[i] == 0;
    while (walk.inner > 0 &&
           shard->local.dims[walk.inner - 1] == shard->whole.dims[walk.inner - 1]) {
        walk.count *= shard->whole.dims[--walk.inner]; /* whole in both */
    }
    return walk;
}

bool shard_next(ShardWalk *walk, ShardRun *out) {
    const Shard *shard = walk->shard;
    int i = walk->inner - 1;
    int64_t run = i >= 0 ? run_length(shard, i, walk->at[i]) : 1;
    if (walk->ended) return false;
    *out = (ShardRun){.count = run * walk->count};
    for (int k = 0; k < shard->local.rank; k++) {
        out->local = out->local * shard->local.dims[k] + walk->at[k];
        out->whole = out->whole * shard->whole.dims[k] + span_at(&shard->span[k], walk->at[k]);
    }
    while (i >= 0 && (walk->at[i] += run) == shard->valid[i]) {
        walk->at[i--] = 0;
        run = 1;
    }
    walk->ended = i < 0;
    return true;
}

void shard_visit(const Shard *shard, ShardVisitor *visit, void *user) {
    ShardWalk walk = shard_walk(shard);
    ShardRun run;
    while (shard_next(&walk, &run)) visit(user, run.local, run.whole, run.count);
}

typedef struct CopyRuns {
    const char *from;
    char *to;
    DType dtype; /* of what is copied */
} CopyRuns;

static void gather_run(void *user, int64_t local_at, int64_t whole_at, int64_t count) {
    const CopyRuns *copy = user;
    if (dtype_is_low(copy->dtype) || dtype_is_blocked(copy->dtype)) {
        weights_load(copy->dtype, copy->from, local_at, (float *)(void *)copy->to + whole_at,
                     count);
        return;
    }
    const size_t bytes = (size_t)dtype_bytes(copy->dtype);
    memcpy(copy->to + (size_t)whole_at * bytes, copy->from + (size_t)local_at * bytes,
           (size_t)count * bytes);
}

void shard_gather(const Shard *shard, const void *local, void *whole) {
    CopyRuns copy = {local, whole, shard->local.dtype};
    shard_visit(shard, gather_run, &copy);
}

static void scatter_run(void *user, int64_t local_at, int64_t whole_at, int64_t count) {
    const CopyRuns *copy = user;
    const char *from = copy->from + whole_at * dtype_bytes(copy->dtype);
    float *to = (float *)(void *)copy->to + local_at;
    if (copy->dtype == DTYPE_F32) {
        memcpy(to, from, (size_t)count * sizeof(float));
        return;
    }
    tensor_copy(&(TensorCopy){.rank = 1,
                              .size = {count},
                              .from_stride = {1},
                              .to_stride = {1},
                              .from_dtype = copy->dtype,
                              .to_dtype = DTYPE_F32,
                              .from = from,
                              .to = to});
}

void shard_scatter(const Shard *shard, DType dtype, const void *whole, float *local) {
    CopyRuns copy = {whole, (char *)local, dtype};
    shard_visit(shard, scatter_run, &copy);
}

void shard_zero_padding(const Shard *shard, float *local) {
    int64_t elements = type_elements(&shard->local);
    int64_t at[MAX_RANK] = {0};
    bool padded = false;
    for (int i = 0; i < shard->local.rank; i++) padded |= shard->valid[i] < shard->local.dims[i];
    for (int64_t n = 0; padded && n < elements; n++) {
        bool outside = false;
        for (int i = 0; i < shard->local.rank; i++) outside |= at[i] >= shard->valid[i];
        if (outside) local[n] = 0;
        for (int i = shard->local.rank - 1; i >= 0 && ++at[i] == shard->local.dims[i]; i--)
            at[i] = 0;
    }
}
