/* A small model with tied embeddings and its plans, for tests of plans: built through the library,
 * not from Lua. */
#ifndef TESTS_UNIT_SMALL_PLAN_H
#define TESTS_UNIT_SMALL_PLAN_H

#include "ir/op.h"
#include "planner/planner.h"

#include <string.h>

typedef struct SmallModel {
    Graph *graph;
    Diag *diag;
    int batch, seq, model, ffn, vocab; /* axes */
    int64_t size[5];                   /* of them, in this order */
    int block, line; /* a line of its own for each node outside blocks, and for each of a block */
} SmallModel;

static inline Value small_add(SmallModel *m, OpKind op, const Value *inputs, int n_inputs,
                              const Attr *attrs, int n_attrs, const Type *type) {
    Node *node = graph_add(m->graph,
                           &(NodeSpec){.op = op,
                                       .inputs = inputs,
                                       .n_inputs = n_inputs,
                                       .attrs = attrs,
                                       .n_attrs = n_attrs,
                                       .type = type,
                                       .block = m->block,
                                       .loc = {"fixture.lua", m->line++}},
                           m->diag);
    if (!node) BUG("fixture: %s", diag_text(m->diag));
    return node_value(node, 0);
}

/* A leaf with one or two axes; a == b: one. */
static inline Value small_leaf(SmallModel *m, OpKind op, const char *name, int a, int b) {
    Attr attrs[4] = {attr_string(ATTR_name, name), attr_string(ATTR_init, "normal"),
                     attr_float(ATTR_std, 0.02), attr_float(ATTR_decay, 1)};
    Type type = {.dtype = op == OP_INPUT ? DTYPE_I32 : DTYPE_F32, .rank = a == b ? 1 : 2};
    type.axes[0] = a, type.axes[1] = b;
    type.dims[0] = m->size[a], type.dims[1] = m->size[b];
    return small_add(m, op, NULL, 0, attrs, op == OP_INPUT ? 1 : 4, &type);
}

static inline Value small_matmul(SmallModel *m, Value a, Value b, int over) {
    Attr attr = attr_axes(ATTR_over, &over, 1);
    return small_add(m, OP_MATMUL, (Value[]){a, b}, 2, &attr, 1, NULL);
}

static inline Value small_block(SmallModel *m, Value x) {
    m->line = 20;
    Attr norm[2] = {attr_axis(ATTR_axis, m->model), attr_float(ATTR_eps, 1e-5)};
    Value gain = small_leaf(m, OP_PARAM, "blocks.#.norm", m->model, m->model);
    Value up = small_leaf(m, OP_PARAM, "blocks.#.up", m->model, m->ffn);
    Value down = small_leaf(m, OP_PARAM, "blocks.#.down", m->ffn, m->model);
    Value y = small_add(m, OP_RMSNORM, (Value[]){x, gain}, 2, norm, 2, NULL);
    y = small_matmul(m, y, up, m->model);
    y = small_add(m, OP_GELU, &y, 1, NULL, 0, NULL);
    y = small_matmul(m, y, down, m->ffn);
    return small_add(m, OP_ADD, (Value[]){x, y}, 2, NULL, 0, NULL);
}

static inline Graph *small_forward(Arena *arena, int batch, int n_blocks, Diag *diag) {
    SmallModel m = {.graph = graph_create(arena, "fixture"),
                    .diag = diag,
                    .size = {64, batch, 8, 16, 32}, /* vocab is the first axis */
                    .block = NO_BLOCK,
                    .line = 10};
    m.vocab = graph_axis(m.graph, "vocab", 5);
    m.batch = graph_axis(m.graph, "batch", 5);
    m.seq = graph_axis(m.graph, "seq", 3);
    m.model = graph_axis(m.graph, "model", 5);
    m.ffn = graph_axis(m.graph, "ffn", 3);
    Value tokens = small_leaf(&m, OP_INPUT, "tokens", m.batch, m.seq);
    Value labels = small_leaf(&m, OP_INPUT, "labels", m.batch, m.seq);
    Value wte = small_leaf(&m, OP_PARAM, "wte", m.vocab, m.model);
    Attr by_vocab = attr_axis(ATTR_axis, m.vocab);
    Value x = small_add(&m, OP_EMBEDDING, (Value[]){tokens, wte}, 2, &by_vocab, 1, NULL);
    for (m.block = 0; m.block < n_blocks; m.block++) x = small_block(&m, x);
    m.block = NO_BLOCK;
    m.line = 30;
    Value logits = small_matmul(&m, x, wte, m.model);
    Attr name = attr_string(ATTR_name, "logits");
    small_add(&m, OP_OUTPUT, &logits, 1, &name, 1, NULL);
    Value loss = small_add(&m, OP_CROSS_ENTROPY, (Value[]){logits, labels}, 2, &by_vocab, 1, NULL);
    Attr over = attr_axes(ATTR_over, (int[]){m.batch, m.seq}, 2);
    loss = small_add(&m, OP_REDUCE_SUM, &loss, 1, &over, 1, NULL);
    Attr factor = attr_float(ATTR_value, 1.0 / (batch * 8));
    loss = small_add(&m, OP_SCALE, &loss, 1, &factor, 1, NULL);
    name = attr_string(ATTR_name, "loss");
    small_add(&m, OP_OUTPUT, &loss, 1, &name, 1, NULL);
    return m.graph;
}

typedef struct SmallPlan {
    const char *schedule;
    int t, d, p, n_chunks, n_micro, n_blocks;
} SmallPlan;

/* Of the plans made from now on. */
static DType small_precision = DTYPE_F32;
static double small_loss_scale = 1024; /* in f16; 0: none */
static int small_zero = 0;

/* NULL: reported. */
static inline Plan *small_plan(Arena *arena, SmallPlan f, Diag *diag) {
    PlanRequest request = {
        .model = "fixture",
        .n_blocks = f.n_blocks,
        .seq = 8,
        .vocab = 64,
        .recipe = {.optimizer = OPTIMIZER_ADAMW,
                   .learning_rate = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1,
                   .max_norm = 1},
        .options = {.mesh = {.size = {f.t, 1, 1, f.d, 1, f.p}},
                    .micro_batch = 2,
                    .global_batch = 2 * f.d * f.n_micro,
                    .n_chunks = f.n_chunks,
                    .schedule = f.schedule,
                    .precision = small_precision,
                    .loss_scaling = {small_precision == DTYPE_F16 ? small_loss_scale : 0, 9},
                    .zero = small_zero,
                    .seed = 7}};
    request.forward = small_forward(arena, 2 * f.d, f.n_blocks, diag);
    return plan_make(arena, &request, diag);
}

#endif
