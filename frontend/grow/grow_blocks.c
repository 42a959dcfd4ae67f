#include "frontend/grow/grow_blocks.h"

#include "ir/base/hash.h"
#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 256 }; /* ops of one branch of a block, one reading the other */

/* Copies of the whole stack of `from` blocks, each cut alike where they are not whole: the first
 * copy begins with the first block and the last one ends with the last. 32 -> 48 is 0-23, 8-31
 * (Kim et al. 2023, SOLAR). */
static int stacked(int i, int from, int into) {
    int n = (into + from - 1) / from, done = 0;
    for (int copy = 0; copy < n; copy++) {
        const int length = into / n + (copy < into % n);
        if (i < done + length) {
            const int start = n > 1 ? (int)((int64_t)(from - length) * copy / (n - 1)) : 0;
            return start + i - done;
        }
        done += length;
    }
    return from - 1;
}

/* --- which blocks are alike --- */

typedef struct BlockKind {
    uint64_t reads; /* of how positions read each other */
    int n_softmax;  /* that are no attention's, nor routers' */
    bool has_experts;
} BlockKind;

enum { UNLIKE = -1, EXPERTS_COST = 1 << 12 };

static uint64_t add_number(uint64_t hash, uint64_t number) {
    return hash_number(number + 0x9e37, hash + 1);
}

static uint64_t add_attrs(uint64_t hash, const Node *node) {
    hash = add_number(hash, (uint64_t)node->op);
    for (int i = 0; i < node->n_attrs; i++) {
        const Attr *attr = &node->attrs[i];
        if (grow_may_differ(node, attr->key)) continue;
        uint64_t bits = 0;
        switch (ATTRS[attr->key].kind) {
        case ATTR_INT: bits = (uint64_t)attr->i; break;
        case ATTR_FLOAT: memcpy(&bits, &attr->f, sizeof(bits)); break;
        case ATTR_STRING: bits = hash_bytes(attr->s, strlen(attr->s), 1); break;
        default: break;
        }
        hash = add_number(add_number(hash, (uint64_t)attr->key), bits);
    }
    return hash;
}

static BlockKind *find_kinds(Arena *arena, const Graph *graph, int n_blocks) {
    BlockKind *kinds = ARENA_ARRAY(arena, BlockKind, n_blocks + 1);
    memset(kinds, 0, sizeof(*kinds) * (size_t)(n_blocks + 1));
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = graph->nodes[i];
        if (node->block == NO_BLOCK) continue;
        BlockKind *kind = &kinds[node->block];
        switch ((int)node->op) {
        case OP_COMBINE: kind->has_experts = true; break;
        case OP_LOGSUMEXP: kind->n_softmax++; break;
        case OP_ATTENTION:
        case OP_LINEAR_ATTENTION:
        case OP_CONVOLVE:
        case OP_ROTARY:
        case OP_RELATIVE_BIAS: kind->reads = add_attrs(kind->reads, node); break;
        default: break;
        }
    }
    for (int i = 0; i < n_blocks; i++) {
        if (kinds[i].has_experts) kinds[i].n_softmax = 0;
    }
    return kinds;
}

/* What it costs to make a block of another: UNLIKE where it cannot be. */
static int64_t kind_cost(BlockKind large, BlockKind small) {
    if (large.reads != small.reads || large.n_softmax != small.n_softmax) return UNLIKE;
    if (small.has_experts && !large.has_experts) return UNLIKE;
    return large.has_experts == small.has_experts ? 0 : EXPERTS_COST;
}

/* The small block near `ideal` that is most like the large one, the earlier one first; -1: none. */
static int find_like(BlockKind large, const BlockKind *small, int n, int ideal) {
    int best = -1;
    int64_t least = INT64_MAX;
    for (int k = 0; k < n; k++) {
        const int64_t cost = kind_cost(large, small[k]);
        const int64_t far = 2 * abs(k - ideal) + (k > ideal);
        if (cost == UNLIKE || cost + far >= least) continue;
        least = cost + far;
        best = k;
    }
    return best;
}

/* Places of the small blocks among the large ones, in order, the first at the first, each as near
 * as can be to an even spread: the sum of how far they are is least. cost[k][i] is of the small
 * blocks from k on with k at i. False: there are none. */
static bool place_blocks(Growing *g, const BlockKind *large, const BlockKind *small, int *places) {
    const int from = g->options->from->n_blocks, into = g->options->into->n_blocks;
    const int64_t never = INT64_MAX / 2;
    int64_t *cost = ARENA_ARRAY(g->arena, int64_t, (size_t)from * (size_t)into);
    for (int k = from - 1; k >= 0; k--) {
        int64_t *row = cost + (size_t)k * (size_t)into;
        int64_t behind = k == from - 1 ? 0 : never; /* least of the next one's further on */
        for (int i = into - 1; i >= 0; i--) {
            const int64_t own = kind_cost(large[i], small[k]);
            const int ideal = (int)(((int64_t)k * into + from - 1) / from);
            row[i] = own == UNLIKE || behind >= never ? never : own + abs(i - ideal) + behind;
            if (k < from - 1 && row[into + i] < behind) behind = row[into + i];
        }
    }
    for (int k = 0, i = 0; k < from; k++, i++) {
        const int64_t *row = cost + (size_t)k * (size_t)into;
        int best = i;
        for (int j = i; j < (k == 0 ? 1 : into); j++) {
            if (row[j] < row[best]) best = j;
        }
        if (best >= into || row[best] >= never) return false;
        places[k] = i = best;
    }
    return true;
}

