#include "runtime/binding.h"

#include <math.h>

bool bind_fail(const Binding *binding, const char *why) {
    diag_error(binding->diag, binding->node->loc, "%s: %s", OPS[binding->node->op].name, why);
    return false;
}

DimSpan bind_span(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    return type_span(type, i, sharding->mesh[i], &binding->graph->mesh, binding->coord);
}

int64_t bind_offset(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    DimSpan span = bind_span(binding, type, sharding, i);
    if (mesh_deals(sharding->mesh[i])) BUG("the elements of a dealt dimension have two places");
    return span.first;
}

int64_t bind_valid(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    Type local = type_local(type, sharding, &binding->graph->mesh);
    if (mesh_deals(sharding->mesh[i])) return local.dims[i];
    int64_t left = type->dims[i] - bind_offset(binding, type, sharding, i);
    if (left < 0) return 0;
    return left < local.dims[i] ? left : local.dims[i];
}

/* Dropout goes by the elements' numbers. */
static bool is_numbered(const Expr *expr) {
    bool found = false;
    for (int n = 0; n < expr->n_instructions; n++) {
        found |= expr->instructions[n].op == OP_DROPOUT;
    }
    return found;
}

/* One dimension of `size` elements, numbered from `offset` on. False: there is no room for it. */
static bool add_dim(ElementSpace *space, int64_t size, uint64_t stride, int64_t offset) {
    if (space->n_dims == SPACE_MOST_DIMS) return false;
    space->dims[space->n_dims] = size;
    space->stride[space->n_dims] = stride;
    space->offset[space->n_dims++] = offset;
    return true;
}

bool bind_space(const Binding *b, const Expr *expr, ElementSpace *out) {
    const Type *whole = &b->node->types[0], *local = &b->out_local[0];
    const ExprLane lane = expr_lane(expr);
    const bool numbered = is_numbered(expr);
    int batch = axis_find(&b->graph->axes, "batch", 5);
    uint64_t stride = 1;
    *out = (ElementSpace){0};
    for (int i = 0; i < local->rank; i++) {
        stride *=
            (uint64_t)(whole->dims[i] * (local->axes[i] == batch ? b->n_micro * lane.count : 1));
    }
    for (int i = 0; i < local->rank; i++) {
        bool is_batch = local->axes[i] == batch;
        uint64_t rows = is_batch ? (uint64_t)lane.count : 1;
        DimSpan span = bind_span(b, whole, &b->node->shardings[0], i);
        SpanDims runs = {{local->dims[i], 1}, {1, 1}, 0};
        int n = numbered ? span_dims(&span, local->dims[i], &runs) : 1;
        stride /= (uint64_t)whole->dims[i] * rows * (uint64_t)(is_batch ? b->n_micro : 1);
        for (int r = 0; r < n; r++) {
            int at = out->n_dims;
            int64_t offset = runs.offset + (is_batch ? b->micro * whole->dims[i] : 0);
            if (!add_dim(out, runs.dims[r], stride * rows * (uint64_t)runs.step[r],
                         r < n - 1 ? 0 : offset)) {
                return bind_fail(b, "has too many axes for dropout under c");
            }
            for (int k = 0; k < b->node->n_inputs; k++) {
                int in = type_find_axis(&b->in_local[k], local->axes[i]);
                int64_t in_stride = in < 0 ? 0 : bind_stride(&b->in_local[k], in);
                out->in_stride[k][at] = in_stride * (r < n - 1 ? runs.dims[1] : 1);
            }
        }
        if (rows > 1 && numbered && !add_dim(out, 1, stride, lane.first))
            return bind_fail(b, "has too many axes for dropout in lanes");
    }
    return true;
}

