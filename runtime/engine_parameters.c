/* Parameters and the optimizer's state by logical name: initial values, whole tensors. */
#include "runtime/engine_internal.h"

#include "ir/masters.h"
#include "ir/ops/round_blocks.h"
#include "ir/teacher.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/halves.h"
#include "runtime/cpu/philox.h"
#include "runtime/cpu/round_blocks.h"

#include <stdlib.h>
#include <string.h>

const char *engine_logical_name(const RankContext *rank, const Node *node, Arena *arena) {
    int first = node->block == NO_BLOCK ? 0 : rank->stage->first_block[node->chunk];
    return node_logical_name(node, first, arena);
}

Shard engine_leaf_shard(const RankContext *rank, const Node *node) {
    return shard_of(&node->types[0], &node->shardings[0], &rank->plan->mesh, rank->coord);
}

/* Even steps from low to high, by number in the whole tensor. */
static void fill_range(const PhiloxSpace *space, int64_t count, const Type *whole, double low,
                       double high, float *out) {
    const PhiloxSpace s = philox_space_collapse(space);
    const int64_t last = type_elements(whole) - 1;
    const double step = last > 0 ? (high - low) / (double)last : 0;
    int64_t run;
    uint64_t stride;
    for (int64_t i = 0; i < count; i += run) {
        uint64_t first = philox_space_locate(&s, i, &run, &stride);
        if (run > count - i) run = count - i;
        for (int64_t k = 0; k < run; k++) {
            out[i + k] = (float)(low + step * (double)(first + (uint64_t)k * stride));
        }
    }
}

static bool is_by_number(const char *init) {
    static const char *const INITS[] = {"normal", "uniform", "range"};
    for (size_t i = 0; i < sizeof(INITS) / sizeof(INITS[0]); i++) {
        if (strcmp(INITS[i], init) == 0) return true;
    }
    return false;
}

/* The parameter's initial values, by global element number, or those of `whole`, for one shard. */
static void fill_shard(const RankContext *rank, const Node *param, const Shard *shard,
                       const WholeTensor *whole, Arena *arena, float *out) {
    const char *init = node_string(param, ATTR_init);
    int64_t count = type_elements(&shard->local);
    if (whole) {
        memset(out, 0, (size_t)count * sizeof(float));
        shard_scatter(shard, whole->dtype, whole->data, out);
    } else if (is_by_number(init)) {
        PhiloxSpace space = {0};
        PhiloxStream stream = {.seed = rank->plan->seed,
                               .key = philox_key_of(engine_logical_name(rank, param, arena))};
        uint64_t stride = (uint64_t)type_elements(&shard->whole);
        for (int i = 0; i < shard->local.rank; i++) {
            SpanDims dims;
            int n = span_dims(&shard->span[i], shard->local.dims[i], &dims);
            stride /= (uint64_t)shard->whole.dims[i];
            for (int k = 0; k < n; k++, space.n_dims++) {
                space.dims[space.n_dims] = dims.dims[k];
                space.offset[space.n_dims] = k == n - 1 ? dims.offset : 0;
                space.stride[space.n_dims] = stride * (uint64_t)dims.step[k];
            }
        }
        if (strcmp(init, "normal") == 0) {
            philox_fill_normal(&stream, &space, 0, (float)node_float(param, ATTR_std, 0.02), out);
        } else if (strcmp(init, "uniform") == 0) {
            philox_fill_uniform(&stream, &space, (float)node_float(param, ATTR_low, 0),
                                (float)node_float(param, ATTR_high, 0), out);
        } else {
            fill_range(&space, count, &shard->whole, node_float(param, ATTR_low, 0),
                       node_float(param, ATTR_high, 0), out);
        }
    } else {
        float value = strcmp(init, "ones") == 0 ? 1 : 0;
        for (int64_t i = 0; i < count; i++) out[i] = value;
    }
    shard_zero_padding(shard, out);
}

