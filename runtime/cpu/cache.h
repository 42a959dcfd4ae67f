/* Caches of keys and values: rows go in, and attention to all that is there.
 *
 * A cache is [sequences, context, width], f32, bf16 or f16. Row b of the batch goes on with
 * sequence rows[b]; its `seq` new positions are places[b][...]. Any numbers may come: what lies
 * outside of the cache is not written, and a query of no place in it has zeros. Results depend
 * neither on the number of threads nor on what else is in the batch.
 */
#ifndef RUNTIME_CPU_CACHE_H
#define RUNTIME_CPU_CACHE_H

#include "ir/type.h"

#include <stdbool.h>

typedef struct CacheShape {
    int64_t sequences, context, batch, seq;
    DType dtype;
} CacheShape;

/* x [batch, seq, width] */
void cache_append(const CacheShape *shape, int64_t width, const void *x, const int32_t *rows,
                  const int32_t *places, void *cache);

/* out [batch, seq, width]: what is at these places; zeros where none is. */
void cache_read(const CacheShape *shape, int64_t width, const void *cache, const int32_t *rows,
                const int32_t *places, void *out);

/* o = softmax(scale q k^T + mask) v: a query at place p sees the positions up to p, with a window
 * of n the n last of them, with documents those from starts[b][...] on. q [batch, seq, kv_heads,
 * group, head], o likewise with `values` last; lse [batch, seq, kv_heads, group] is the logarithm
 * of each row's denominator; both are 0 where nothing is seen. workspace: op_workspace_bytes of the
 * node. False: a head is longer than ATTENTION_MAX_READ_HEAD. */
typedef struct CacheAttention {
    CacheShape shape;
    int64_t kv_heads, group, head, values;
    float scale, softcap; /* softcap 0: none */
    int64_t window;       /* 0: none */
    const void *q, *k, *v;
    const int32_t *rows, *places, *starts; /* starts NULL: one document */
    void *o;
    float *lse;
    float *workspace;
} CacheAttention;
bool cache_attention(const CacheAttention *attention);

#endif
