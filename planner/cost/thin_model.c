#include "planner/cost/thin_model.h"

#include "ir/op.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Block {
    int n_nodes, capacity;
    const Node **nodes; /* in order */
    int kind;
    int n_exports, export_capacity;
    Value *exports;      /* what others read of it, in order */
    bool feeds_learning; /* others that get gradients: they keep what they read */
} Block;

typedef struct Thinner {
    const Graph *in;
    Block *blocks; /* [n_blocks] */
    int n_blocks, n_kinds;
    int *position;      /* by node id: place within its block */
    const bool *learns; /* by node id: graph_find_learning; NULL: nothing is frozen */
} Thinner;

/* Which random numbers does not matter. */
static bool attr_alike(const Attr *a, const Attr *b) {
    return attr_equal(a, b) || (a->key == ATTR_key && b->key == ATTR_key);
}

/* The same place within their blocks, or the same value before them, and either both need a
 * gradient or none does: the backward ends where nothing below trains. What the first block reads
 * comes from no block, what the next reads from the first: its type has to do. */
static bool input_alike(const Thinner *t, const Node *a, const Node *b, int i) {
    Value x = a->inputs[i], y = b->inputs[i];
    if (x.output != y.output || !type_equal(value_type(x), value_type(y))) return false;
    if (t->learns && t->learns[x.node->id] != t->learns[y.node->id]) return false;
    bool own = x.node->block == a->block, loose = x.node->block == NO_BLOCK;
    if (own != (y.node->block == b->block)) return false;
    if (!own && loose != (y.node->block == NO_BLOCK)) return true;
    return loose ? x.node == y.node : t->position[x.node->id] == t->position[y.node->id];
}

static bool node_alike(const Thinner *t, const Node *a, const Node *b) {
    if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs ||
        a->n_attrs != b->n_attrs) {
        return false;
    }
    for (int i = 0; i < a->n_attrs; i++) {
        if (!attr_alike(&a->attrs[i], &b->attrs[i])) return false;
    }
    for (int o = 0; o < a->n_outputs; o++) {
        if (!type_equal(&a->types[o], &b->types[o])) return false;
    }
    for (int i = 0; i < a->n_inputs; i++) {
        if (!input_alike(t, a, b, i)) return false;
    }
    return true;
}

/* Do others read the same of both? */
static bool same_exports(const Thinner *t, const Block *a, const Block *b) {
    if (a->n_exports != b->n_exports) return false;
    for (int i = 0; i < a->n_exports; i++) {
        Value x = a->exports[i], y = b->exports[i];
        if (x.output != y.output || t->position[x.node->id] != t->position[y.node->id]) {
            return false;
        }
    }
    return true;
}

static bool block_alike(const Thinner *t, const Block *a, const Block *b) {
    if (a->n_nodes != b->n_nodes || !same_exports(t, a, b)) return false;
    if (a->feeds_learning != b->feeds_learning) return false;
    for (int i = 0; i < a->n_nodes; i++) {
        if (!node_alike(t, a->nodes[i], b->nodes[i])) return false;
    }
    return true;
}

/* *first: of each kind, its first block. */
static void find_kinds(Thinner *t, int *first) {
    for (int b = 0; b < t->n_blocks; b++) {
        Block *block = &t->blocks[b];
        block->kind = -1;
        for (int k = 0; k < t->n_kinds && block->kind < 0; k++) {
            if (block_alike(t, &t->blocks[first[k]], block)) block->kind = k;
        }
        if (block->kind >= 0) continue;
        first[t->n_kinds] = b;
        block->kind = t->n_kinds++;
    }
}

static void find_blocks(Thinner *t, Arena *work) {
    const Graph *in = t->in;
    t->blocks = ARENA_ARRAY(work, Block, t->n_blocks + 1);
    t->position = ARENA_ARRAY(work, int, in->n_nodes + 1);
    bool *exported = ARENA_ARRAY(work, bool, (in->n_nodes + 1) * MAX_OUTPUTS);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            Value from = node->inputs[i];
            bool leaves = from.node->block != node->block;
            exported[from.node->id * MAX_OUTPUTS + from.output] |= leaves;
            if (!leaves || from.node->block == NO_BLOCK || !t->learns) continue;
            t->blocks[from.node->block].feeds_learning |= t->learns[n];
        }
        if (node->block == NO_BLOCK) continue;
        if (node->block >= t->n_blocks) BUG("block %d of %d", node->block, t->n_blocks);
        Block *block = &t->blocks[node->block];
        t->position[n] = block->n_nodes;
        ARENA_PUSH(work, block->nodes, block->n_nodes, block->capacity, node);
    }
    for (int n = 0; n < in->n_nodes; n++) {
        Node *node = in->nodes[n];
        for (int o = 0; node->block != NO_BLOCK && o < node->n_outputs; o++) {
            Block *block = &t->blocks[node->block];
            if (!exported[n * MAX_OUTPUTS + o]) continue;
            ARENA_PUSH(work, block->exports, block->n_exports, block->export_capacity,
                       node_value(node, o));
        }
    }
}

