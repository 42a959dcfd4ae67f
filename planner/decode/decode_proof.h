/* The proof that every position's logits depend on earlier positions through attention, states and
 * images alone, node by node, and what it found: decode_graph.c builds by it. */
#ifndef PLANNER_DECODE_DECODE_PROOF_H
#define PLANNER_DECODE_DECODE_PROOF_H

#include "planner/decode/decode.h"

/* By node: is it needed for the logits, does it depend on a position, does a key or value of some
 * attention depend on it? */
typedef struct DecodeFacts {
    const Graph *graph;
    int batch, seq; /* axes */
    int64_t vocab;  /* as many logits as whoever reads them has room for */
    const Node *logits;
    bool *needed, *moves, *feeds;
    bool *reads_second;    /* is more than its first result read? */
    const Node *documents; /* NULL: there are none */
    /* Of a model that sees images: by node, is it made of pixels alone? What counts placeholders,
     * and the product that puts vectors in their places. */
    bool *looks, *sees; /* sees: are the vectors made of it? */
    const Node *occurrence, *placed;
} DecodeFacts;

/* False: an obstacle. */
bool decode_find_facts(const DecodeRequest *request, Arena *arena, DecodeFacts *out_facts,
                       DecodeObstacle *out);
/* Sets the obstacle, if it is the first. */
void decode_refuse(DecodeObstacle *out, const Node *node, const char *what, Arena *arena);
/* Has one of its results the axis? */
bool decode_has_axis(const Node *node, int axis);
/* Does it go through all positions, each of which changes what the next one finds? */
bool decode_carries_state(const Node *node);

#endif
