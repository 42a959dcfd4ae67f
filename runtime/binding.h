/* Binding: what a backend is told about one node of a stage program, on one rank and for one
 * micro-batch, when it turns the node into calls or commands. All analysis (layouts, strides, the
 * rank's place in the whole tensor) happens there, once; what comes out is replayed every step.
 */
#ifndef RUNTIME_BINDING_H
#define RUNTIME_BINDING_H

#include "ir/expr.h"
#include "ir/op.h"
#include "ir/ops/quantize.h"
#include "runtime/attention_drop.h"

typedef struct Binding {
    const Graph *graph;
    const Node *node;
    Arena *arena; /* for arguments */
    Diag *diag;
    MeshCoord coord;
    int block;          /* the model's block number, or NO_BLOCK */
    int micro, n_micro; /* micro-batch: where its rows lie in the global batch */
    bool overwrite;     /* first share of the step: accumulators are set, not added to */
    void **in;          /* addresses in the rank's arena, on the backend's device */
    void *out[MAX_OUTPUTS];
    Type *in_local, out_local[MAX_OUTPUTS];
    void *workspace;
    int64_t workspace_bytes;
    void *backend; /* what only one backend needs: a CpuContext or a CudaEmitter */
} Binding;

/* Where this rank's elements lie along dimension i of a value. */
DimSpan bind_span(const Binding *binding, const Type *type, const Sharding *sharding, int i);
/* This rank's first global index along dimension i, which is not dealt out over c. */
int64_t bind_offset(const Binding *binding, const Type *type, const Sharding *sharding, int i);
/* The iteration space of result 0 of an elementwise program: this rank's sizes, slowest first, each
 * operand's strides by axis name (0: broadcast), and, for dropout, where the elements lie in the
 * tensor of the whole global batch: element (i0, i1, ..) is number sum of (offset[d] + i_d)
 * stride[d]. What is dealt out over c, and a lane's rows, take a dimension more. */
enum { SPACE_MOST_DIMS = MAX_RANK + 2 };
typedef struct ElementSpace {
    int n_dims;
    int64_t dims[SPACE_MOST_DIMS], in_stride[EXPR_MAX_INPUTS][SPACE_MOST_DIMS];
    int64_t offset[SPACE_MOST_DIMS];
    uint64_t stride[SPACE_MOST_DIMS];
} ElementSpace;
/* False, reported: it has more dimensions. */
bool bind_space(const Binding *binding, const Expr *expr, ElementSpace *out);
/* What a slice along dimension i copies: `count` elements to `to` on, the rest being padding. */
typedef struct SliceRun {
    int64_t from, to, count;
} SliceRun;
int bind_slice_runs(const Binding *binding, int i, SliceRun out[2]);
/* An all-to-all's sizes, as comm.h has them; false: it names no two axes to exchange. */
typedef struct ExchangeSizes {
    int64_t outer, rows, width;
    bool to_strips;
} ExchangeSizes;
bool bind_exchange(const Binding *binding, int n_members, ExchangeSizes *out);
/* How many of the rank's `local` elements along dimension i exist; the rest is padding. */
int64_t bind_valid(const Binding *binding, const Type *type, const Sharding *sharding, int i);
static inline const Type *bind_input_type(const Binding *binding, int i) {
    return value_type(binding->node->inputs[i]);
}
static inline const Sharding *bind_input_sharding(const Binding *binding, int i) {
    return value_sharding(binding->node->inputs[i]);
}
/* False, reported: what finds documents has part of its sequences, or has too long ones. */
bool bind_whole_documents(const Binding *binding);
/* The token that they look for; -1: none. */
int32_t documents_token(const Node *node);
/* Where the documents of attention's queries begin and end, NULL: all is one, or they end anywhere
 * behind causal ones. False, reported: it says so of other queries than the rank's. */
bool bind_starts(const Binding *binding, const int32_t **out_starts, const int32_t **out_ends);
/* What attention, or its gradient, drops of its probabilities while it trains. */
AttentionDrop bind_drop(const Binding *binding);
/* The blocks of the rank's part of what quantize makes, or dequantize reads. False, reported: the
 * mesh cuts some. */
bool bind_blocks(const Binding *binding, BlockLayout *out);
/* A product of fp8 and the blocks of its two operands. False, reported: the rank's parts do not lie
 * as they have to. */
typedef struct ScaledProduct {
    MatmulLayout layout; /* batch 1, b transposed, a not */
    BlockLayout blocks[2];
    ScaleForm forms[2];
} ScaledProduct;
bool bind_scaled_product(const Binding *binding, ScaledProduct *out);
/* What an optimizer's parameter is multiplied by after the step: element i by factors[i / inner %
 * count]; factors NULL: by nothing. False, reported: ranks' parts of the two do not fit. */
typedef struct BindRescale {
    const float *factors;
    int64_t inner, count;
} BindRescale;
bool bind_rescale(const Binding *binding, BindRescale *out);
/* Elements of all dimensions but the last. */
int64_t bind_rows(const Type *local);
/* Elements from one index of `dimension` to the next in a contiguous tensor. */
int64_t bind_stride(const Type *local, int dimension);
/* The stream of random numbers of dropout number `key` in model block `block`: the same on every
 * layout. */
uint32_t bind_random_key(int block, int64_t key);

/* Reports that a node cannot be run here; returns false. */
bool bind_fail(const Binding *binding, const char *why);

#endif
