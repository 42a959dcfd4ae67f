#include "runtime/engine_islands.h"

#include "ir/base/host.h"
#include "runtime/data/mix.h"
#include "runtime/engine_internal.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A node of this process' ranks that holds a part of a leaf. */
typedef struct Holder {
    const RankContext *rank;
    Node *node;
} Holder;

typedef struct Leaf {
    Logical item;
    int64_t n;
    Holder *holders;
    int n_holders, capacity;
} Leaf;

typedef struct LeafList {
    Leaf *items; /* by name */
    int count;
    int64_t n_values, largest;
} LeafList;

struct EngineIslands {
    Engine *engine;
    Arena *arena;
    LeafList weights, state;
    EngineBeside *beside; /* [n_beside]: weights, then momentum */
    int n_beside;
    IslandsOptions options;
    Islands *islands;             /* the first process' alone, as what follows */
    float *last, *momentum, *own; /* [weights.n_values] */
    float *room;                  /* [largest]: a leaf on its way */
};

/* --- leaves --- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const Leaf *)a)->item.name, ((const Leaf *)b)->item.name);
}

static Leaf *find_leaf(const LeafList *list, const char *name) {
    const Leaf wanted = {.item = {.name = name}};
    return list->count ? bsearch(&wanted, list->items, (size_t)list->count, sizeof(Leaf), by_name)
                       : NULL;
}

/* What is exchanged: parameters that train; or the optimizer's state of them. */
static bool is_wanted(const Node *node, bool state) {
    if (engine_is_teachers(node)) return false;
    return state ? node->op == OP_STATE && !node_is_copy(node)
                 : node->op == OP_PARAM && !node_is_frozen(node);
}

static LeafList list_leaves(EngineIslands *islands, bool state) {
    LogicalList all = engine_list_leaves(islands->engine, state, islands->arena);
    LeafList list = {.items = ARENA_ARRAY(islands->arena, Leaf, all.count)};
    for (int i = 0; i < all.count; i++) {
        if (!is_wanted(all.items[i].node, state)) continue;
        const int64_t n = type_elements(&all.items[i].node->types[0]);
        list.items[list.count++] = (Leaf){.item = all.items[i], .n = n};
        list.n_values += n;
        if (n > list.largest) list.largest = n;
    }
    if (list.count) qsort(list.items, (size_t)list.count, sizeof(Leaf), by_name);
    return list;
}

static void find_holders(EngineIslands *islands) {
    const Engine *engine = islands->engine;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; engine_is_local(rank) && n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            const bool state = node->op == OP_STATE;
            if (!is_wanted(node, state)) continue;
            const char *name = engine_leaf_name(rank, node, islands->arena);
            Leaf *leaf = find_leaf(state ? &islands->state : &islands->weights, name);
            if (!leaf) continue;
            const Holder holder = {rank, node};
            ARENA_PUSH(islands->arena, leaf->holders, leaf->n_holders, leaf->capacity, holder);
        }
    }
}

/* Names and shapes: what two islands exchange must mean the same. */
static uint64_t hash_leaves(const LeafList *list, uint64_t hash) {
    for (int i = 0; i < list->count; i++) {
        const Logical *item = &list->items[i].item;
        const Type *type = &item->node->types[0];
        for (const char *c = item->name; *c; c++) hash = mix_bits(hash ^ (unsigned char)*c);
        hash = mix_bits(hash ^ (uint64_t)type->rank);
        for (int d = 0; d < type->rank; d++) hash = mix_bits(hash ^ (uint64_t)type->dims[d]);
    }
    return hash;
}

/* --- from and to all ranks --- */

/* to[list->n_values], on the first process; false: reported. */
static bool gather(EngineIslands *islands, const LeafList *list, float *to, Diag *diag) {
    Engine *engine = islands->engine;
    for (int i = 0; i < list->count; i++) {
        const Leaf *leaf = &list->items[i];
        engine_assemble(engine, leaf->item.stage, node_value((Node *)leaf->item.node, 0),
                        to ? to : islands->room);
        if (to) to += leaf->n;
    }
    return !engine_job_failed(engine, diag);
}

static bool scatter(EngineIslands *islands, const LeafList *list, const float *from, Diag *diag) {
    Engine *engine = islands->engine;
    Arena *arena = arena_create();
    for (int i = 0; i < list->count; i++) {
        const Leaf *leaf = &list->items[i];
        const size_t bytes = (size_t)leaf->n * sizeof(float);
        if (from) memcpy(islands->room, from, bytes);
        if (engine->control && !engine_share(engine, 0, islands->room, bytes)) break;
        for (int h = 0; h < leaf->n_holders; h++) {
            engine_set_leaf(engine, leaf->holders[h].rank, leaf->holders[h].node,
                            &(WholeTensor){islands->room, DTYPE_F32}, arena);
        }
        if (from) from += leaf->n;
    }
    arena_destroy(arena);
    return !engine_job_failed(engine, diag);
}

