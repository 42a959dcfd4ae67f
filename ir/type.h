/* Types: what a value holds, by named axes, and how the mesh divides it.
 *
 * A Type is always the *logical* (global) shape. A Sharding says which mesh axis divides each
 * dimension and over which mesh axes the value is a partial result; the shape that one rank stores
 * follows from both: ceil(dim / mesh size), the last shards padded with zeros where it must be, and
 * of a vocabulary the next multiple of what the mesh says.
 */
#ifndef IR_TYPE_H
#define IR_TYPE_H

#include "ir/base/strbuf.h"
#include "ir/dtype.h"
#include "ir/mesh.h"
#include "ir/reduce_kind.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANK = 6, MAX_AXES = 64 };

/* Axis names of one graph; an axis is an index into it. The first is of every graph. */
enum { AXIS_VOCAB };
typedef struct AxisTable {
    int count;
    const char *names[MAX_AXES];
} AxisTable;

typedef struct Type {
    DType dtype;
    int rank;           /* 0: a scalar */
    int axes[MAX_RANK]; /* indices into the graph's AxisTable, each at most once */
    int64_t dims[MAX_RANK];
} Type;

typedef struct Sharding {
    int8_t mesh[MAX_RANK]; /* mesh axis, or group of two, that divides dimension i, or -1 */
    uint8_t partial;       /* bit a: a partial result over mesh axis a */
    uint8_t reduce;        /* ReduceKind that completes it */
} Sharding;

const char *dtype_name(DType dtype);
/* Of one element; what is in blocks has no such size. */
int dtype_bytes(DType dtype);
/* Of so many elements, whole blocks. */
int64_t dtype_size(DType dtype, int64_t n_elements);
int dtype_find(const char *name, int length); /* -1: none */

int axis_find(const AxisTable *table, const char *name, int length); /* -1: none */
/* Is it one of positions: `seq`, or `source`, what an encoder reads? */
bool axis_is_sequence(const char *name);

/* Position of `axis` in the type, or -1. */
int type_find_axis(const Type *type, int axis);
bool type_equal(const Type *a, const Type *b);
/* The same axes and dimensions in the same order, of whatever dtype. */
bool type_same_shape(const Type *a, const Type *b);
Type type_with_dtype(const Type *type, DType dtype);
/* Floating point in 16 bits. */
static inline bool dtype_is_low(DType dtype) {
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}
static inline bool dtype_is_float(DType dtype) {
    return dtype == DTYPE_F32 || dtype_is_low(dtype);
}
/* What activations and the operands of products may be kept in: --precision. With fp8 the
 * activations are bf16, and so is what is no product of a block's weights. */
static inline bool dtype_is_precision(DType dtype) {
    return dtype_is_float(dtype) || dtype == DTYPE_FP8;
}
/* In blocks that share a scale (ir/blocks.h, ir/moments.h). */
static inline bool dtype_is_blocked(DType dtype) {
    return dtype >= DTYPE_NF4 && dtype <= DTYPE_DYN8U;
}
/* Those of optimizers' states in 8 bits (ir/moments.h). */
static inline bool dtype_is_moment(DType dtype) {
    return dtype == DTYPE_DYN8 || dtype == DTYPE_DYN8U;
}
static inline DType dtype_of_activations(DType precision) {
    return precision == DTYPE_FP8 ? DTYPE_BF16 : precision;
}
int64_t type_elements(const Type *type);
int64_t type_bytes(const Type *type);
/* f32[batch=4, seq=64] ; with a sharding: f32[batch=4/d, seq=64]~sum(t) */
void type_print(StrBuf *out, const AxisTable *axes, const Type *type, const Sharding *sharding);

Sharding sharding_none(void); /* whole on every rank */
bool sharding_equal(const Sharding *a, const Sharding *b, int rank);
bool sharding_is_whole(const Sharding *sharding, int rank);

/* Can c deal out `dim` elements, two chunks a rank, and t divide what each then has? */
static inline bool type_deals_evenly(int64_t dim, int group, const Mesh *mesh) {
    return dim % (2 * (int64_t)mesh->size[MESH_C]) == 0 && dim % mesh_size(mesh, group) == 0;
}

/* Where the elements of a shard lie along one dimension of the whole: element i is the whole's
 * i + (i < split ? first : second). Ascending; but for c, split is never reached. */
typedef struct DimSpan {
    int64_t split, first, second;
} DimSpan;
static inline int64_t span_at(const DimSpan *span, int64_t i) {
    return i + (i < span->split ? span->first : span->second);
}
/* The same as one dimension, or two where `local` elements lie in two equal runs: element (i, j) is
 * the whole's offset + i step[0] + j step[1]. Returns how many. */
typedef struct SpanDims {
    int64_t dims[2], step[2], offset;
} SpanDims;
int span_dims(const DimSpan *span, int64_t local, SpanDims *out);
/* Of dimension i divided by `group` (-1: not at all). */
DimSpan type_span(const Type *type, int i, int group, const Mesh *mesh, MeshCoord coord);

/* Elements that each rank stores along dimension i where `group` divides it, padding included. */
int64_t type_share(const Type *type, int i, int group, const Mesh *mesh);
/* Are there more, on all ranks of the group together, than dimension i has? */
bool type_is_padded(const Type *type, int i, int group, const Mesh *mesh);

/* The shape that each rank stores (padded shards included). */
Type type_local(const Type *type, const Sharding *sharding, const Mesh *mesh);
/* Do elements that lie together on a rank form whole blocks of the whole (ir/blocks.h), without
 * padding? Moments may have some: whole blocks of zeros. */
bool type_keeps_blocks(const Type *type, const Sharding *sharding, const Mesh *mesh);
/* Bytes that each rank stores. */
int64_t type_local_bytes(const Type *type, const Sharding *sharding, const Mesh *mesh);

#endif
