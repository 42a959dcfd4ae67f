/* A hand-made plan for the tests of `show`: a small stack of feed-forward blocks, tensor-parallel
 * over t, with an embedding tied to the output projection; made without the planner's passes, so
 * that every figure can be worked out on paper. It is shaped like a real plan but is not one that
 * verify_plan would accept: buffers are laid one after the other. */
#ifndef TESTS_UNIT_PLAN_FIXTURE_H
#define TESTS_UNIT_PLAN_FIXTURE_H

#include "ir/op.h"
#include "planner/passes/pass.h"
#include "planner/plan/schedule.h"

#include <string.h>

typedef struct FixtureShape {
    int t, d, p, n_chunks, n_micro, blocks_per_chunk;
    int64_t model, ffn, seq, vocab;
    const char *schedule, *name;
} FixtureShape;

enum { AXIS_BATCH = AXIS_VOCAB + 1, AXIS_SEQ, AXIS_MODEL, AXIS_FFN };

typedef struct Fixture {
    const FixtureShape *shape;
    Graph *graph;
    Arena *arena;
    Diag *diag;
    int64_t dims[5];
    Value table; /* embedding, when this stage has it */
    int chunk, block;
    Phase phase;
    int line;
} Fixture;

/* A type over `axes` and its sharding: batch by d; ffn and vocab by t. */
static inline Type fixture_type(const Fixture *f, int rank, const int *axes, Sharding *out) {
    Type type = {.rank = rank};
    *out = sharding_none();
    for (int i = 0; i < rank; i++) {
        type.axes[i] = axes[i];
        type.dims[i] = f->dims[axes[i]];
        if (axes[i] == AXIS_BATCH) out->mesh[i] = MESH_D;
        if (axes[i] == AXIS_FFN || axes[i] == AXIS_VOCAB) out->mesh[i] = MESH_T;
    }
    return type;
}

static inline Value fixture_add(Fixture *f, OpKind op, const Value *inputs, int n_inputs,
                                const Attr *attrs, int n_attrs, int rank, const int *axes) {
    Sharding sharding;
    Type type = fixture_type(f, rank, axes, &sharding);
    NodeSpec spec = {.op = op,
                     .inputs = inputs,
                     .n_inputs = n_inputs,
                     .attrs = attrs,
                     .n_attrs = n_attrs,
                     .type = &type,
                     .phase = f->phase,
                     .block = f->block,
                     .chunk = f->chunk,
                     .loc = {"models/fixture.lua", ++f->line}};
    Node *node = graph_add(f->graph, &spec, f->diag);
    if (!node) BUG("%s", diag_text(f->diag));
    for (int i = 0; i < node->n_outputs; i++) node->shardings[i] = sharding;
    return node_value(node, 0);
}

#define FIXTURE_AXES(...)                                                                          \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) {                                   \
        __VA_ARGS__                                                                                \
    }

static inline Value fixture_leaf(Fixture *f, OpKind op, const char *name, int rank,
                                 const int *axes) {
    Attr attrs[] = {attr_string(ATTR_name, name), attr_string(ATTR_init, "normal"),
                    attr_float(ATTR_std, 0.02), attr_float(ATTR_decay, 1)};
    if (op == OP_STATE) attrs[1] = attr_string(ATTR_of, name);
    return fixture_add(f, op, NULL, 0, attrs,
                       op == OP_PARAM   ? 4
                       : op == OP_STATE ? 2
                                        : 1,
                       rank, axes);
}

static inline Value fixture_matmul(Fixture *f, Value a, Value b, int over, int rank,
                                   const int *axes) {
    Attr attr = attr_axes(ATTR_over, (int[]){over}, 1);
    return fixture_add(f, OP_MATMUL, (Value[]){a, b}, 2, &attr, 1, rank, axes);
}

static inline Value fixture_all_reduce(Fixture *f, const char *mesh, Value x, int rank,
                                       const int *axes) {
    Attr attr = attr_string(ATTR_mesh, mesh);
    return fixture_add(f, OP_ALL_REDUCE, &x, 1, &attr, 1, rank, axes);
}

/* gradient accumulator += a x b over batch and seq */
static inline void fixture_gradient(Fixture *f, const char *name, Value a, Value b, int rank,
                                    const int *axes) {
    Value sum = fixture_leaf(f, OP_ACCUMULATOR, name, rank, axes);
    Attr attr = attr_axes(ATTR_over, (int[]){AXIS_BATCH, AXIS_SEQ}, 2);
    fixture_add(f, OP_MATMUL, (Value[]){a, b, sum}, 3, &attr, 1, rank, axes);
}