/* --- beginning and end --- */

/* The first process names them, and has them; the others only name them. */
static void make_beside(EngineIslands *islands) {
    const LeafList *list = &islands->weights;
    const bool hub = islands->options.island == 0;
    islands->n_beside = hub ? 2 * list->count : list->count;
    islands->beside = ARENA_ARRAY(islands->arena, EngineBeside, islands->n_beside);
    for (int kind = 0; kind < 1 + hub; kind++) {
        float *values = kind ? islands->momentum : islands->last;
        for (int i = 0; i < list->count; i++) {
            const Leaf *leaf = &list->items[i];
            islands->beside[kind * list->count + i] =
                (EngineBeside){.name = arena_printf(islands->arena, "outer_%s/%s",
                                                    kind ? "momentum" : "weights", leaf->item.name),
                               .type = leaf->item.node->types[0],
                               .values = values};
            if (values) values += leaf->n;
        }
    }
    engine_set_beside(islands->engine, islands->beside, islands->n_beside);
}

int64_t engine_islands_values(const EngineIslands *islands) {
    return islands->weights.n_values;
}

/* Of island 0 while all others' are there; of another, with the state that it may take. */
int64_t engine_islands_bytes(const EngineIslands *islands) {
    const IslandsOptions *options = &islands->options;
    const int64_t n = islands->weights.n_values, word = options->bf16 ? 2 : 4;
    int64_t bytes = 2 * n * 4 + islands->weights.largest * 4;
    if (options->island == 0) {
        return bytes + n * 4 + (options->n_islands - 1) * n * word + (options->bf16 ? n * 2 : 0);
    }
    return bytes + n * 4 + (options->bf16 ? n * 2 : 0);
}

static bool check_memory(const EngineIslands *islands, Diag *diag) {
    const Engine *engine = islands->engine;
    const int64_t have = host_memory_bytes(), need = engine_islands_bytes(islands);
    int64_t taken = engine_host_bytes(engine);
    if (!engine->plan->cuda) taken += engine_arena_bytes(engine);
    if (!engine->is_first || taken + need <= have) return true;
    diag_error(diag, NO_LOC,
               "--islands: island %d needs %.1f GiB more memory for weights; %s "
               "%.1f GiB",
               islands->options.island, (double)need / (1 << 30), host_memory_phrase(),
               (double)have / (1 << 30));
    return false;
}

static float *allocate(int64_t n) {
    float *values = calloc(n ? (size_t)n : 1, sizeof(float));
    if (!values) BUG("out of memory for %" PRId64 " numbers", n);
    return values;
}

EngineIslands *engine_islands_create(Engine *engine, const IslandsOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    EngineIslands *islands = ARENA_NEW(arena, EngineIslands);
    *islands = (EngineIslands){.engine = engine, .arena = arena, .options = *options};
    islands->weights = list_leaves(islands, false);
    islands->state = list_leaves(islands, true);
    find_holders(islands);
    islands->options.n_values = islands->weights.n_values;
    islands->options.n_state = islands->state.n_values;
    islands->options.model =
        hash_leaves(&islands->state, hash_leaves(&islands->weights, mix_bits(1)));
    if (!check_memory(islands, diag)) {
        arena_destroy(arena);
        return NULL;
    }
    const int64_t a = islands->weights.largest, b = islands->state.largest;
    islands->room = allocate(a > b ? a : b);
    if (engine->is_first) {
        islands->last = allocate(islands->weights.n_values);
        islands->own = allocate(islands->weights.n_values);
        if (options->island == 0) islands->momentum = allocate(islands->weights.n_values);
        islands->islands = islands_create(&islands->options, islands->last, islands->momentum);
    }
    make_beside(islands);
    return islands;
}

void engine_islands_destroy(EngineIslands *islands, const char *why) {
    if (!islands) return;
    islands_destroy(islands->islands, why);
    engine_set_beside(islands->engine, NULL, 0);
    free(islands->last);
    free(islands->momentum);
    free(islands->own);
    free(islands->room);
    arena_destroy(islands->arena);
}

/* --- what all processes learn of the first one's talk --- */

typedef struct Outcome {
    int32_t result;
    bool has_state, admits, admits_state;
    IslandsPlace place;
    IslandsReport report;
} Outcome;

/* What the first process has been told, however long that took. False: reported. */
static bool share_outcome(EngineIslands *islands, Outcome *outcome, Diag *diag) {
    struct Control *control = islands->engine->control;
    if (!control) return true;
    return (control_await(control) && engine_share(islands->engine, 0, outcome, sizeof *outcome)) ||
           !engine_job_failed(islands->engine, diag);
}

