/* Weights that become another engine's, weights that come back, engines that take another's place.
 */
#include "runtime/engine_internal.h"

#include "ir/masters.h"
#include "ir/ops/round_blocks.h"

#include <stdlib.h>
#include <string.h>

/* Of a rank's part. */
static int64_t local_bytes(const Engine *engine, const Node *node) {
    return type_local_bytes(&node->types[0], &node->shardings[0], &engine->plan->mesh);
}

/* Every local part of the leaf of this name. */
static bool set_named(Engine *to, const char *name, const float *whole, Arena *arena) {
    const WholeTensor tensor = {whole, DTYPE_F32};
    bool found = false;
    for (int r = 0; r < to->n_ranks; r++) {
        const RankContext *rank = &to->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes && engine_is_local(rank); n++) {
            Node *node = graph->nodes[n];
            if (!engine_is_leaf(rank, node, false) ||
                strcmp(engine_leaf_name(rank, node, arena), name) != 0) {
                continue;
            }
            engine_set_leaf(to, rank, node, &tensor, arena);
            found = true;
        }
    }
    return found;
}

/* --- on the device --- */

/* Is it divided over t alone, if at all? Ranks that follow each other are t's in every mesh. */
static bool is_of_t(const Node *node, const Mesh *mesh) {
    for (int i = 0; i < node->types[0].rank; i++) {
        const int by = node->shardings[0].mesh[i];
        if (by != MESH_T &&
            type_share(&node->types[0], i, by, mesh) != type_share(&node->types[0], i, -1, mesh)) {
            return false;
        }
    }
    return true;
}

/* Does a rank of each have the same part of what both have? */
static bool lie_alike(const Node *a, const Mesh *mesh_a, const Node *b, const Mesh *mesh_b) {
    const Type of_a = type_local(&a->types[0], &a->shardings[0], mesh_a);
    const Type of_b = type_local(&b->types[0], &b->shardings[0], mesh_b);
    return is_of_t(a, mesh_a) && is_of_t(b, mesh_b) && of_a.rank == of_b.rank &&
           memcmp(of_a.dims, of_b.dims, (size_t)of_a.rank * sizeof(of_a.dims[0])) == 0 &&
           memcmp(a->types[0].dims, b->types[0].dims, (size_t)of_a.rank * sizeof(of_a.dims[0])) ==
               0;
}

/* What a step leaves as every rank's own: no state's share, nothing on the host, and no half of
 * anything; and a rank here has one there. The same for all processes. */
static bool may_copy_within(const Engine *from, const Engine *to) {
    return from->backend == to->backend && !from->plan->zero && !from->plan->offload &&
           mesh_size(&from->plan->mesh, MESH_P) == 1 && (to->n_ranks == 1 || to->control);
}

/* The parameter, or the copy of it, that has what `leaf` is to have, with its dtype. */
static const Node *find_source(const RankContext *rank, const char *name, const Node *leaf,
                               const Mesh *leaf_mesh, Arena *arena) {
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if ((node->op != OP_PARAM && !node_is_copy(node)) ||
            node->types[0].dtype != leaf->types[0].dtype ||
            !lie_alike(node, &rank->plan->mesh, leaf, leaf_mesh)) {
            continue;
        }
        if (node->op != leaf->op && node_is_rounded(leaf)) continue; /* the parameter itself */
        const char *blocks = node_string(node, ATTR_blocks);
        if (strcmp(blocks, node_string(leaf, ATTR_blocks)) != 0) continue;
        const bool split = node->op == OP_PARAM && master_upper(graph, node);
        if (!split && strcmp(engine_leaf_name(rank, node, arena), name) == 0) return node;
    }
    return NULL;
}