static bool refuse_layers(const Growing *g, int layer) {
    diag_error(g->diag, NO_LOC,
               "grow: layer %d has no like in the small model, in its place: layers are alike that "
               "attend alike, turn positions alike and have experts or not; settings that are not "
               "of sizes have to be the small one's",
               layer);
    return false;
}

bool grow_blocks(Growing *g) {
    const int from = g->options->from->n_blocks, into = g->options->into->n_blocks;
    const GrowDepth depth = g->options->depth;
    if (into < from) {
        diag_error(g->diag, NO_LOC,
                   "grow: the small model has %d layers and the other %d; it needs as many or more",
                   from, into);
        return false;
    }
    const BlockKind *large = find_kinds(g->arena, g->large, into),
                    *small = find_kinds(g->arena, g->small, from);
    int *places = ARENA_ARRAY(g->arena, int, from + 1), next = 0;
    g->grown->block_of = ARENA_ARRAY(g->arena, int, into + 1);
    g->grown->block_added = ARENA_ARRAY(g->arena, bool, into + 1);
    const bool keeps = depth == GROW_IDENTITY || into == from;
    if (keeps && !place_blocks(g, large, small, places)) return refuse_layers(g, 0);
    for (int i = 0; i < into; i++) {
        const bool is_placed = keeps && next < from && places[next] == i;
        const int ideal = keeps                 ? next - 1
                          : depth == GROW_STACK ? stacked(i, from, into)
                                                : (int)((int64_t)i * from / into);
        g->grown->block_of[i] = is_placed ? next++ : find_like(large[i], small, from, ideal);
        g->grown->block_added[i] = keeps && !is_placed;
        if (g->grown->block_of[i] < 0) return refuse_layers(g, i);
    }
    if (keeps) return true;
    growing_because(g, depth == GROW_STACK
                           ? "layers that follow others than they did (--depth stack)"
                           : "layers that follow others than they did (--depth interleave)");
    return true;
}

/* --- blocks that pass on what they read --- */

typedef struct Zeroing {
    int block;
    const Node *params[32];
    int n;
} Zeroing;

static bool make_zero(Zeroing *z, Value value, int depth);

static bool zero_one(Zeroing *z, const Node *node, int input, int depth) {
    return input < node->n_inputs && make_zero(z, node->inputs[input], depth + 1);
}

static bool make_zero(Zeroing *z, Value value, int depth) {
    const Node *node = value.node;
    const int n = z->n;
    if (depth > DEEPEST || node->block != z->block) return false;
    switch ((int)node->op) {
    case OP_PARAM:
        if (z->n == (int)(sizeof(z->params) / sizeof(z->params[0]))) return false;
        z->params[z->n++] = node;
        return true;
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_MATMUL:
        /* A sum is zero where both are; of a product the weight, which comes last, will do. */
        if (node->op == OP_ADD || node->op == OP_SUB) {
            if (zero_one(z, node, 0, depth) && zero_one(z, node, 1, depth)) return true;
        } else if (zero_one(z, node, 1, depth) || (z->n = n, zero_one(z, node, 0, depth))) {
            return true;
        }
        break;
    case OP_RMSNORM: /* its gain, as its gradient would be huge where it read zeros */
        if (zero_one(z, node, 1, depth) || (z->n = n, zero_one(z, node, 0, depth))) return true;
        break;
    case OP_LAYERNORM:
        if (zero_one(z, node, 1, depth) && zero_one(z, node, 2, depth)) return true;
        break;
    case OP_SCALE:
    case OP_NEG:
    case OP_DROPOUT:
    case OP_RENAME:
    case OP_TRANSPOSE:
    case OP_COMBINE:
    case OP_TO_F32:
    case OP_TO_BF16:
    case OP_TO_F16:
        if (zero_one(z, node, 0, depth)) return true;
        break;
    default: break;
    }
    z->n = n;
    return false;
}

/* Is `value`, with the parameters that are found zero, a value from outside of the block? *out is
 * that value. */
static bool make_identity(Zeroing *z, Value value, int depth, Value *out) {
    const Node *node = value.node;
    const int n = z->n;
    if (depth > DEEPEST) return false;
    if (node->block != z->block) {
        *out = value;
        return true;
    }
    if (node->op != OP_ADD) return false;
    for (int k = 0; k < 2; k++) {
        if (make_identity(z, node->inputs[k], depth + 1, out) && zero_one(z, node, 1 - k, depth)) {
            return true;
        }
        z->n = n;
    }
    return false;
}

/* Layers that were there read what they did: through those that are added. */
static bool check_passed(const Growing *g, const Passed *passed, bool *zero) {
    Value value = passed->large;
    while (value.node->block != NO_BLOCK && g->grown->block_added[value.node->block]) {
        Zeroing z = {.block = value.node->block};
        if (!make_identity(&z, value, 0, &value)) {
            diag_error(g->diag, passed->large.node->loc,
                       "a layer that is added cannot begin by passing on what it reads: its "
                       "result is not that and branches which end in a weight; --depth stack "
                       "or interleave copies layers as they are");
            return false;
        }
        for (int p = 0; p < z.n; p++) zero[z.params[p]->id] = true;
    }
    if (value_equal(growing_pair(g, value), passed->small)) return true;
    diag_error(g->diag, passed->reader->loc,
               "%s reads another layer's result than in the small model; --depth stack or "
               "interleave do not keep that",
               OPS[passed->reader->op].name);
    return false;
}

bool grow_identity(Growing *g, bool *zero) {
    const bool keeps = g->options->depth == GROW_IDENTITY ||
                       g->options->into->n_blocks == g->options->from->n_blocks;
    for (int i = 0; keeps && i < g->n_passed; i++) {
        if (!check_passed(g, &g->passed[i], zero)) return false;
    }
    return true;
}
