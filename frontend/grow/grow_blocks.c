#include "frontend/grow/grow_blocks.h"

#include "ir/op.h"

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

bool grow_blocks(Growing *g) {
    const int from = g->options->from->n_blocks, into = g->options->into->n_blocks;
    if (into < from) {
        diag_error(g->diag, NO_LOC,
                   "grow: the small model has %d layers and the other %d; it needs as many or more",
                   from, into);
        return false;
    }
    g->grown->block_of = ARENA_ARRAY(g->arena, int, into + 1);
    g->grown->block_added = ARENA_ARRAY(g->arena, bool, into + 1);
    for (int i = 0; i < into; i++) {
        const int spread = (int)((int64_t)i * from / into);
        const bool stack = g->options->depth == GROW_STACK;
        g->grown->block_of[i] = stack ? stacked(i, from, into) : spread;
        g->grown->block_added[i] = g->options->depth == GROW_IDENTITY && i > 0 &&
                                   spread == (int)((int64_t)(i - 1) * from / into);
    }
    if (into == from || g->options->depth == GROW_IDENTITY) return true;
    growing_because(g, g->options->depth == GROW_STACK
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

/* Is `value`, with the parameters that are found zero, a value from outside of the block, paired
 * with what those who read the block's result want? */
static bool make_identity(const Growing *g, Zeroing *z, Value value, Value wanted, int depth) {
    const Node *node = value.node;
    const int n = z->n;
    if (depth > DEEPEST) return false;
    if (node->block != z->block) return value_equal(growing_pair(g, value), wanted);
    if (node->op != OP_ADD) return false;
    for (int k = 0; k < 2; k++) {
        if (make_identity(g, z, node->inputs[k], wanted, depth + 1) &&
            zero_one(z, node, 1 - k, depth)) {
            return true;
        }
        z->n = n;
    }
    return false;
}

bool grow_identity(Growing *g, bool *zero) {
    for (int i = 0; i < g->large->n_nodes; i++) {
        const Node *reader = g->large->nodes[i];
        for (int k = 0; k < reader->n_inputs; k++) {
            const Value value = reader->inputs[k];
            const int block = value.node->block;
            if (block == NO_BLOCK || block == reader->block || !g->grown->block_added[block] ||
                !growing_pair(g, value).node) {
                continue;
            }
            Zeroing z = {.block = block};
            if (!make_identity(g, &z, value, growing_pair(g, value), 0)) {
                diag_error(g->diag, value.node->loc,
                           "a layer that is added cannot begin by passing on what it reads: its "
                           "result is not that and branches which end in a weight; --depth stack "
                           "or interleave copies layers as they are");
                return false;
            }
            for (int p = 0; p < z.n; p++) zero[z.params[p]->id] = true;
        }
    }
    return true;
}
