/* Do the ranks that hold the same numbers hold the same bits?
 *
 * Without ZeRO each rank of d has all of its stage's weights and states; over t, whatever is not
 * divided; tied weights are on two stages. Each rank comes to them by itself, so a bit that turned
 * over in one rank's memory, or a processor that adds wrongly, stays: that rank goes on with
 * weights of its own, and no loss says so.
 *
 * Each rank makes one number of all that it shares with the same others, and rank 0 compares. Only
 * where some differ do those ranks tell them leaf by leaf.
 */
#include "runtime/engine_internal.h"

#include "ir/base/hash.h"
#include "runtime/launch/control.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_SHARES = 128,     /* of one rank: a way of dividing each, and tied leaves */
    PIECE_BYTES = 8 << 20, /* looked at together */
    LEAVES_AT_ONCE = 1024  /* whose numbers a rank tells in one message */
};

/* What a rank holds in common with others: `key` is the same on those alone, `hash` of its bits. */
typedef struct Share {
    uint64_t key, hash;
} Share;

/* --- one rank's --- */

/* Is something of this name on another stage, too? Only what belongs to no block can be. */
static bool is_tied(const RankContext *rank, const Node *node, const char *name, Arena *arena) {
    const Plan *plan = rank->plan;
    for (int s = 0; s < plan->n_stages && node->block == NO_BLOCK; s++) {
        if (s == rank->stage_number) continue;
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *other = graph->nodes[n];
            if (engine_is_lasting(other) && other->block == NO_BLOCK &&
                strcmp(node_logical_name(other, 0, arena), name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* 0: no other rank holds it. */
static uint64_t leaf_key(const RankContext *rank, const Node *node, Arena *arena) {
    const Mesh *mesh = &rank->plan->mesh;
    const char *name = engine_logical_name(rank, node, arena);
    const bool tied = is_tied(rank, node, name, arena);
    /* Which of what there is, and the rank's place on each axis that divides it. */
    uint64_t place[1 + N_MESH_AXES] = {tied ? hash_bytes(name, strlen(name), 1)
                                            : (uint64_t)rank->stage_number};
    const unsigned divided = engine_divided_axes(mesh, node_value((Node *)node, 0));
    bool shared = tied;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (axis == MESH_P) continue;
        const bool own = divided >> axis & 1;
        shared |= !own && mesh->size[axis] > 1;
        place[1 + axis] = own ? (uint64_t)rank->coord.at[axis] + 1 : 0;
    }
    return shared ? hash_bytes(place, sizeof(place), 1) | 1 : 0;
}

/* Behind `hash`, that of the leaves before. */
static uint64_t leaf_hash(Engine *engine, const RankContext *rank, const Node *node,
                          uint64_t hash) {
    const unsigned char *at = executor_address(rank, node_value((Node *)node, 0), 0);
    int64_t left = type_local_bytes(&node->types[0], &node->shardings[0], &engine->plan->mesh);
    while (left > 0) {
        const size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        hash = hash_bytes(engine->backend->view(engine, at, bytes), bytes, hash);
        at += bytes;
        left -= (int64_t)bytes;
    }
    return hash;
}

/* Of a rank that is here, in the order of its first leaves; returns how many. */
static int sum_up(Engine *engine, const RankContext *rank, Share out[MOST_SHARES]) {
    Arena *arena = arena_create();
    const Graph *graph = rank->program->graph;
    int count = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const uint64_t key = engine_is_lasting(node) ? leaf_key(rank, node, arena) : 0;
        if (!key) continue;
        int i = 0;
        while (i < count && out[i].key != key) i++;
        if (i == MOST_SHARES) BUG("more than %d ways of dividing weights", MOST_SHARES);
        if (i == count) out[count++] = (Share){.key = key};
        out[i].hash = leaf_hash(engine, rank, node, out[i].hash);
    }
    arena_destroy(arena);
    return count;
}

/* --- leaf by leaf --- */

typedef struct Leaves {
    const Node **items;
    int count, capacity;
} Leaves;

/* Those of a rank, be it here or not, that have this key. */
static Leaves list_leaves(const RankContext *rank, uint64_t key, Arena *arena) {
    Leaves leaves = {0};
    const Graph *graph = rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!engine_is_lasting(node) || leaf_key(rank, node, arena) != key) continue;
        ARENA_PUSH(arena, leaves.items, leaves.count, leaves.capacity, node);
    }
    return leaves;
}