/* False: not all that is called so can be had like this, and nothing was done. */
static bool copy_within(Engine *from, Engine *to, const char *name, Arena *arena) {
    enum { MOST = 8 };
    const RankContext *own = engine_own_rank(from), *other = engine_own_rank(to);
    const Graph *graph = other->program->graph;
    Node *leaves[MOST];
    const Node *sources[MOST];
    int count = 0;
    if (!may_copy_within(from, to)) return false;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *leaf = graph->nodes[n];
        if ((leaf->op != OP_PARAM && !node_is_copy(leaf)) ||
            strcmp(engine_leaf_name(other, leaf, arena), name) != 0) {
            continue;
        }
        const Node *source = find_source(own, name, leaf, &to->plan->mesh, arena);
        if (!source || count == MOST) return false;
        leaves[count] = leaf;
        sources[count++] = source;
    }
    for (int i = 0; i < count; i++) {
        to->backend->copy(to, executor_address(other, node_value(leaves[i], 0), 0),
                          executor_address(own, node_value((Node *)sources[i], 0), 0),
                          (size_t)local_bytes(to, leaves[i]));
    }
    return count > 0;
}

bool engine_copy_weights(Engine *from, Engine *to, bool frozen, Diag *diag) {
    Arena *arena = arena_create();
    LogicalList list = engine_list_leaves(from, false);
    bool good = true;
    for (int i = 0; i < list.count && good; i++) {
        const Logical *item = &list.items[i];
        if (node_is_frozen(item->node) && !frozen) continue;
        if (engine_is_teachers(item->node) && plan_count_teacher(to->plan) == 0) continue;
        if (copy_within(from, to, item->name, arena)) continue;
        const size_t bytes = (size_t)type_elements(&item->node->types[0]) * sizeof(float);
        float *whole = malloc(bytes ? bytes : 1);
        if (!whole) BUG("out of memory for %zu bytes", bytes);
        engine_assemble(from, item->stage, node_value((Node *)item->node, 0), whole);
        good = !engine_job_failed(from, diag);
        if (good) set_named(to, item->name, whole, arena);
        free(whole);
    }
    arena_destroy(arena);
    return good && !engine_copy_failed(to, diag);
}

/* --- weights for a while --- */

/* What loading weights changes, as a rank has it. */
typedef struct KeptValue {
    const RankContext *rank;
    Value value;
    size_t bytes;
    void *data;
} KeptValue;

typedef struct KeptValues {
    KeptValue *items;
    int count, capacity;
} KeptValues;

struct EngineWeights {
    Engine *engine;
    bool (*is_kept)(const Node *);
    KeptValues kept;
};

static void keep(KeptValues *values, Engine *engine, const RankContext *rank, Node *node) {
    if (values->count == values->capacity) {
        values->capacity = values->capacity ? 2 * values->capacity : 64;
        values->items = realloc(values->items, (size_t)values->capacity * sizeof(*values->items));
        if (!values->items) BUG("out of memory");
    }
    KeptValue kept = {.rank = rank, .value = node_value(node, 0)};
    kept.bytes = (size_t)local_bytes(engine, node);
    kept.data = malloc(kept.bytes ? kept.bytes : 1);
    if (!kept.data) BUG("out of memory for %zu bytes", kept.bytes);
    memcpy(kept.data,
           engine->backend->view(engine, executor_address(rank, kept.value, 0), kept.bytes),
           kept.bytes);
    values->items[values->count++] = kept;
}

static void release(KeptValues *values) {
    for (int i = 0; i < values->count; i++) free(values->items[i].data);
    free(values->items);
    *values = (KeptValues){0};
}

/* Those nodes of this process' ranks. */
static KeptValues keep_all(Engine *engine, bool (*which)(const Node *)) {
    KeptValues values = {0};
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes && engine_is_local(rank); n++) {
            if (which(graph->nodes[n])) keep(&values, engine, rank, graph->nodes[n]);
        }
    }
    return values;
}

static void put_back(Engine *engine, const RankContext *rank, Value value, const KeptValue *kept) {
    memcpy(engine_edit(engine, rank, value), kept->data, kept->bytes);
    engine->backend->commit(engine);
}

/* Parameters, copies of them, and the loss scale, which loaded weights begin anew. */
static bool is_weight(const Node *node) {
    return node->op == OP_PARAM || (node->op == OP_STATE && node_is_copy(node)) ||
           node->op == OP_VARIABLE;
}