int bind_slice_runs(const Binding *binding, int i, SliceRun out[2]) {
    const Node *node = binding->node;
    const Mesh *mesh = &binding->graph->mesh;
    const int group = node->shardings[0].mesh[i], within = bind_input_sharding(binding, 0)->mesh[i];
    const int64_t local = binding->out_local[0].dims[i];
    if (within >= 0) { /* divided further: along what lies together */
        out[0] = (SliceRun){mesh_member(mesh, binding->coord, mesh_inner(group)) * local, 0, local};
        return 1;
    }
    DimSpan span = type_span(&node->types[0], i, group, mesh, binding->coord);
    int64_t valid = bind_valid(binding, &node->types[0], &node->shardings[0], i);
    out[0] = (SliceRun){valid ? span.first : 0, 0, span.split < valid ? span.split : valid};
    if (span.split >= valid) return 1;
    out[1] = (SliceRun){span_at(&span, span.split), span.split, valid - span.split};
    return 2;
}

int32_t documents_token(const Node *node) {
    AttrKey key = node->op == OP_OCCURRENCE ? ATTR_token : ATTR_separator;
    return (int32_t)node_int(node, key, -1);
}

bool bind_whole_documents(const Binding *b) {
    const Type *tokens = bind_input_type(b, 0);
    int last = tokens->rank - 1;
    DimSpan place = bind_span(b, &b->node->types[0], &b->node->shardings[0], last);
    int64_t n = b->in_local[0].dims[last], kept = b->out_local[0].dims[last];
    if (n > INT32_MAX) return bind_fail(b, "has 2^31 positions or more");
    if (n == tokens->dims[last] && (!kept || span_at(&place, kept - 1) < n)) return true;
    return bind_fail(b, "has not all positions of its sequences");
}

/* *out NULL: there is no such operand. False, reported: it is of other queries. */
static bool bind_query_places(const Binding *b, int at, const int32_t **out) {
    const Type *q = &b->in_local[0];
    *out = NULL;
    if (at < 0) return true;
    *out = b->in[at];
    const Type *places = &b->in_local[at];
    if (places->dims[0] == q->dims[0] && places->dims[1] == q->dims[1]) return true;
    return bind_fail(b, "has documents of other queries");
}

bool bind_starts(const Binding *b, const int32_t **out_starts, const int32_t **out_ends) {
    return bind_query_places(b, attention_documents(b->node), out_starts) &&
           bind_query_places(b, attention_document_ends(b->node), out_ends);
}

AttentionDrop bind_drop(const Binding *b) {
    enum { BATCH, SEQ, KV_HEADS, GROUP, ALL_BITS = 1 << 16 };
    const Type *q = bind_input_type(b, 0), *k = bind_input_type(b, 1);
    const Sharding *sharding = bind_input_sharding(b, 0);
    if (!attention_drops(b->node)) return (AttentionDrop){.factor = 1};
    const uint64_t lanes = (uint64_t)node_int(b->node, ATTR_count, 1);
    const uint64_t lane = (uint64_t)node_int(b->node, ATTR_first, 0);
    const bool grouped = q->rank == 5;
    const int64_t row = b->micro * q->dims[BATCH] + bind_offset(b, q, sharding, BATCH);
    const double dropped = round(node_float(b->node, ATTR_p, 0) * ALL_BITS);
    AttentionDrop drop = {.stream = bind_random_key(b->block, node_int(b->node, ATTR_key, 0)),
                          .threshold = dropped < ALL_BITS ? (uint32_t)dropped : ALL_BITS - 1};
    drop.factor = (float)ALL_BITS / (float)(ALL_BITS - drop.threshold);
    drop.member = (uint64_t)((k->dims[SEQ] + ATTENTION_DROP_KEYS - 1) / ATTENTION_DROP_KEYS) *
                  ATTENTION_DROP_BLOCKS;
    drop.head = drop.member * (uint64_t)(grouped ? q->dims[GROUP] : 1);
    drop.position = drop.head * (uint64_t)q->dims[KV_HEADS];
    drop.batch = drop.position * (uint64_t)q->dims[SEQ] * lanes;
    drop.first = (uint64_t)row * drop.batch + lane * (drop.batch / lanes) +
                 (uint64_t)bind_offset(b, q, sharding, KV_HEADS) * drop.head +
                 (uint64_t)(grouped ? bind_offset(b, q, sharding, GROUP) : 0) * drop.member;
    return drop;
}