/* Is `copy` the parameter as products read it: of its name, block and chunk? */
static bool is_copy_of(const Node *copy, const Node *param) {
    return node_is_copy(copy) && copy->block == param->block && copy->chunk == param->chunk &&
           strcmp(node_string(param, ATTR_name), node_string(copy, ATTR_of)) == 0;
}

/* Numbers of a copy that are as many of its parameter. */
static void put_copy(const Node *copy, const Type *local, const float *from, void *numbers) {
    const int64_t count = type_elements(local);
    if (node_is_rounded(copy)) {
        const RoundLayout layout = round_layout(copy, local);
        round_blocks(round_form_find(node_string(copy, ATTR_blocks)), &layout, from,
                     copy->types[0].dtype, numbers, count);
    } else {
        halves_copy(copy->types[0].dtype, from, numbers, count);
    }
}

/* `leaf` is the parameter in less than 32 bits, or a copy of it, which need not be divided as it
 * is. */
static void set_rounded(Engine *engine, const RankContext *rank, const Node *param, Node *leaf,
                        const WholeTensor *whole, Arena *arena) {
    Shard shard = engine_leaf_shard(rank, leaf);
    int64_t count = type_elements(&shard.local);
    size_t bytes = (size_t)count * sizeof(float);
    const DType dtype = shard.local.dtype;
    shard.whole.dtype = shard.local.dtype = DTYPE_F32; /* rounded at the end */
    float *wide = malloc(bytes ? bytes : 1);
    if (!wide) BUG("out of memory for %zu bytes", bytes);
    fill_shard(rank, param, &shard, whole, arena, wide);
    void *numbers = engine_edit(engine, rank, node_value(leaf, 0));
    if (node_is_copy(leaf)) {
        put_copy(leaf, &shard.local, wide, numbers);
    } else {
        weights_store(dtype, wide, numbers, count);
    }
    engine->backend->commit(engine);
    free(wide);
}

bool engine_is_adapter(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".lora_a") == 0 || strcmp(dot, ".lora_b") == 0);
}

bool engine_is_head(const char *name) {
    static const char *const NAMES[] = {"score", "score.b", "pooler.w", "pooler.b"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(name, NAMES[i]) == 0) return true;
    }
    return false;
}

bool engine_is_teachers(const Node *leaf) {
    return teacher_own_name(node_string(leaf, ATTR_name)) != NULL;
}

/* A parameter that is in a program as its copy alone, as in plans for decoding. */
static bool is_own_copy(const RankContext *rank, const Node *node) {
    const Graph *graph = rank->program->graph;
    if (!rank->plan->context || !node_is_copy(node)) return false;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *other = graph->nodes[n];
        if (other->op == OP_PARAM && is_copy_of(node, other)) return false;
    }
    return true;
}

static bool has_copy(const Graph *graph, const Node *param) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (is_copy_of(graph->nodes[n], param)) return true;
    }
    return false;
}

static bool is_divided_alike(const Node *a, const Node *b) {
    return sharding_equal(&a->shardings[0], &b->shardings[0], a->types[0].rank);
}

void engine_set_leaf(Engine *engine, const RankContext *rank, Node *leaf, const WholeTensor *whole,
                     Arena *arena) {
    const Graph *graph = rank->program->graph;
    if (leaf->types[0].dtype != DTYPE_F32 || node_is_copy(leaf)) {
        set_rounded(engine, rank, leaf, leaf, whole, arena);
        return;
    }
    Shard shard = engine_leaf_shard(rank, leaf);
    if (!has_copy(graph, leaf)) {
        fill_shard(rank, leaf, &shard, whole, arena,
                   engine_edit(engine, rank, node_value(leaf, 0)));
        engine->backend->commit(engine);
        return;
    }
    int64_t count = type_elements(&shard.local);
    size_t bytes = (size_t)count * sizeof(float);
    const bool split = master_upper(graph, leaf) != NULL;
    void *own = engine_edit(engine, rank, node_value(leaf, 0));
    /* In the device's own memory they can still be read when copies are made. */
    const bool stays = !split && own == executor_address(rank, node_value(leaf, 0), 0);
    float *values = stays ? own : malloc(bytes ? bytes : 1);
    if (!values) BUG("out of memory for %zu bytes", bytes);
    fill_shard(rank, leaf, &shard, whole, arena, values);
    if (split) {
        halves_split(values, own, count);
    } else if (!stays) {
        memcpy(own, values, bytes);
    }
    engine->backend->commit(engine);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *copy = graph->nodes[n];
        if (!is_copy_of(copy, leaf) || node_is_upper(copy)) continue;
        if (!is_divided_alike(leaf, copy)) {
            set_rounded(engine, rank, leaf, copy, whole, arena);
            continue;
        }
        put_copy(copy, &shard.local, values, engine_edit(engine, rank, node_value(copy, 0)));
        engine->backend->commit(engine);
    }
    if (!stays) free(values);
}