static bool is_trained(const Node *node) {
    return is_weight(node) && !(node->op == OP_PARAM && node_is_frozen(node));
}

EngineWeights *engine_keep_weights(Engine *engine, bool frozen, Diag *diag) {
    EngineWeights *weights = calloc(1, sizeof(*weights));
    if (!weights) BUG("out of memory");
    *weights = (EngineWeights){.engine = engine, .is_kept = frozen ? is_weight : is_trained};
    weights->kept = keep_all(engine, weights->is_kept);
    if (!engine_copy_failed(engine, diag)) return weights;
    engine_drop_weights(weights);
    return NULL;
}

bool engine_restore_weights(EngineWeights *weights, Diag *diag) {
    if (!weights) return true;
    Engine *engine = weights->engine;
    for (int i = 0; i < weights->kept.count; i++) {
        const KeptValue *kept = &weights->kept.items[i];
        put_back(engine, kept->rank, kept->value, kept);
    }
    engine_drop_weights(weights);
    return !engine_copy_failed(engine, diag);
}

/* All are read before any is written: a copy in 16 bits may be half of its parameter's memory. */
bool engine_swap_weights(EngineWeights *weights, Diag *diag) {
    Engine *engine = weights->engine;
    KeptValues now = keep_all(engine, weights->is_kept);
    for (int i = 0; i < weights->kept.count; i++) {
        const KeptValue *kept = &weights->kept.items[i];
        put_back(engine, kept->rank, kept->value, kept);
    }
    release(&weights->kept);
    weights->kept = now;
    return !engine_copy_failed(engine, diag);
}

void engine_drop_weights(EngineWeights *weights) {
    if (!weights) return;
    release(&weights->kept);
    free(weights);
}

int64_t engine_weights_bytes(const Engine *engine, bool frozen) {
    int64_t bytes = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes && engine_is_local(rank); n++) {
            const Node *node = graph->nodes[n];
            if (frozen ? is_weight(node) : is_trained(node)) bytes += local_bytes(engine, node);
        }
    }
    return bytes;
}

/* --- all that training goes on from, for another batch --- */

/* One of those, as the next engine has it. */
static void carry(const KeptValue *kept, int r, const char *name, Engine *to, Arena *arena) {
    const RankContext *rank = &to->ranks[r];
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (!engine_is_lasting(node) || strcmp(engine_logical_name(rank, node, arena), name) != 0) {
            continue;
        }
        const int64_t bytes =
            type_local_bytes(&node->types[0], &node->shardings[0], &to->plan->mesh);
        if (bytes != (int64_t)kept->bytes) break;
        put_back(to, rank, node_value(node, 0), kept);
        return;
    }
    BUG("'%s' of rank %d is another one in the next plan", name, r);
}

Engine *engine_replace(Engine *engine, const Plan *plan, const EngineOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    KeptValues kept = keep_all(engine, engine_is_lasting);
    const char **names = ARENA_ARRAY(arena, const char *, kept.count + 1);
    int *ranks = ARENA_ARRAY(arena, int, kept.count + 1);
    for (int i = 0; i < kept.count; i++) {
        names[i] = engine_logical_name(kept.items[i].rank, kept.items[i].value.node, arena);
        ranks[i] = kept.items[i].rank->rank;
    }
    const int n_skipped = engine->n_skipped;
    const int64_t n_spikes = engine->n_spikes;
    char teacher[sizeof(engine->teacher)];
    memcpy(teacher, engine->teacher, sizeof(teacher));
    Engine *next = NULL;
    bool good = !engine_copy_failed(engine, diag);
    engine_destroy(engine);
    if (good) next = engine_create(plan, options, diag);
    for (int i = 0; i < kept.count && next; i++) {
        carry(&kept.items[i], ranks[i], names[i], next, arena);
    }
    if (next) next->n_skipped = n_skipped;
    if (next) next->n_spikes = n_spikes;
    if (next) memcpy(next->teacher, teacher, sizeof(teacher));
    release(&kept);
    arena_destroy(arena);
    if (!next || !engine_copy_failed(next, diag)) return next;
    engine_destroy(next);
    return NULL;
}