/* --- all ranks' on rank 0 --- */

/* Numbers of ranks, so many bytes of each at most. */
typedef struct Gathered {
    unsigned char *slots; /* [n_ranks][slot_bytes] */
    size_t *bytes;        /* [n_ranks]: of each */
    size_t slot_bytes;
} Gathered;

static Gathered gathered_create(const Engine *engine, size_t slot_bytes, Arena *arena) {
    const size_t n_ranks = (size_t)engine->n_ranks;
    return (Gathered){ARENA_ARRAY(arena, unsigned char, n_ranks *slot_bytes),
                      ARENA_ARRAY(arena, size_t, n_ranks), slot_bytes};
}

static void *slot_of(const Gathered *all, int rank) {
    return all->slots + (size_t)rank * all->slot_bytes;
}

/* Of one process all slots are filled already. False: the job failed. */
static bool gather(const Engine *engine, Gathered *all, Arena *arena) {
    for (int r = 0; r < engine->n_ranks && engine->control; r++) {
        if (!engine_is_local(&engine->ranks[r])) continue;
        const size_t n_bytes = all->bytes[r];
        void *own = arena_alloc(arena, all->slot_bytes);
        memcpy(own, slot_of(all, r), n_bytes);
        return control_gather(engine->control, own, n_bytes, all->slot_bytes, all->slots,
                              all->bytes);
    }
    return true;
}

static bool tell_all(const Engine *engine, void *bytes, size_t n_bytes) {
    return !engine->control || control_broadcast(engine->control, 0, bytes, n_bytes);
}

typedef struct Holder {
    uint64_t key, hash;
    int rank;
} Holder;

static int compare_holders(const void *a, const void *b) {
    const Holder *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The key of which holders have different bits; 0: there is none. */
static uint64_t find_differing(const Engine *engine, const Gathered *all, Arena *arena) {
    size_t total = 0, count = 0;
    for (int r = 0; r < engine->n_ranks; r++) total += all->bytes[r] / sizeof(Share);
    Holder *holders = ARENA_ARRAY(arena, Holder, total + 1);
    for (int r = 0; r < engine->n_ranks; r++) {
        const Share *shares = slot_of(all, r);
        for (size_t i = 0; i < all->bytes[r] / sizeof(Share); i++) {
            holders[count++] = (Holder){shares[i].key, shares[i].hash, r};
        }
    }
    qsort(holders, count, sizeof(*holders), compare_holders);
    for (size_t i = 1; i < count; i++) {
        if (holders[i].key == holders[i - 1].key && holders[i].hash != holders[i - 1].hash) {
            return holders[i].key;
        }
    }
    return 0;
}

/* What rank 0 says of leaves first, first + 1, ... */
typedef struct Verdict {
    enum { NONE_LEFT, ALL_ALIKE, DIFFERS } state;
    int rank, leaf; /* DIFFERS: one that holds it, and which of its leaves */
    char text[256];
} Verdict;

/* "rank 5 (gpu-a2)", "ranks 1, 9, 13" */
static void put_holders(const Engine *engine, StrBuf *out, const bool *flags) {
    int count = 0, last = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (flags[r]) last = r, count++;
    }
    if (count == 1 && engine->control) {
        strbuf_printf(out, "%s", control_show_rank(engine->control, last).text);
        return;
    }
    strbuf_printf(out, count == 1 ? "rank " : "ranks ");
    control_put_ranks(out, flags, engine->n_ranks);
}

