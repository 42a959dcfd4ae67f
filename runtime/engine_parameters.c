/* Parameters by logical name: initial values, checkpoints, gradients for tests. */
#include "runtime/engine_internal.h"

#include "runtime/checkpoint/safetensors.h"
#include "runtime/cpu/philox.h"
#include "runtime/cpu/vec.h"
#include "runtime/shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *logical_name(const RankContext *rank, const Node *node, Arena *arena) {
    int first = node->block == NO_BLOCK ? 0 : rank->stage->first_block[node->chunk];
    return node_logical_name(node, first, arena);
}

static Shard node_shard(const RankContext *rank, const Node *node) {
    return shard_of(&node->types[0], &node->shardings[0], &rank->plan->mesh, rank->coord);
}

static uint32_t name_key(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static void init_parameter(Engine *engine, const RankContext *rank, Node *node, Arena *arena) {
    Shard shard = node_shard(rank, node);
    float *data = engine_edit(engine, rank, node_value(node, 0));
    const char *init = node_string(node, ATTR_init);
    int64_t count = type_elements(&shard.local);
    if (strcmp(init, "normal") == 0) {
        PhiloxSpace space = {.n_dims = shard.local.rank};
        PhiloxStream stream = {.seed = rank->plan->seed,
                               .key = name_key(logical_name(rank, node, arena))};
        uint64_t stride = 1;
        for (int i = shard.local.rank - 1; i >= 0; i--) {
            space.dims[i] = shard.local.dims[i];
            space.offset[i] = shard.offset[i];
            space.stride[i] = stride;
            stride *= (uint64_t)shard.whole.dims[i];
        }
        philox_fill_normal(&stream, &space, 0, (float)node_float(node, ATTR_std, 0.02), data);
    } else {
        float value = strcmp(init, "ones") == 0 ? 1 : 0;
        for (int64_t i = 0; i < count; i++) data[i] = value;
    }
    shard_zero_padding(&shard, data);
    engine->backend->commit(engine);
}

/* The parameter that a copy is of: of its name, block and chunk. */
static Node *copied_parameter(const Graph *graph, const Node *copy) {
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && node->block == copy->block && node->chunk == copy->chunk &&
            strcmp(node_string(node, ATTR_name), node_string(copy, ATTR_of)) == 0) {
            return node;
        }
    }
    BUG("'%s' is a copy of nothing", node_string(copy, ATTR_name));
}

static void refresh_copy(Engine *engine, const RankContext *rank, Node *copy) {
    const Node *param = copied_parameter(rank->program->graph, copy);
    Shard shard = node_shard(rank, copy);
    int64_t count = type_elements(&shard.local);
    size_t bytes = (size_t)count * (size_t)dtype_bytes(DTYPE_BF16);
    uint16_t *low = malloc(bytes ? bytes : 1);
    if (!low) BUG("out of memory for %zu bytes", bytes);
    vec_bf16_store(engine->backend->view(engine,
                                         executor_address(rank, node_value((Node *)param, 0), 0),
                                         (size_t)count * sizeof(float)),
                   low, count);
    memcpy(engine_edit(engine, rank, node_value(copy, 0)), low, bytes);
    engine->backend->commit(engine);
    free(low);
}

/* Whatever sets parameters outside a step ends with this: products read the copies. */
static void refresh_copies(Engine *engine) {
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; engine_is_local(rank) && n < graph->n_nodes; n++) {
            if (node_is_copy(graph->nodes[n])) refresh_copy(engine, rank, graph->nodes[n]);
        }
    }
}

void engine_init_parameters(Engine *engine) {
    Arena *arena = arena_create();
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op != OP_PARAM || !engine_is_local(rank)) continue;
            init_parameter(engine, rank, graph->nodes[n], arena);
        }
    }
    refresh_copies(engine);
    arena_destroy(arena);
}

static bool load_parameter(Engine *engine, const RankContext *rank, Node *node,
                           const Safetensors *file, const char *path, Arena *arena, Diag *diag) {
    SourceLoc loc = {path, 0};
    SafetensorsInfo info;
    const char *name = logical_name(rank, node, arena);
    Shard shard = node_shard(rank, node);
    if (!safetensors_find(file, name, &info)) {
        diag_error(diag, loc, "has no tensor '%s', which the plan's model needs", name);
        return false;
    }
    bool fits = info.dtype == SAFETENSORS_F32 && info.n_dims == shard.whole.rank;
    for (int i = 0; fits && i < shard.whole.rank; i++) fits = info.shape[i] == shard.whole.dims[i];
    if (!fits) {
        StrBuf want = strbuf_create();
        type_print(&want, &rank->program->graph->axes, &shard.whole, NULL);
        diag_error(diag, loc, "tensor '%s' does not have the model's shape %s", name, want.text);
        strbuf_destroy(&want);
        return false;
    }
    float *data = engine_edit(engine, rank, node_value(node, 0));
    memset(data, 0, (size_t)type_elements(&shard.local) * sizeof(float));
    shard_scatter(&shard, info.data, data);
    engine->backend->commit(engine);
    return true;
}

bool engine_load(Engine *engine, const char *path, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    Arena *arena = arena_create();
    bool fine = file != NULL;
    for (int r = 0; fine && r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; fine && n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op != OP_PARAM || !engine_is_local(rank)) continue;
            fine = load_parameter(engine, rank, graph->nodes[n], file, path, arena, diag);
        }
    }
    if (file) safetensors_close(file);
    arena_destroy(arena);
    refresh_copies(engine);
    return fine;
}

/* One logical tensor and a rank of its first stage. */
typedef struct Logical {
    const char *name;
    const Node *node;
    int stage;
} Logical;

