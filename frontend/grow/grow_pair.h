/* Pairs: which value of the small graph a value of the large one stands for.
 *
 * From the outputs back, operand by operand; both graphs have the same ops there, but for what the
 * kinds below say. Anything else is an error that names both Lua lines.
 */
#ifndef FRONTEND_GROW_GROW_PAIR_H
#define FRONTEND_GROW_GROW_PAIR_H

#include "frontend/grow/grow.h"

typedef enum PairKind {
    PAIR_NONE,
    PAIR_SAME,  /* the same op of paired operands */
    PAIR_PASS,  /* its operand `operand` as it is: a new bias of zeros, a new gain of ones */
    PAIR_MIX,   /* combine: experts in place of one layer */
    PAIR_SHARE, /* add: experts and one that all tokens meet, in place of one layer */
} PairKind;

/* What the large graph reads of another block, and what the small one reads there. */
typedef struct Passed {
    Value large, small;
    const Node *reader; /* the large graph's */
} Passed;

typedef struct Growing {
    Arena *arena;
    const GrowOptions *options;
    const Graph *large, *small;
    Grown *grown;
    Diag *diag;
    Value *pairs;            /* [n_nodes MAX_OUTPUTS] of the large graph */
    PairKind *kinds;         /* [n_nodes] */
    int *operands;           /* [n_nodes], of PAIR_PASS */
    int axis_from[MAX_AXES]; /* of the large graph's axes: the small one's, or -1 */
    bool is_experts[MAX_AXES], is_routes[MAX_AXES]; /* axes of the large graph */
    int64_t n_slices;                               /* of the one layer, in experts */
    Passed *passed; /* [n_passed]: what layers that are not added read of others */
    int n_passed, passed_capacity;
} Growing;

static inline Value growing_pair(const Growing *g, Value value) {
    return g->pairs[value.node->id * MAX_OUTPUTS + value.output];
}
/* One more thing that the outputs are not what they were for. */
void growing_because(Growing *g, const char *reason);

/* Whether an attribute is of sizes, or no part of what is computed. */
bool grow_may_differ(const Node *node, AttrKey key);

/* Pairs from all outputs with logits or other numbers of texts. False: reported. */
bool grow_pair_graphs(Growing *g);

#endif