/* Do others read values of the same types of both, so that one can stand for the other in the
 * stream of blocks? */
static bool exports_alike(const Block *a, const Block *b) {
    if (a->n_exports != b->n_exports) return false;
    for (int i = 0; i < a->n_exports; i++) {
        if (!type_equal(value_type(a->exports[i]), value_type(b->exports[i]))) return false;
    }
    return true;
}

/* What the dropped block gives comes from the last kept one, so that every kept one is read; or,
 * where that gives something else, from the kept one of its kind. */
static void stand_in(ValueMap *map, const Block *dropped, const Block *last, const Block *alike) {
    const Block *from = last && exports_alike(dropped, last) ? last : alike;
    for (int i = 0; i < dropped->n_exports; i++) {
        *value_map_at(map, dropped->exports[i]) = *value_map_at(map, from->exports[i]);
    }
}

/* number: by block, in the copy; -1: dropped. */
static bool copy_kept(const Thinner *t, const int *first, const int *number, Graph *out,
                      Arena *work, Diag *diag) {
    ValueMap map = value_map_create(t->in, work);
    const Block *last = NULL; /* the last kept one that is complete */
    for (int n = 0; n < t->in->n_nodes; n++) {
        const Node *node = t->in->nodes[n];
        const Block *block = node->block == NO_BLOCK ? NULL : &t->blocks[node->block];
        bool ends = block && block->nodes[block->n_nodes - 1] == node;
        if (block && number[node->block] < 0) {
            if (ends) stand_in(&map, block, last, &t->blocks[first[block->kind]]);
            continue;
        }
        Node *copy = value_map_copy(&map, node, out, diag);
        if (!copy) return false;
        if (block) copy->block = number[node->block];
        if (ends) last = block;
    }
    return true;
}

/* number: by block, in the chain; -1: dropped. Returns how many stay. */
static int number_chain(const Thinner *t, int run, int *number, Arena *work) {
    bool *seen = ARENA_ARRAY(work, bool, t->n_kinds * t->n_kinds + 1);
    int *kept = ARENA_ARRAY(work, int, t->n_blocks + 1);
    int n_kept = 0, n_needed = 1, n_run = 0;
    for (int b = 0; b < t->n_blocks; b++) {
        int kind = t->blocks[b].kind, before = b > 0 ? t->blocks[b - 1].kind : -1;
        n_run = kind == before ? n_run + 1 : 1;
        number[b] = -1;
        if (n_run > run) continue;
        kept[n_kept++] = b;
        bool *pair = b > 0 ? &seen[before * t->n_kinds + kind] : NULL;
        if (pair && !*pair) n_needed = n_kept;
        if (pair) *pair = true;
    }
    n_needed += run - 2;
    if (n_needed < n_kept) n_kept = n_needed;
    for (int i = 0; i < n_kept; i++) number[kept[i]] = i;
    return n_kept;
}

/* run: of a chain; 0: one of each kind. */
static ThinModel *make_thin(Arena *arena, const Graph *forward, int n_blocks, int run, Diag *diag) {
    Arena *work = arena_create();
    Thinner t = {.in = forward, .n_blocks = n_blocks};
    if (graph_has_frozen(forward)) t.learns = graph_find_learning(forward, work);
    int *first = ARENA_ARRAY(work, int, n_blocks + 1);
    int *number = ARENA_ARRAY(work, int, n_blocks + 1);
    find_blocks(&t, work);
    find_kinds(&t, first);
    ThinModel *thin = ARENA_NEW(arena, ThinModel);
    thin->n_kept = thin->n_kinds = t.n_kinds;
    for (int b = 0; b < n_blocks; b++) {
        int kind = t.blocks[b].kind;
        number[b] = first[kind] == b ? kind : -1;
    }
    if (run > 0) thin->n_kept = number_chain(&t, run, number, work);
    thin->kind_of_block = ARENA_ARRAY(arena, int, n_blocks + 1);
    thin->kind_of_kept = ARENA_ARRAY(arena, int, thin->n_kept + 1);
    for (int b = 0; b < n_blocks; b++) {
        thin->kind_of_block[b] = t.blocks[b].kind;
        if (number[b] >= 0) thin->kind_of_kept[number[b]] = t.blocks[b].kind;
    }
    thin->graph = graph_create_like(forward, arena);
    bool fine = copy_kept(&t, first, number, thin->graph, work, diag);
    arena_destroy(work);
    return fine ? thin : NULL;
}

ThinModel *thin_model(Arena *arena, const Graph *forward, int n_blocks, Diag *diag) {
    return make_thin(arena, forward, n_blocks, 0, diag);
}

ThinModel *thin_chain(Arena *arena, const Graph *forward, int n_blocks, int run, Diag *diag) {
    return make_thin(arena, forward, n_blocks, run, diag);
}