/* What most hold is taken to be right. */
static void judge(const Engine *engine, const Gathered *all, int leaf, Verdict *out, Arena *arena) {
    const size_t at = (size_t)leaf * sizeof(uint64_t);
    const int n_ranks = engine->n_ranks;
    bool *most = ARENA_ARRAY(arena, bool, n_ranks), *others = ARENA_ARRAY(arena, bool, n_ranks);
    uint64_t common = 0, hash;
    int n_common = 0, n_holders = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (all->bytes[r] <= at) continue;
        int count = 0;
        n_holders++;
        for (int other = 0; other < n_ranks; other++) {
            count += all->bytes[other] > at &&
                     memcmp((char *)slot_of(all, r) + at, (char *)slot_of(all, other) + at,
                            sizeof(hash)) == 0;
        }
        if (count <= n_common) continue;
        n_common = count;
        memcpy(&common, (char *)slot_of(all, r) + at, sizeof(common));
    }
    if (n_common == n_holders) return;
    for (int r = 0; r < n_ranks; r++) {
        if (all->bytes[r] <= at) continue;
        memcpy(&hash, (char *)slot_of(all, r) + at, sizeof(hash));
        *(hash == common ? &most[r] : &others[r]) = true;
        out->rank = r;
    }
    StrBuf text = strbuf_create();
    put_holders(engine, &text, others);
    strbuf_printf(&text, " and ");
    put_holders(engine, &text, most);
    if (2 * n_common > n_holders) strbuf_printf(&text, ", who are the most,");
    strbuf_printf(&text, " hold different numbers");
    snprintf(out->text, sizeof(out->text), "%s", text.text);
    strbuf_destroy(&text);
    out->state = DIFFERS;
}

/* Leaves `first` and on, of those with the key. False: the job failed. */
static bool look(Engine *engine, uint64_t key, int first, Verdict *out, Arena *arena) {
    Gathered all = gathered_create(engine, LEAVES_AT_ONCE * sizeof(uint64_t), arena);
    *out = (Verdict){.state = NONE_LEFT};
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        if (!engine_is_local(rank)) continue;
        const Leaves leaves = list_leaves(rank, key, arena);
        uint64_t *hashes = slot_of(&all, r);
        for (int i = 0; i < LEAVES_AT_ONCE && first + i < leaves.count; i++) {
            hashes[i] = leaf_hash(engine, rank, leaves.items[first + i], 0);
            all.bytes[r] += sizeof(uint64_t);
        }
    }
    if (!gather(engine, &all, arena)) return false;
    for (int r = 0; r < engine->n_ranks && engine->is_first; r++) {
        if (all.bytes[r]) out->state = ALL_ALIKE;
    }
    for (int i = 0; i < LEAVES_AT_ONCE && out->state == ALL_ALIKE; i++) {
        out->leaf = first + i;
        judge(engine, &all, i, out, arena);
    }
    return tell_all(engine, out, sizeof(*out));
}

/* Reports which leaf it is and who holds what. */
static void report(Engine *engine, uint64_t key, int64_t step, Diag *diag) {
    Arena *arena = arena_create();
    Verdict verdict = {.state = ALL_ALIKE};
    for (int first = 0; verdict.state == ALL_ALIKE; first += LEAVES_AT_ONCE) {
        if (!look(engine, key, first, &verdict, arena)) {
            engine_job_failed(engine, diag);
            arena_destroy(arena);
            return;
        }
    }
    if (verdict.state == NONE_LEFT) { /* numbers that are others each time they are read */
        diag_error(diag, NO_LOC,
                   "step %lld: ranks held different numbers of the same weights, and do not now",
                   (long long)step);
    } else {
        const RankContext *rank = &engine->ranks[verdict.rank];
        const Node *node = list_leaves(rank, key, arena).items[verdict.leaf];
        diag_error(diag, node->loc, "step %lld: %s of '%s'", (long long)step, verdict.text,
                   engine_logical_name(rank, node, arena));
    }
    diag_note(diag, NO_LOC,
              "a defect of a device or its memory, or of this program; go on from a checkpoint "
              "before it, without that device");
    arena_destroy(arena);
}

bool engine_check_copies(Engine *engine, int64_t step, Diag *diag) {
    Arena *arena = arena_create();
    Gathered all = gathered_create(engine, MOST_SHARES * sizeof(Share), arena);
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!engine_is_local(&engine->ranks[r])) continue;
        all.bytes[r] = (size_t)sum_up(engine, &engine->ranks[r], slot_of(&all, r)) * sizeof(Share);
    }
    uint64_t key = 0;
    bool good = !engine_copy_failed(engine, diag);
    if (good) {
        good = gather(engine, &all, arena);
        if (good && engine->is_first) key = find_differing(engine, &all, arena);
        good = good && tell_all(engine, &key, sizeof(key));
        if (!good) engine_job_failed(engine, diag);
    }
    if (key) report(engine, key, step, diag);
    arena_destroy(arena);
    return good && !key;
}
