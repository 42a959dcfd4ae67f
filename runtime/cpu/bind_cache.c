/* Decoding: caches, attention to them, the row of a position. */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/cache.h"

#include <string.h>

typedef struct AppendArgs {
    CacheShape shape;
    int64_t width;
    const void *x;
    const int32_t *rows, *places;
    void *cache;
} AppendArgs;

static bool run_append(const void *args) {
    const AppendArgs *a = args;
    cache_append(&a->shape, a->width, a->x, a->rows, a->places, a->cache);
    return true;
}

static CacheShape cache_shape(const Binding *b, int cache, int x) {
    return (CacheShape){.sequences = b->in_local[cache].dims[0],
                        .context = b->in_local[cache].dims[1],
                        .batch = b->in_local[x].dims[0],
                        .seq = b->in_local[x].dims[1],
                        .dtype = b->in_local[x].dtype};
}

bool cpu_bind_cache_append(Binding *b, CpuCall *out) {
    AppendArgs *args = ARENA_NEW(b->arena, AppendArgs);
    *args = (AppendArgs){.shape = cache_shape(b, 0, 1),
                         .width = bind_stride(&b->in_local[1], 1),
                         .x = b->in[1],
                         .rows = b->in[2],
                         .places = b->in[3],
                         .cache = b->out[0]};
    *out = (CpuCall){run_append, args};
    return true;
}

typedef struct ReadArgs {
    CacheShape shape;
    int64_t width;
    const void *cache;
    const int32_t *rows, *places;
    void *out;
} ReadArgs;

static bool run_read(const void *args) {
    const ReadArgs *a = args;
    cache_read(&a->shape, a->width, a->cache, a->rows, a->places, a->out);
    return true;
}

bool cpu_bind_cache_read(Binding *b, CpuCall *out) {
    ReadArgs *args = ARENA_NEW(b->arena, ReadArgs);
    *args = (ReadArgs){.shape = cache_shape(b, 0, 2),
                       .width = bind_stride(&b->in_local[0], 1),
                       .cache = b->in[0],
                       .rows = b->in[1],
                       .places = b->in[2],
                       .out = b->out[0]};
    args->shape.dtype = b->in_local[0].dtype;
    *out = (CpuCall){run_read, args};
    return true;
}

static bool run_attention(const void *args) {
    return cache_attention(args);
}

bool cpu_bind_cache_attention(Binding *b, CpuCall *out) {
    CacheAttention *args = ARENA_NEW(b->arena, CacheAttention);
    const Type *q = &b->in_local[0], *v = &b->in_local[2];
    const bool shared = v->rank == 3; /* by all heads, a group of one key/value head */
    *args = (CacheAttention){.shape = cache_shape(b, 1, 0),
                             .kv_heads = shared ? 1 : q->dims[2],
                             .group = shared         ? q->dims[2]
                                      : q->rank == 5 ? q->dims[3]
                                                     : 1,
                             .head = q->dims[q->rank - 1],
                             .values = v->dims[v->rank - 1],
                             .scale = (float)node_float(b->node, ATTR_scale, 1),
                             .softcap = (float)node_float(b->node, ATTR_softcap, 0),
                             .window = node_int(b->node, ATTR_window, 0),
                             .q = b->in[0],
                             .k = b->in[1],
                             .v = b->in[2],
                             .rows = b->in[3],
                             .places = b->in[4],
                             .starts = b->node->n_inputs > 5 ? b->in[5] : NULL,
                             .o = b->out[0],
                             .lse = b->out[1],
                             .workspace = b->workspace};
    *out = (CpuCall){run_attention, args};
    return true;
}

typedef struct SelectArgs {
    int64_t batch, seq;
    size_t bytes; /* of a row */
    const char *x;
    const int32_t *numbers;
    char *out;
} SelectArgs;

static bool run_select(const void *args) {
    const SelectArgs *a = args;
    for (int64_t b = 0; b < a->batch; b++) {
        const int64_t i = a->numbers[b];
        char *to = a->out + (size_t)b * a->bytes;
        if (i < 0 || i >= a->seq)
            memset(to, 0, a->bytes);
        else
            memcpy(to, a->x + (size_t)(b * a->seq + i) * a->bytes, a->bytes);
    }
    return true;
}

bool cpu_bind_select_row(Binding *b, CpuCall *out) {
    SelectArgs *args = ARENA_NEW(b->arena, SelectArgs);
    const Type *x = &b->in_local[0];
    *args = (SelectArgs){.batch = x->dims[0],
                         .seq = x->dims[1],
                         .bytes = (size_t)(bind_stride(x, 1) * dtype_bytes(x->dtype)),
                         .x = b->in[0],
                         .numbers = b->in[1],
                         .out = b->out[0]};
    *out = (CpuCall){run_select, args};
    return true;
}
