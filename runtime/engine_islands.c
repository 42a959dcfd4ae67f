#include "runtime/engine_islands.h"

#include "ir/base/clock.h"
#include "ir/base/host.h"
#include "runtime/data/mix.h"
#include "runtime/engine_internal.h"
#include "runtime/islands/exchange_queue.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <math.h>
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
    int part;
} Leaf;

typedef struct LeafList {
    Leaf *items; /* by name; weights in the end by part and name */
    int count;
    int64_t n_values, largest;
} LeafList;

/* What a meeting behind training came to, until it is merged. */
typedef struct Ended {
    IslandsReport report;
    double seconds, held_seconds; /* held: training waited for it */
    bool is_known;                /* not: a checkpoint had what came of it */
} Ended;

struct EngineIslands {
    Engine *engine;
    Arena *arena;
    LeafList weights, state;
    EngineBeside *beside; /* [n_beside]: weights, then momentum and residual */
    int n_beside;
    IslandsOptions options;
    OuterTurns turns;
    int first_leaf[OUTER_MOST_PARTS + 1]; /* of each part */
    int flights[OUTER_MOST_PARTS];        /* [n_flights] parts on their way, in their order */
    int n_flights;
    Ended ended[OUTER_MOST_PARTS];
    bool is_waited;                    /* on island 0: others wait for weights */
    Islands *islands;                  /* the first process' alone, as what follows */
    ExchangeQueue *queue;              /* NULL: all meetings are waited for */
    float *last, *momentum, *residual; /* [weights.n_values] */
    float *own;                        /* [weights.n_values], without a queue of a part */
    float *room;                       /* [largest]: a leaf on its way */
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
    LogicalList all = engine_list_leaves(islands->engine, state);
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

/* --- parts --- */

static int by_part(const void *a, const void *b) {
    const Leaf *x = a, *y = b;
    return x->part != y->part ? x->part - y->part : by_name(a, b);
}

/* Weights in the order of parts, and where each begins. False: reported. */
static bool divide(EngineIslands *islands, Diag *diag) {
    LeafList *list = &islands->weights;
    const int n_parts = islands->turns.n_parts;
    OuterItem *items = ARENA_ARRAY(islands->arena, OuterItem, list->count + 1);
    int *parts = ARENA_ARRAY(islands->arena, int, list->count + 1), at = 0;
    int64_t n_values = 0;
    for (int i = 0; i < list->count; i++) {
        const Node *node = list->items[i].item.node;
        const int *first = islands->engine->plan->stages[list->items[i].item.stage].first_block;
        const bool in_block = node->block != NO_BLOCK;
        items[i].block = in_block ? first[node->chunk] + node->block : OUTER_NO_BLOCK;
        items[i].n_values = list->items[i].n;
    }
    const int most = outer_parts_divide(items, list->count, n_parts, parts);
    if (n_parts > 1 && most < n_parts) {
        diag_error(diag, NO_LOC,
                   "train: --outer-parts: %d parts of a model that has %d blocks and other "
                   "parameters that train: give at most %d",
                   n_parts, most, most);
        return false;
    }
    for (int i = 0; i < list->count; i++) list->items[i].part = parts[i];
    if (list->count) qsort(list->items, (size_t)list->count, sizeof(Leaf), by_part);
    for (int p = 0; p < n_parts; p++) {
        islands->first_leaf[p] = at;
        islands->options.part_at[p] = n_values;
        for (; at < list->count && list->items[at].part == p; at++) n_values += list->items[at].n;
    }
    islands->first_leaf[n_parts] = at;
    islands->options.part_at[n_parts] = n_values;
    return true;
}

static float *part_of(const EngineIslands *islands, int part, float *values) {
    return values ? values + islands->options.part_at[part] : NULL;
}

/* A part's own weights, as they were when it was sent. */
static float *own_of(const EngineIslands *islands, int part) {
    return islands->turns.overlap ? part_of(islands, part, islands->own) : islands->own;
}

/* --- from and to all ranks --- */

/* Of leaves first to end - 1; to: theirs, on the first process; false: reported. */
static bool gather(EngineIslands *islands, const LeafList *list, int first, int end, float *to,
                   Diag *diag) {
    Engine *engine = islands->engine;
    for (int i = first; i < end; i++) {
        const Leaf *leaf = &list->items[i];
        engine_assemble(engine, leaf->item.stage, node_value((Node *)leaf->item.node, 0),
                        to ? to : islands->room);
        if (to) to += leaf->n;
    }
    return !engine_job_failed(engine, diag);
}

static bool gather_all(EngineIslands *islands, const LeafList *list, float *to, Diag *diag) {
    return gather(islands, list, 0, list->count, to, diag);
}

static bool gather_part(EngineIslands *islands, int part, float *to, Diag *diag) {
    const int *first = islands->first_leaf;
    return gather(islands, &islands->weights, first[part], first[part + 1], to, diag);
}

/* The way back; of what the ranks have the share `mix` stays. */
static bool scatter(EngineIslands *islands, const LeafList *list, int first, int end, double mix,
                    const float *from, Diag *diag) {
    Engine *engine = islands->engine;
    Arena *arena = arena_create();
    for (int i = first; i < end; i++) {
        const Leaf *leaf = &list->items[i];
        const size_t bytes = (size_t)leaf->n * sizeof(float);
        if (mix > 0) {
            engine_assemble(engine, leaf->item.stage, node_value((Node *)leaf->item.node, 0),
                            islands->room);
        }
        if (from) outer_mix(mix, from, leaf->n, islands->room);
        if (engine->control && !control_share(engine->control, 0, islands->room, bytes)) break;
        for (int h = 0; h < leaf->n_holders; h++) {
            engine_set_leaf(engine, leaf->holders[h].rank, leaf->holders[h].node,
                            &(WholeTensor){islands->room, DTYPE_F32}, arena);
        }
        if (from) from += leaf->n;
    }
    arena_destroy(arena);
    return !engine_job_failed(engine, diag);
}

static bool scatter_all(EngineIslands *islands, const LeafList *list, const float *from,
                        Diag *diag) {
    return scatter(islands, list, 0, list->count, 0, from, diag);
}

static bool scatter_part(EngineIslands *islands, int part, double mix, Diag *diag) {
    const int *first = islands->first_leaf;
    return scatter(islands, &islands->weights, first[part], first[part + 1], mix,
                   part_of(islands, part, islands->last), diag);
}

/* --- beginning and end --- */

/* Island 0's, of what is far off when it is sent. */
static bool has_residual(const IslandsOptions *options) {
    return options->island == 0 && options->dtype == DTYPE_NF4;
}

/* The first process names them, and has them; the others only name them. */
static void make_beside(EngineIslands *islands) {
    const LeafList *list = &islands->weights;
    static const char *const NAMES[] = {"weights", "momentum", "residual"};
    float *const arrays[] = {islands->last, islands->momentum, islands->residual};
    const int n_kinds = 1 + (islands->options.island == 0) + has_residual(&islands->options);
    islands->n_beside = n_kinds * list->count;
    islands->beside = ARENA_ARRAY(islands->arena, EngineBeside, islands->n_beside);
    for (int kind = 0; kind < n_kinds; kind++) {
        float *values = arrays[kind];
        for (int i = 0; i < list->count; i++) {
            const Leaf *leaf = &list->items[i];
            islands->beside[kind * list->count + i] = (EngineBeside){
                .name = arena_printf(islands->arena, "outer_%s/%s", NAMES[kind], leaf->item.name),
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

int64_t engine_islands_largest(const EngineIslands *islands) {
    const int64_t *at = islands->options.part_at;
    int64_t largest = 0;
    for (int p = 0; p < islands->turns.n_parts; p++) {
        if (at[p + 1] - at[p] > largest) largest = at[p + 1] - at[p];
    }
    return largest;
}

/* Of island 0 while all others' parts are there. */
int64_t engine_islands_bytes(const EngineIslands *islands) {
    const IslandsOptions *options = &islands->options;
    const int64_t n = islands->weights.n_values, part = engine_islands_largest(islands);
    const int64_t word = sizeof(float), way = (int64_t)outer_bytes(options->dtype, part);
    const int64_t moved = options->dtype == DTYPE_F32 ? 0 : way;
    const int64_t own = islands->turns.overlap ? n : part;
    int64_t bytes = (n + own + islands->weights.largest) * word + moved;
    if (has_residual(options)) bytes += n * word;
    return options->island ? bytes + part * word
                           : bytes + n * word + (options->n_islands - 1) * way;
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

/* The first process' memory and connections. False: reported. */
static bool open_islands(EngineIslands *islands, Diag *diag) {
    const int64_t n = islands->weights.n_values;
    islands->last = allocate(n);
    islands->own = allocate(islands->turns.overlap ? n : engine_islands_largest(islands));
    if (islands->options.island == 0) islands->momentum = allocate(n);
    if (has_residual(&islands->options)) islands->residual = allocate(n);
    islands->islands =
        islands_create(&islands->options, islands->last, islands->momentum, islands->residual);
    if (!islands->turns.overlap) return true;
    islands->queue = exchange_queue_create(islands->islands, diag);
    return islands->queue;
}

EngineIslands *engine_islands_create(Engine *engine, const IslandsOptions *options,
                                     const OuterTurns *turns, Diag *diag) {
    Arena *arena = arena_create();
    EngineIslands *islands = ARENA_NEW(arena, EngineIslands);
    *islands =
        (EngineIslands){.engine = engine, .arena = arena, .options = *options, .turns = *turns};
    islands->weights = list_leaves(islands, false);
    islands->state = list_leaves(islands, true);
    find_holders(islands);
    islands->options.n_values = islands->weights.n_values;
    islands->options.n_state = islands->state.n_values;
    islands->options.model =
        hash_leaves(&islands->state, hash_leaves(&islands->weights, mix_bits(1)));
    islands->options.n_parts = turns->n_parts;
    islands->options.streams = turns->n_parts > 1 || turns->overlap > 0;
    const int64_t a = islands->weights.largest, b = islands->state.largest;
    bool good = divide(islands, diag) && check_memory(islands, diag);
    if (good) {
        islands->room = allocate(a > b ? a : b);
        good = !engine->is_first || open_islands(islands, diag);
    }
    if (!good) {
        engine_islands_destroy(islands, NULL);
        return NULL;
    }
    make_beside(islands);
    return islands;
}

void engine_islands_destroy(EngineIslands *islands, const char *why) {
    if (!islands) return;
    exchange_queue_destroy(islands->queue);
    islands_destroy(islands->islands, why);
    engine_set_beside(islands->engine, NULL, 0);
    free(islands->last);
    free(islands->momentum);
    free(islands->residual);
    free(islands->own);
    free(islands->room);
    arena_destroy(islands->arena);
}

/* --- what all processes learn of the first one's talk --- */

typedef struct Outcome {
    int32_t result;
    bool has_state, is_waited, wants_state;
    IslandsPlace place;
    Ended ended;
} Outcome;

/* What the first process has been told, however long that took. False: reported. */
static bool share_outcome(EngineIslands *islands, Outcome *outcome, Diag *diag) {
    struct Control *control = islands->engine->control;
    if (!control) return true;
    return (control_await(control) && control_share(control, 0, outcome, sizeof *outcome)) ||
           !engine_job_failed(islands->engine, diag);
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

static void note_meeting(const IslandsPlace *met, TrainingPlace *place) {
    place->met_step = met->step;
    place->met_samples = met->samples;
    place->n_meetings = met->n_meetings;
}

/* Island 0's weights become the engine's, and its place. What was on its way is of the past. */
static IslandsResult take_all(EngineIslands *islands, const Outcome *outcome, TrainingPlace *place,
                              Diag *diag) {
    const bool first = islands->engine->is_first;
    const float *own = first ? islands_taken_own(islands->islands) : NULL;
    if (outcome->has_state) {
        const float *state = first ? islands_taken_state(islands->islands) : NULL;
        if (!scatter_all(islands, &islands->state, state, diag)) return ISLANDS_FAILED;
        set_updates(islands, outcome->place.at_step);
    }
    if (!scatter_all(islands, &islands->weights, own ? own : islands->last, diag))
        return ISLANDS_FAILED;
    note_meeting(&outcome->place, place);
    place->step = outcome->place.at_step;
    place->samples = outcome->place.at_samples;
    memcpy(place->turns, outcome->place.turns, sizeof place->turns);
    while (islands->n_flights > 0) {
        islands->n_flights--;
        if (islands->queue) exchange_queue_take(islands->queue, diag);
    }
    memset(islands->ended, 0, sizeof islands->ended);
    return ISLANDS_TAKEN;
}

/* What the first process has in *outcome becomes known to all. MET: it is for the caller to use. */
static IslandsResult learn(EngineIslands *islands, Outcome *outcome, TrainingPlace *place,
                           Diag *diag) {
    bool wants_state;
    if (islands->islands && !islands->n_flights) {
        outcome->has_state = islands_taken_state(islands->islands) != NULL;
        outcome->is_waited |= islands_count_waiting(islands->islands, &wants_state) > 0;
    }
    if (!share_outcome(islands, outcome, diag)) return ISLANDS_FAILED;
    islands->is_waited |= outcome->is_waited;
    const IslandsResult result = (IslandsResult)outcome->result;
    if (result == ISLANDS_FAILED && !islands->engine->is_first)
        diag_error(diag, NO_LOC, "rank 0 lost the other islands");
    return result == ISLANDS_TAKEN ? take_all(islands, outcome, place, diag) : result;
}

/* --- meetings behind training --- */

/* The part as it is goes on its way. */
static IslandsResult send_part(EngineIslands *islands, int part, TrainingPlace *place, Diag *diag) {
    const IslandsPlace now = {.step = place->step, .samples = place->samples};
    const float *own = own_of(islands, part);
    if (!gather_part(islands, part, own_of(islands, part), diag)) return ISLANDS_FAILED;
    if (islands->queue) exchange_queue_begin(islands->queue, part, own, &now);
    islands->flights[islands->n_flights++] = part;
    place->turns[part] = (PartTurn){place->step, place->step + islands->turns.overlap};
    return ISLANDS_MET;
}

/* The first that is on its way comes to its end. STOPPED: it is given up. */
static IslandsResult await_part(EngineIslands *islands, TrainingPlace *place, Diag *diag) {
    const int part = islands->flights[0];
    Outcome outcome = {.result = ISLANDS_FAILED};
    if (islands->queue) {
        const double begun = clock_now();
        const Exchange exchange = exchange_queue_take(islands->queue, diag);
        outcome.result = (int32_t)exchange.result;
        outcome.place = exchange.place;
        outcome.is_waited = exchange.is_waited;
        outcome.ended = (Ended){exchange.report, exchange.seconds, clock_now() - begun, true};
        if (exchange.result == ISLANDS_TAKEN)
            outcome.has_state = islands_taken_state(islands->islands) != NULL;
    }
    islands->n_flights--;
    memmove(islands->flights, islands->flights + 1, (size_t)islands->n_flights * sizeof(int));
    const IslandsResult result = learn(islands, &outcome, place, diag);
    if (result == ISLANDS_STOPPED) place->turns[part].merge = 0;
    if (result != ISLANDS_MET) return result;
    note_meeting(&outcome.place, place);
    islands->ended[part] = outcome.ended;
    return ISLANDS_MET;
}

IslandsResult engine_islands_settle(EngineIslands *islands, TrainingPlace *place, bool gives_up,
                                    Diag *diag) {
    IslandsResult result = ISLANDS_MET;
    if (islands->queue) islands_abort(islands->islands, gives_up);
    while (islands->n_flights > 0 && (result == ISLANDS_MET || result == ISLANDS_STOPPED))
        result = await_part(islands, place, diag);
    if (islands->queue) islands_abort(islands->islands, false);
    return result == ISLANDS_STOPPED ? ISLANDS_MET : result;
}

/* --- what is due after a step --- */

static void add_report(MeetingReport *out, int part, int64_t sent_step, const Ended *ended) {
    const IslandsReport *report = &ended->report;
    IslandsReport *all = &out->all;
    if (!out->n_parts || report->n_present < all->n_present) all->n_present = report->n_present;
    for (int i = 0; i < ISLANDS_MOST; i++) all->missing[i] |= report->missing[i];
    all->norm = hypot(all->norm, report->norm);
    all->bytes += report->bytes;
    out->n_parts++;
    out->part = part;
    out->sent_step = sent_step;
}

/* All meet with a part, and wait for it. */
static IslandsResult meet_part(EngineIslands *islands, int part, TrainingPlace *place,
                               MeetingReport *out, Diag *diag) {
    Outcome outcome = {.result = ISLANDS_FAILED,
                       .place = {.step = place->step, .samples = place->samples}};
    float *own = own_of(islands, part);
    if (!gather_part(islands, part, own, diag)) return ISLANDS_FAILED;
    if (islands->islands) {
        islands_behind(islands->islands, false);
        outcome.result = (int32_t)islands_meet(islands->islands, part, own, &outcome.place,
                                               &outcome.ended.report, diag);
    }
    const IslandsResult result = learn(islands, &outcome, place, diag);
    if (result != ISLANDS_MET) return result;
    if (!scatter_part(islands, part, 0, diag)) return ISLANDS_FAILED;
    note_meeting(&outcome.place, place);
    place->turns[part] = (PartTurn){.met = place->step};
    add_report(out, part, place->step, &outcome.ended);
    out->all.wait_seconds += outcome.ended.report.wait_seconds;
    return ISLANDS_MET;
}

/* What came of a part's meeting, which training may have to wait for. */
static IslandsResult merge_part(EngineIslands *islands, int part, TrainingPlace *place,
                                MeetingReport *out, Diag *diag) {
    bool on_its_way = true;
    while (on_its_way) {
        on_its_way = false;
        for (int f = 0; f < islands->n_flights; f++) on_its_way |= islands->flights[f] == part;
        if (!on_its_way) break;
        const IslandsResult result = await_part(islands, place, diag);
        if (result != ISLANDS_MET) return result;
    }
    if (!scatter_part(islands, part, islands->turns.mix, diag)) return ISLANDS_FAILED;
    place->turns[part].merge = 0;
    Ended *ended = &islands->ended[part];
    if (ended->is_known) {
        add_report(out, part, place->turns[part].met, ended);
        out->all.wait_seconds += ended->held_seconds;
        out->hidden_seconds += fmax(0, ended->seconds - ended->held_seconds);
    }
    ended->is_known = false;
    return ISLANDS_MET;
}

static bool is_to_meet(const EngineIslands *islands, int part, const TrainingPlace *place) {
    return place->turns[part].met < place->step &&
           outer_part_is_due(&islands->turns, part, place->step);
}

/* After the last step, too, and before it is sent again. */
static bool is_to_merge(const EngineIslands *islands, int part, const TrainingPlace *place) {
    const int64_t merge = place->turns[part].merge;
    return merge && (merge <= place->step || place->step == islands->turns.n_steps ||
                     is_to_meet(islands, part, place));
}

/* That was sent first; -1: none is to be merged. */
static int next_to_merge(const EngineIslands *islands, const TrainingPlace *place) {
    int next = -1;
    for (int p = 0; p < islands->turns.n_parts; p++) {
        const bool earlier = next < 0 || place->turns[p].merge < place->turns[next].merge;
        if (is_to_merge(islands, p, place) && earlier) next = p;
    }
    return next;
}

bool engine_islands_are_due(const EngineIslands *islands, const TrainingPlace *place) {
    for (int p = 0; p < islands->turns.n_parts; p++) {
        if (is_to_merge(islands, p, place) || is_to_meet(islands, p, place)) return true;
    }
    return false;
}

/* Others that have come get weights and, where they ask for it, state, as they are now: when
 * nothing is on its way. */
static IslandsResult admit(EngineIslands *islands, TrainingPlace *place, Diag *diag) {
    const bool first = islands->engine->is_first, streams = islands->options.streams;
    const IslandsResult settled = engine_islands_settle(islands, place, false, diag);
    Outcome outcome = {.result = (int32_t)settled};
    float *own = NULL, *state = NULL;
    islands->is_waited = false;
    if (settled != ISLANDS_MET) return settled;
    if (first)
        outcome.is_waited = islands_count_waiting(islands->islands, &outcome.wants_state) > 0;
    if (!share_outcome(islands, &outcome, diag)) return ISLANDS_FAILED;
    if (!outcome.is_waited) return ISLANDS_MET;
    if (first && streams) own = allocate(islands->weights.n_values);
    if (first && outcome.wants_state) state = allocate(islands->state.n_values);
    const bool good = (!streams || gather_all(islands, &islands->weights, own, diag)) &&
                      (!outcome.wants_state || gather_all(islands, &islands->state, state, diag));
    if (first && good) {
        IslandsPlace gift = {.at_step = streams ? place->step : place->met_step,
                             .at_samples = streams ? place->samples : place->met_samples};
        memcpy(gift.turns, place->turns, sizeof gift.turns);
        islands_admit(islands->islands, &gift, own, state);
    }
    free(own);
    free(state);
    return good ? ISLANDS_MET : ISLANDS_FAILED;
}

IslandsResult engine_islands_meet(EngineIslands *islands, TrainingPlace *place, MeetingReport *out,
                                  Diag *diag) {
    const bool waits = !islands->turns.overlap || place->step == islands->turns.n_steps;
    IslandsResult result = ISLANDS_MET;
    *out = (MeetingReport){0};
    for (int p = next_to_merge(islands, place); result == ISLANDS_MET && p >= 0;
         p = next_to_merge(islands, place)) {
        result = merge_part(islands, p, place, out, diag);
    }
    for (int p = 0; result == ISLANDS_MET && p < islands->turns.n_parts; p++) {
        if (!is_to_meet(islands, p, place)) continue;
        result =
            waits ? meet_part(islands, p, place, out, diag) : send_part(islands, p, place, diag);
    }
    return result == ISLANDS_MET && islands->is_waited ? admit(islands, place, diag) : result;
}

/* --- the beginning --- */

/* A checkpoint's parts, or all as one that have met when it says. False: reported. */
static bool find_turns(const EngineIslands *islands, const char *from, TrainingPlace *place,
                       Diag *diag) {
    const int n_parts = islands->turns.n_parts, n_were = place->n_parts ? place->n_parts : 1;
    bool any = false;
    for (int p = 0; p < place->n_parts; p++) any |= place->turns[p].merge != 0;
    if (any && (n_were != n_parts || !islands->turns.overlap)) {
        diag_error(diag, (SourceLoc){from, 0},
                   "has parts that are still to be merged: go on with --outer-parts %d and an "
                   "--outer-overlap, as before",
                   n_were);
        return false;
    }
    for (int p = 0; p < n_parts && (n_were != n_parts || !place->n_parts); p++)
        place->turns[p] = (PartTurn){.met = place->met_step};
    place->n_parts = islands->options.streams ? n_parts : 0;
    return true;
}

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
        return find_turns(islands, from, place, diag) &&
               engine_load_beside(islands->beside, islands->n_beside, from, diag);
    }
    place->island = options->island;
    place->n_islands = options->n_islands;
    place->met_step = place->step;
    place->met_samples = place->samples;
    place->n_meetings = 0;
    place->n_parts = 0;
    return find_turns(islands, from, place, diag) &&
           gather_all(islands, &islands->weights, islands->last, diag);
}

IslandsResult engine_islands_start(EngineIslands *islands, const char *from, TrainingPlace *place,
                                   Diag *diag) {
    Outcome outcome = {.result = ISLANDS_FAILED};
    if (!find_last(islands, from, place, diag)) return ISLANDS_FAILED;
    outcome.place = (IslandsPlace){
        .step = place->met_step, .samples = place->met_samples, .n_meetings = place->n_meetings};
    if (islands->islands) {
        outcome.result = (int32_t)islands_start(islands->islands, &outcome.place, !from, diag);
    }
    const IslandsResult result = learn(islands, &outcome, place, diag);
    return result == ISLANDS_MET && islands->is_waited ? admit(islands, place, diag) : result;
}