bool bind_exchange(const Binding *binding, int n_members, ExchangeSizes *out) {
    const Type *in = &binding->in_local[0], *to = &binding->out_local[0];
    const Node *node = binding->node;
    int divided = type_find_axis(in, node_axis(node, ATTR_axis));
    int joined = type_find_axis(in, node_attr(node, ATTR_over)->axes.items[0]);
    bool fits = divided >= 0 && joined >= 0 && divided != joined &&
                in->dims[divided] == n_members * to->dims[divided] &&
                to->dims[joined] == n_members * in->dims[joined];
    if (!fits) return bind_fail(binding, "does not have equal parts for all ranks");
    int second = divided < joined ? joined : divided, first = divided < joined ? divided : joined;
    *out = (ExchangeSizes){1, 1, 1, .to_strips = divided < joined};
    for (int i = 0; i < in->rank; i++) { /* of one member's block of rows */
        int64_t dim = i == divided ? to->dims[i] : in->dims[i];
        *(i < first ? &out->outer : i < second ? &out->rows : &out->width) *= dim;
    }
    return true;
}

bool bind_blocks(const Binding *binding, BlockLayout *out) {
    const Node *node = binding->node;
    const Type *local = &binding->in_local[0];
    bool whole = node->op == OP_QUANTIZE ? quantize_layout(node, local, out)
                                         : block_layout(bind_input_type(binding, 0),
                                                        bind_input_type(binding, 1), local, out);
    return whole || bind_fail(binding, "has blocks that lie on several ranks");
}

bool bind_scaled_product(const Binding *binding, ScaledProduct *out) {
    const Type *local = binding->in_local;
    MatmulLayout *l = &out->layout;
    bool fits = matmul_layout(binding->node, &local[0], &local[1], l) && l->batch == 1 &&
                !l->transpose_a && l->transpose_b;
    for (int i = 0; fits && i < 2; i++) {
        const Type *values = bind_input_type(binding, i), *scales = bind_input_type(binding, 2 + i);
        fits = scale_form(values, scales, &local[i], i ? l->n : l->m, l->k, &out->forms[i]) &&
               block_layout(values, scales, &local[i], &out->blocks[i]);
    }
    return fits || bind_fail(binding, "has operands of fp8 that do not lie as products read them");
}

bool bind_rescale(const Binding *binding, BindRescale *out) {
    const int operand = op_rescale_operand(binding->node);
    int at;
    *out = (BindRescale){NULL, 1, 1};
    if (operand < 0) return true;
    const Type *param = &binding->in_local[0], *factors = &binding->in_local[operand];
    if (!op_rescale_place(param, factors, &at) || type_elements(param) == 0) {
        return bind_fail(binding, "has factors that do not lie as the parameter does");
    }
    out->factors = binding->in[operand];
    out->count = type_elements(factors);
    out->inner = bind_stride(param, at + factors->rank - 1);
    return true;
}

int64_t bind_rows(const Type *local) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < local->rank; i++) rows *= local->dims[i];
    return rows;
}

int64_t bind_stride(const Type *local, int dimension) {
    int64_t stride = 1;
    for (int i = dimension + 1; i < local->rank; i++) stride *= local->dims[i];
    return stride;
}

uint32_t bind_random_key(int block, int64_t key) {
    uint32_t hash = 2166136261u;
    uint64_t words[2] = {(uint64_t)(int64_t)block, (uint64_t)key};
    for (int i = 0; i < 16; i++) {
        hash = (hash ^ (uint32_t)(words[i / 8] >> (8 * (i % 8)) & 0xff)) * 16777619u;
    }
    return hash;
}
