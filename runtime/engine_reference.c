#include "runtime/engine_reference.h"

#include "runtime/engine_internal.h"

#include <stdlib.h>

struct EngineReference {
    Engine *engine;
    Arena *arena;
    EngineWeights *weights; /* NULL: nothing is kept yet */
    Logical *items;         /* [n]: what trains */
    EngineBeside *beside;   /* [n]; NULL: checkpoints have none of it */
    int n;
    int64_t n_values, n_room;
    float *room; /* on the first process all of it, on others that of the largest */
};

static bool is_kept(const Node *node) {
    return node->op == OP_PARAM && !node_is_frozen(node);
}

static void set_beside(EngineReference *reference) {
    Engine *engine = reference->engine;
    int64_t largest = 0, at = 0;
    for (int i = 0; i < reference->n; i++) {
        const int64_t n = type_elements(&reference->items[i].node->types[0]);
        reference->n_values += n;
        if (n > largest) largest = n;
    }
    const int64_t n_room = reference->n_room = engine->is_first ? reference->n_values : largest;
    reference->room = calloc(n_room ? (size_t)n_room : 1, sizeof(float));
    if (!reference->room) BUG("out of memory for %lld numbers", (long long)n_room);
    reference->beside = ARENA_ARRAY(reference->arena, EngineBeside, reference->n + 1);
    for (int i = 0; i < reference->n; i++) {
        const Logical *item = &reference->items[i];
        reference->beside[i] = (EngineBeside){
            .name = arena_printf(reference->arena, CHECKPOINT_REFERENCE_PREFIX "%s", item->name),
            .type = item->node->types[0],
            .values = engine->is_first ? reference->room + at : NULL};
        at += type_elements(&item->node->types[0]);
    }
    engine_set_beside(engine, reference->beside, reference->n);
}

EngineReference *engine_reference_create(Engine *engine, bool saved) {
    Arena *arena = arena_create();
    EngineReference *reference = ARENA_NEW(arena, EngineReference);
    LogicalList all = engine_list_leaves(engine, false);
    *reference = (EngineReference){.engine = engine, .arena = arena};
    reference->items = ARENA_ARRAY(arena, Logical, all.count + 1);
    for (int i = 0; i < all.count; i++) {
        if (is_kept(all.items[i].node)) reference->items[reference->n++] = all.items[i];
    }
    if (saved) set_beside(reference);
    return reference;
}

void engine_reference_destroy(EngineReference *reference) {
    if (!reference) return;
    if (reference->beside) engine_set_beside(reference->engine, NULL, 0);
    engine_drop_weights(reference->weights);
    free(reference->room);
    arena_destroy(reference->arena);
}

bool engine_reference_renew(EngineReference *reference, Diag *diag) {
    Engine *engine = reference->engine;
    engine_drop_weights(reference->weights);
    reference->weights = engine_keep_weights(engine, false, diag);
    if (!reference->weights) return false;
    for (int i = 0; reference->beside && i < reference->n; i++) {
        const Logical *item = &reference->items[i];
        float *to = reference->beside[i].values;
        engine_assemble(engine, item->stage, node_value((Node *)item->node, 0),
                        to ? to : reference->room);
    }
    return !engine_job_failed(engine, diag);
}

bool engine_reference_load(EngineReference *reference, const char *path, Diag *diag) {
    EngineWeights *own = engine_keep_weights(reference->engine, false, diag);
    bool good = own && engine_load_kept_reference(reference->engine, path, diag) &&
                engine_reference_renew(reference, diag);
    return engine_restore_weights(own, diag) && good;
}

bool engine_reference_swap(EngineReference *reference, Diag *diag) {
    return engine_swap_weights(reference->weights, diag);
}

int64_t engine_reference_bytes(const EngineReference *reference) {
    if (!reference) return 0;
    return engine_weights_bytes(reference->engine, false) +
           reference->n_room * (int64_t)sizeof(float);
}