typedef struct FixtureBlock {
    Value w1, w2, x, h, g;
} FixtureBlock;

static inline Value fixture_forward(Fixture *f, Value x, FixtureBlock *out) {
    out->x = x;
    out->w1 = fixture_leaf(f, OP_PARAM, "blocks.#.up", FIXTURE_AXES(AXIS_MODEL, AXIS_FFN));
    out->h =
        fixture_matmul(f, x, out->w1, AXIS_MODEL, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_FFN));
    out->g =
        fixture_add(f, OP_GELU, &out->h, 1, NULL, 0, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_FFN));
    out->w2 = fixture_leaf(f, OP_PARAM, "blocks.#.down", FIXTURE_AXES(AXIS_FFN, AXIS_MODEL));
    Value y = fixture_matmul(f, out->g, out->w2, AXIS_FFN,
                             FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    y = fixture_all_reduce(f, "t", y, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    return fixture_add(f, OP_ADD, (Value[]){x, y}, 2, NULL, 0,
                       FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
}

static inline Value fixture_backward(Fixture *f, Value dy, const FixtureBlock *block) {
    fixture_gradient(f, "blocks.#.down", block->g, dy, FIXTURE_AXES(AXIS_FFN, AXIS_MODEL));
    Value dg =
        fixture_matmul(f, dy, block->w2, AXIS_MODEL, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_FFN));
    Value dh = fixture_add(f, OP_GELU_GRAD, (Value[]){block->h, dg}, 2, NULL, 0,
                           FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_FFN));
    fixture_gradient(f, "blocks.#.up", block->x, dh, FIXTURE_AXES(AXIS_MODEL, AXIS_FFN));
    Value dx =
        fixture_matmul(f, dh, block->w1, AXIS_FFN, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    dx = fixture_all_reduce(f, "t", dx, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    return fixture_add(f, OP_ADD, (Value[]){dy, dx}, 2, NULL, 0,
                       FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
}

static inline Value fixture_edge_in(Fixture *f, bool first) {
    f->block = NO_BLOCK;
    if (!first) {
        Attr source = attr_int(ATTR_source, 0);
        return fixture_add(f, OP_RECV, NULL, 0, &source, 1,
                           FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    }
    Sharding sharding;
    Type type = fixture_type(f, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ), &sharding);
    type.dtype = DTYPE_I32;
    Attr name = attr_string(ATTR_name, "tokens");
    Node *tokens = graph_add(
        f->graph,
        &(NodeSpec){.op = OP_INPUT, .attrs = &name, .n_attrs = 1, .type = &type, .block = NO_BLOCK},
        f->diag);
    tokens->shardings[0] = sharding;
    f->table = fixture_leaf(f, OP_PARAM, "wte", FIXTURE_AXES(AXIS_VOCAB, AXIS_MODEL));
    Attr axis = attr_axis(ATTR_axis, AXIS_VOCAB);
    Value x = fixture_add(f, OP_EMBEDDING, (Value[]){node_value(tokens, 0), f->table}, 2, &axis, 1,
                          FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
    return fixture_all_reduce(f, "t", x, FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
}

static inline void fixture_send(Fixture *f, Value x) {
    Attr source = attr_int(ATTR_source, 0);
    fixture_add(f, OP_SEND, &x, 1, &source, 1, 0, NULL);
}

/* Forward and backward of one chunk. */
static inline void fixture_chunk(Fixture *f, bool first, bool last) {
    FixtureBlock blocks[16];
    int n_blocks = f->shape->blocks_per_chunk;
    f->phase = PHASE_FORWARD;
    Value x = fixture_edge_in(f, first), logits = NO_VALUE;
    for (int i = 0; i < n_blocks; i++) {
        f->block = f->chunk * n_blocks + i;
        x = fixture_forward(f, x, &blocks[i]);
    }
    f->block = NO_BLOCK;
    if (last) {
        if (!f->table.node) {
            f->table = fixture_leaf(f, OP_PARAM, "wte", FIXTURE_AXES(AXIS_VOCAB, AXIS_MODEL));
        }
        logits = fixture_matmul(f, x, f->table, AXIS_MODEL,
                                FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_VOCAB));
        Attr name = attr_string(ATTR_name, "logits");
        fixture_add(f, OP_OUTPUT, &logits, 1, &name, 1, 0, NULL);
    } else {
        fixture_send(f, x);
    }
    f->phase = PHASE_BACKWARD;
    Value dy;
    if (last) {
        dy = fixture_matmul(f, logits, f->table, AXIS_VOCAB,
                            FIXTURE_AXES(AXIS_BATCH, AXIS_SEQ, AXIS_MODEL));
        fixture_gradient(f, "wte", logits, x, FIXTURE_AXES(AXIS_VOCAB, AXIS_MODEL));
    } else {
        dy = fixture_edge_in(f, false);
    }
    for (int i = n_blocks - 1; i >= 0; i--) {
        f->block = f->chunk * n_blocks + i;
        dy = fixture_backward(f, dy, &blocks[i]);
    }
    f->block = NO_BLOCK;
    if (!first) fixture_send(f, dy);
}

/* Data-parallel reduction, tied weights, one norm over the pipeline, SGD. */
static inline void fixture_update(Fixture *f, bool is_tied) {
    f->phase = PHASE_UPDATE;
    Value rate = fixture_leaf(f, OP_SCALAR, "learning_rate", 0, NULL);
    int n_before = f->graph->n_nodes;
    for (int i = 0; i < n_before; i++) {
        Node *node = f->graph->nodes[i];
        if (node->op != OP_PARAM) continue;
        f->block = node->block;
        f->chunk = node->chunk;
        const char *name = node_string(node, ATTR_name);
        int rank = node->types[0].rank, *axes = node->types[0].axes;
        Value g = fixture_leaf(f, OP_ACCUMULATOR, name, rank, axes);
        g = fixture_all_reduce(f, "d", g, rank, axes);
        if (is_tied && strcmp(name, "wte") == 0) {
            Attr comm = attr_string(ATTR_comm, "wte");
            g = fixture_add(f, OP_STAGE_REDUCE, &g, 1, &comm, 1, rank, axes);
        }
        Value norm = fixture_add(f, OP_SUMSQ, &g, 1, NULL, 0, 0, NULL);
        norm = fixture_all_reduce(f, "p", norm, 0, NULL);
        Value buffer = fixture_leaf(f, OP_STATE, name, rank, axes);
        Attr attrs[] = {attr_float(ATTR_momentum, 0.9), attr_float(ATTR_weight_decay, 0.1)};
        fixture_add(f, OP_SGD, (Value[]){node_value(node, 0), g, buffer, norm, rate}, 5, attrs, 2,
                    rank, axes);
    }
}

static inline Buffer fixture_buffer(Program *program, const Node *node, int64_t bytes) {
    Buffer buffer = {.bytes = bytes, .chunk = node->chunk};
    int64_t *end = &program->scratch_bytes;
    if (OPS[node->op].flags & PERSISTENT || node->op == OP_INPUT) {
        buffer.region = REGION_PERSISTENT;
        buffer.class = node->op == OP_PARAM         ? CLASS_PARAMETER
                       : node->op == OP_ACCUMULATOR ? CLASS_GRADIENT
                       : node->op == OP_STATE       ? CLASS_OPTIMIZER
                                                    : CLASS_INPUT;
        program->class_bytes[buffer.class] += (bytes + 63) / 64 * 64;
        end = &program->persistent_bytes;
    } else if (node->phase == PHASE_FORWARD) {
        buffer.region = REGION_FRAME;
        buffer.class = CLASS_ACTIVATION;
        end = &program->frame_bytes[node->chunk];
    } else {
        buffer.region = REGION_SCRATCH;
        buffer.class = CLASS_SCRATCH;
    }
    buffer.offset_bytes = *end;
    *end += (bytes + 63) / 64 * 64;
    return buffer;
}

static inline Program fixture_program(Arena *arena, const FixtureShape *shape, bool first,
                                      bool last, Diag *diag) {
    static const char *const AXES[] = {"vocab", "batch", "seq", "model", "ffn"};
    Graph *graph = graph_create(arena, shape->name);
    for (int i = 0; i < 5; i++) graph_axis(graph, AXES[i], (int)strlen(AXES[i]));
    graph->mesh = (Mesh){.size = {shape->t, 1, 1, shape->d, 1, shape->p}};
    Fixture f = {.shape = shape,
                 .graph = graph,
                 .arena = arena,
                 .diag = diag,
                 .dims = {shape->vocab, 2 * shape->d, shape->seq, shape->model, shape->ffn}};
    for (f.chunk = 0; f.chunk < shape->n_chunks; f.chunk++) {
        fixture_chunk(&f, first && f.chunk == 0, last && f.chunk == shape->n_chunks - 1);
    }
    f.chunk = 0;
    fixture_update(&f, shape->p > 1 && (first || last));
    Program program = {.graph = graph};
    program.buffers = ARENA_ARRAY(arena, Buffer, graph->n_nodes * MAX_OUTPUTS);
    for (int i = 0; i < graph->n_nodes; i++) {
        Node *node = graph->nodes[i];
        for (int k = 0; k < node->n_outputs; k++) {
            int64_t bytes = type_local_bytes(&node->types[k], &node->shardings[k], &graph->mesh);
            program.buffers[i * MAX_OUTPUTS + k] = fixture_buffer(&program, node, bytes);
        }
    }
    return program;
}

static inline void fixture_stage(Plan *plan, int s, int blocks_per_chunk) {
    Stage *stage = &plan->stages[s];
    stage->program = s == 0 ? 0 : s == plan->n_stages - 1 ? plan->n_programs - 1 : 1;
    const Program *program = &plan->programs[stage->program];
    int64_t at = program->persistent_bytes;
    for (int c = 0; c < plan->n_chunks; c++) {
        stage->first_block[c] = (c * plan->n_stages + s) * blocks_per_chunk;
        stage->n_blocks[c] = blocks_per_chunk;
    }
    plan_choose_pools(plan, stage);
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        stage->frame_base[pool] = at;
        at += stage->frame_slots[pool] * plan_slot_bytes(plan, stage, pool);
    }
    stage->message_base = at;
    for (int i = 0; i < plan->n_channels; i++) {
        if (plan->channels[i].to != s) continue;
        stage->message_bytes += plan->channels[i].slots * plan->channels[i].slot_bytes;
    }
    stage->scratch_base = at + stage->message_bytes;
    stage->arena_bytes = stage->scratch_base + program->scratch_bytes;
}

static inline Plan *fixture_plan(Arena *arena, const FixtureShape *shape, Diag *diag) {
    Plan *plan = ARENA_NEW(arena, Plan);
    int p = shape->p;
    *plan = (Plan){.arena = arena,
                   .model = shape->name,
                   .fingerprint = 0x0123456789abcdef,
                   .mesh = {.size = {shape->t, 1, 1, shape->d, 1, p}},
                   .n_chunks = shape->n_chunks,
                   .micro_batch = 2,
                   .global_batch = 2 * shape->d * shape->n_micro,
                   .n_micro = shape->n_micro,
                   .seq = shape->seq,
                   .vocab = shape->vocab,
                   .schedule = shape->schedule,
                   .learning_rate = 3e-4,
                   .library_bytes = INT64_C(48) << 20,
                   .n_stages = p,
                   .n_programs = p > 2 ? 3 : p};
    int n_blocks = p * shape->n_chunks * shape->blocks_per_chunk;
    plan->n_parameters = plan->n_trained =
        shape->model * (2 * shape->ffn * n_blocks + shape->vocab);
    plan->model_flops = 6.0 * (double)plan->n_parameters * plan->global_batch * (double)plan->seq;
    plan->programs = ARENA_ARRAY(arena, Program, plan->n_programs);
    for (int i = 0; i < plan->n_programs; i++) {
        plan->programs[i] = fixture_program(arena, shape, i == 0, i == plan->n_programs - 1, diag);
    }
    plan->stages = ARENA_ARRAY(arena, Stage, p);
    if (!schedule_apply(plan, NO_LOC, diag)) BUG("%s", diag_text(diag));
    for (int i = 0; i < plan->n_channels; i++) {
        plan->channels[i].slot_bytes = 2 * shape->seq * shape->model * 4;
    }
    if (p > 1) {
        plan->n_comms = 1;
        plan->comms = ARENA_NEW(arena, StageComm);
        int *members = ARENA_ARRAY(arena, int, 2);
        members[1] = p - 1;
        *plan->comms = (StageComm){.name = "wte", .n_stages = 2, .stages = members};
    }
    for (int s = 0; s < p; s++) fixture_stage(plan, s, shape->blocks_per_chunk);
    return plan;
}

#endif