typedef struct LogicalList {
    Logical *items;
    int count, capacity;
} LogicalList;

/* Every logical parameter once, by stage and place in its program. */
static LogicalList list_parameters(const Engine *engine, Arena *arena) {
    LogicalList list = {0};
    const Plan *plan = engine->plan;
    for (int s = 0; s < plan->n_stages; s++) {
        MeshCoord coord = {{0}};
        coord.at[MESH_P] = s;
        const RankContext *rank = &engine->ranks[mesh_rank(&plan->mesh, coord)];
        for (int n = 0; n < rank->program->graph->n_nodes; n++) {
            const Node *node = rank->program->graph->nodes[n];
            bool known = false;
            if (node->op != OP_PARAM) continue;
            Logical item = {logical_name(rank, node, arena), node, s};
            for (int i = 0; i < list.count; i++) {
                known |= strcmp(list.items[i].name, item.name) == 0;
            }
            if (!known) ARENA_PUSH(arena, list.items, list.count, list.capacity, item);
        }
    }
    return list;
}

/* Assembles a value of a stage's program from its shards, d = 0. */
static void assemble(Engine *engine, int stage, Value value, float *out) {
    const Plan *plan = engine->plan;
    for (int t = 0; t < plan->mesh.size[MESH_T]; t++) {
        MeshCoord coord = {{0}};
        coord.at[MESH_P] = stage;
        coord.at[MESH_T] = t;
        const RankContext *rank = &engine->ranks[mesh_rank(&plan->mesh, coord)];
        Shard shard = shard_of(value_type(value), value_sharding(value), &plan->mesh, coord);
        shard_gather(&shard, engine_view(engine, rank, value), out);
    }
}

bool engine_save(Engine *engine, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = list_parameters(engine, arena);
    SafetensorsWriter *writer = safetensors_writer_create();
    int64_t largest = 1;
    for (int i = 0; i < list.count; i++) {
        const Type *type = &list.items[i].node->types[0];
        safetensors_writer_add_tensor(writer, list.items[i].name, SAFETENSORS_F32, type->dims,
                                      type->rank);
        if (type_elements(type) > largest) largest = type_elements(type);
    }
    safetensors_writer_add_metadata(writer, "format", "pt");
    safetensors_writer_add_metadata(writer, "model", engine->plan->model);
    float *whole = malloc((size_t)largest * sizeof(float));
    /* Of several processes all take part in assembling, the first one writes. */
    bool fine = !engine->is_first || safetensors_writer_open(writer, path, diag);
    if (!whole) {
        diag_error(diag, (SourceLoc){path, 0}, "not enough memory to assemble the tensors");
        fine = false;
    }
    for (int i = 0; fine && i < list.count; i++) {
        const Logical *item = &list.items[i];
        size_t bytes = (size_t)type_elements(&item->node->types[0]) * sizeof(float);
        assemble(engine, item->stage, node_value((Node *)item->node, 0), whole);
        fine = !engine->is_first || safetensors_writer_put(writer, item->name, whole, bytes, diag);
    }
    if (fine && engine->is_first) {
        fine = safetensors_writer_commit(writer, diag);
    } else {
        safetensors_writer_abandon(writer);
    }
    free(whole);
    arena_destroy(arena);
    return fine;
}

bool engine_parameter(const Engine *engine, int i, Arena *arena, const char **out_name,
                      Type *out_type) {
    LogicalList list = list_parameters(engine, arena);
    if (i < 0 || i >= list.count) return false;
    *out_name = list.items[i].name;
    *out_type = list.items[i].node->types[0];
    return true;
}

bool engine_read_parameter(Engine *engine, const char *name, float *out) {
    Arena *arena = arena_create();
    LogicalList list = list_parameters(engine, arena);
    bool found = false;
    for (int i = 0; i < list.count && !found; i++) {
        if (strcmp(list.items[i].name, name) != 0) continue;
        assemble(engine, list.items[i].stage, node_value((Node *)list.items[i].node, 0), out);
        found = true;
    }
    arena_destroy(arena);
    return found;
}

bool engine_write_parameter(Engine *engine, const char *name, const float *whole) {
    Arena *arena = arena_create();
    bool found = false;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (node->op != OP_PARAM || strcmp(logical_name(rank, node, arena), name) != 0) {
                continue;
            }
            found = true;
            if (!engine_is_local(rank)) continue;
            Shard shard = node_shard(rank, node);
            float *data = engine_edit(engine, rank, node_value(node, 0));
            memset(data, 0, (size_t)type_elements(&shard.local) * sizeof(float));
            shard_scatter(&shard, whole, data);
            engine->backend->commit(engine);
        }
    }
    if (found) refresh_copies(engine);
    arena_destroy(arena);
    return found;
}

/* The complete gradient is what the optimizer reads: its operand 1. */
bool engine_read_gradient(Engine *engine, const char *parameter, float *out) {
    Arena *arena = arena_create();
    LogicalList list = list_parameters(engine, arena);
    bool found = false;
    for (int i = 0; i < list.count && !found; i++) {
        const Logical *item = &list.items[i];
        if (strcmp(item->name, parameter) != 0) continue;
        const Program *program = &engine->plan->programs[engine->plan->stages[item->stage].program];
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            if (node->op != OP_ADAMW && node->op != OP_SGD) continue;
            if (node->inputs[0].node != item->node) continue;
            const Buffer *buffer =
                &program->buffers[node->inputs[1].node->id * MAX_OUTPUTS + node->inputs[1].output];
            if (buffer->region != REGION_PERSISTENT) continue; /* reused since */
            assemble(engine, item->stage, node->inputs[1], out);
            found = true;
        }
    }
    arena_destroy(arena);
    return found;
}