void engine_set_variable(Engine *engine, const RankContext *rank, Node *variable, float value) {
    *(float *)engine_edit(engine, rank, node_value(variable, 0)) = value;
    engine->backend->commit(engine);
}

void engine_init_parameters(Engine *engine) {
    Arena *arena = arena_create();
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (!engine_is_local(rank)) continue;
            bool loaded = engine->teacher[0] && engine_is_teachers(node);
            if (node->op == OP_PARAM && !loaded) engine_set_leaf(engine, rank, node, NULL, arena);
            if (node->op != OP_VARIABLE) continue;
            engine_set_variable(engine, rank, node, (float)node_float(node, ATTR_value, 0));
        }
    }
    arena_destroy(arena);
}

bool engine_is_leaf(const RankContext *rank, const Node *node, bool with_state) {
    bool state = node->op == OP_VARIABLE || (node->op == OP_STATE && !node_is_copy(node));
    return node->op == OP_PARAM || (with_state && state) || is_own_copy(rank, node);
}

const char *engine_leaf_name(const RankContext *rank, const Node *node, Arena *arena) {
    const char *name = engine_logical_name(rank, node, arena);
    if (!node_is_copy(node)) return name;
    size_t length = strlen(name) - strlen(dtype_name(node->types[0].dtype)) - 1; /* "w.bf16" */
    return arena_strndup(arena, name, length);
}

static LogicalList find_leaves(const Engine *engine, bool with_state, Arena *arena) {
    LogicalList list = {0};
    const Plan *plan = engine->plan;
    for (int s = 0; s < plan->n_stages; s++) {
        MeshCoord coord = {{0}};
        coord.at[MESH_P] = s;
        const RankContext *rank = &engine->ranks[mesh_rank(&plan->mesh, coord)];
        for (int n = 0; n < rank->program->graph->n_nodes; n++) {
            const Node *node = rank->program->graph->nodes[n];
            bool known = false;
            if (!engine_is_leaf(rank, node, with_state)) continue;
            Logical item = {engine_leaf_name(rank, node, arena), node, s};
            for (int i = 0; i < list.count && !known; i++) {
                known = strcmp(list.items[i].name, item.name) == 0;
            }
            if (!known) ARENA_PUSH(arena, list.items, list.count, list.capacity, item);
        }
    }
    return list;
}

void engine_find_leaves(Engine *engine) {
    for (int i = 0; i < 2; i++) engine->leaves[i] = find_leaves(engine, i, engine->arena);
}

LogicalList engine_list_leaves(const Engine *engine, bool with_state) {
    return engine->leaves[with_state];
}

bool engine_is_lasting(const Node *node) {
    return node->op == OP_PARAM || node->op == OP_STATE || node->op == OP_VARIABLE;
}

unsigned engine_divided_axes(const Mesh *mesh, Value value) {
    unsigned divided = 0;
    for (int i = 0; i < value_type(value)->rank; i++) {
        divided |= mesh_axes(mesh, value_sharding(value)->mesh[i]);
    }
    return divided;
}