/* Others that have come get weights and, where they ask for it, state: as it is now. */
static bool admit(EngineIslands *islands, const Outcome *outcome, Diag *diag) {
    const bool first = islands->engine->is_first;
    float *state = NULL;
    if (!outcome->admits) return true;
    if (outcome->admits_state) {
        if (first) state = allocate(islands->state.n_values);
        if (!gather(islands, &islands->state, state, diag)) {
            free(state);
            return false;
        }
    }
    if (first) islands_admit(islands->islands, state);
    free(state);
    return true;
}

/* A state that comes from elsewhere is one of so many steps: where they are counted, so many. */
static void set_updates(EngineIslands *islands, int64_t steps) {
    Engine *engine = islands->engine;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; engine_is_local(rank) && n < graph->n_nodes; n++) {
            Node *node = graph->nodes[n];
            if (node->op != OP_VARIABLE ||
                strcmp(node_string(node, ATTR_name), UPDATES_NAME) != 0) {
                continue;
            }
            engine_set_variable(engine, rank, node, (float)steps);
        }
    }
}

/* The last meeting's weights become the engine's, if there was one. */
static IslandsResult take(EngineIslands *islands, Outcome *outcome, TrainingPlace *place,
                          Diag *diag) {
    const IslandsResult result = (IslandsResult)outcome->result;
    if (result == ISLANDS_STOPPED) return result;
    if (result == ISLANDS_FAILED) {
        if (!islands->engine->is_first) diag_error(diag, NO_LOC, "rank 0 lost the other islands");
        return result;
    }
    if (outcome->has_state) {
        const bool first = islands->engine->is_first;
        const float *state = first ? islands_taken_state(islands->islands) : NULL;
        if (!scatter(islands, &islands->state, state, diag)) return ISLANDS_FAILED;
        set_updates(islands, outcome->place.step);
    }
    if (!scatter(islands, &islands->weights, islands->last, diag)) return ISLANDS_FAILED;
    place->met_step = outcome->place.step;
    place->met_samples = outcome->place.samples;
    place->n_meetings = outcome->place.n_meetings;
    if (result == ISLANDS_TAKEN) {
        place->step = outcome->place.step;
        place->samples = outcome->place.samples;
    }
    return admit(islands, outcome, diag) ? result : ISLANDS_FAILED;
}

static void note_waiting(EngineIslands *islands, Outcome *outcome) {
    outcome->has_state = islands_taken_state(islands->islands) != NULL;
    outcome->admits = islands_count_waiting(islands->islands, &outcome->admits_state) > 0;
}

/* --- the beginning and each meeting --- */

/* A checkpoint of an island has what it was given last; of any other run it is where islands
 * begin. */
static bool find_last(EngineIslands *islands, const char *from, TrainingPlace *place, Diag *diag) {
    const IslandsOptions *options = &islands->options;
    if (from && place->n_islands) {
        if (place->island != options->island || place->n_islands != options->n_islands) {
            diag_error(diag, (SourceLoc){from, 0}, "is of island %d of %d, this is island %d of %d",
                       place->island, place->n_islands, options->island, options->n_islands);
            return false;
        }
        return engine_load_beside(islands->beside, islands->n_beside, from, diag);
    }
    place->island = options->island;
    place->n_islands = options->n_islands;
    place->met_step = place->step;
    place->met_samples = place->samples;
    place->n_meetings = 0;
    return gather(islands, &islands->weights, islands->last, diag);
}

IslandsResult engine_islands_start(EngineIslands *islands, const char *from, TrainingPlace *place,
                                   Diag *diag) {
    Outcome outcome = {.result = ISLANDS_FAILED};
    if (!find_last(islands, from, place, diag)) return ISLANDS_FAILED;
    outcome.place = (IslandsPlace){place->met_step, place->met_samples, place->n_meetings};
    if (islands->islands) {
        outcome.result = (int32_t)islands_start(islands->islands, &outcome.place, !from, diag);
        note_waiting(islands, &outcome);
    }
    if (!share_outcome(islands, &outcome, diag)) return ISLANDS_FAILED;
    if (outcome.result != ISLANDS_MET) return take(islands, &outcome, place, diag);
    return admit(islands, &outcome, diag) ? ISLANDS_MET : ISLANDS_FAILED;
}

IslandsResult engine_islands_meet(EngineIslands *islands, TrainingPlace *place, IslandsReport *out,
                                  Diag *diag) {
    Outcome outcome = {.result = ISLANDS_FAILED,
                       .place = {.step = place->step, .samples = place->samples}};
    if (!gather(islands, &islands->weights, islands->own, diag)) return ISLANDS_FAILED;
    if (islands->islands) {
        outcome.result = (int32_t)islands_meet(islands->islands, islands->own, &outcome.place,
                                               &outcome.report, diag);
        note_waiting(islands, &outcome);
    }
    if (!share_outcome(islands, &outcome, diag)) return ISLANDS_FAILED;
    *out = outcome.report;
    return take(islands, &outcome, place, diag);
}