bool engine_owns(const RankContext *rank, int stage, Value value) {
    const unsigned divided = engine_divided_axes(&rank->plan->mesh, value);
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        int wanted = axis == MESH_P ? stage : 0;
        if (rank->coord.at[axis] != wanted && !(divided >> axis & 1)) return false;
    }
    return true;
}

bool engine_parameter(const Engine *engine, int i, const char **out_name, Type *out_type) {
    LogicalList list = engine_list_leaves(engine, false);
    if (i < 0 || i >= list.count) return false;
    *out_name = list.items[i].name;
    *out_type = list.items[i].node->types[0];
    return true;
}

bool engine_read_parameter(Engine *engine, const char *name, float *out) {
    LogicalList list = engine_list_leaves(engine, false);
    for (int i = 0; i < list.count; i++) {
        const Logical *item = &list.items[i];
        if (strcmp(item->name, name) != 0) continue;
        engine_assemble(engine, item->stage, node_value((Node *)item->node, 0), out);
        return true;
    }
    return false;
}

bool engine_write_parameter(Engine *engine, const char *name, const float *whole) {
    Arena *arena = arena_create();
    bool found = false;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (node->op != OP_PARAM || strcmp(engine_logical_name(rank, node, arena), name) != 0) {
                continue;
            }
            found = true;
            if (!engine_is_local(rank)) continue;
            engine_set_leaf(engine, rank, node, &(WholeTensor){whole, DTYPE_F32}, arena);
        }
    }
    arena_destroy(arena);
    return found;
}

/* The complete gradient that the node reads as the parameter's, or NO_VALUE. */
static Value gradient_read_by(const Node *node, const Node *param) {
    int gradient = op_gradient_operand(node->op);
    if (gradient < 0) return NO_VALUE;
    const Node *of = node->inputs[0].node; /* the parameter, or Muon's state of it */
    bool state = of->op == OP_STATE && of->block == param->block && of->chunk == param->chunk &&
                 strcmp(node_string(of, ATTR_of), node_string(param, ATTR_name)) == 0;
    return of == param || state ? node->inputs[gradient] : NO_VALUE;
}

/* May large values of the update have taken the gradient's memory? */
static bool is_reused(const Program *program, const Buffer *gradient) {
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        if (node->phase != PHASE_UPDATE || OPS[node->op].flags & PERSISTENT) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            const Buffer *buffer = &program->buffers[n * MAX_OUTPUTS + o];
            bool meets = buffer->offset_bytes < gradient->offset_bytes + gradient->bytes &&
                         gradient->offset_bytes < buffer->offset_bytes + buffer->bytes;
            bool same = buffer->offset_bytes == gradient->offset_bytes && op_alias(node, o) < 0 &&
                        op_may_reuse(node, 0); /* summed in place */
            if (buffer->region == REGION_PERSISTENT && meets && !same) return true;
        }
    }
    return false;
}

/* The complete gradient is what the optimizer reads. Where the update makes shards, of gradients or
 * weights, they lie in memory of gradients that it has read. */
bool engine_read_gradient(Engine *engine, const char *parameter, float *out) {
    bool reuses = engine->plan->zero && engine->plan->zero < ZERO_PARAMETERS;
    if (reuses && mesh_size(&engine->plan->mesh, MESH_DEC) > 1) return false;
    LogicalList list = engine_list_leaves(engine, false);
    bool found = false;
    for (int i = 0; i < list.count && !found; i++) {
        const Logical *item = &list.items[i];
        if (strcmp(item->name, parameter) != 0) continue;
        const Program *program = &engine->plan->programs[engine->plan->stages[item->stage].program];
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            Value gradient = gradient_read_by(node, item->node);
            if (!gradient.node) continue;
            const Buffer *buffer =
                &program->buffers[gradient.node->id * MAX_OUTPUTS + gradient.output];
            if (buffer->region != REGION_PERSISTENT || is_reused(program, buffer)) continue;
            engine_assemble(engine, item->stage, gradient, out);
            found = true;
        }
    }
    return found;
}
