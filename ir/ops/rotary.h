/* Rotary frequencies, stretched so that a model serves longer contexts than it was trained on.
 *
 * Pair i of a head turns by base^(-2i / head) radians a position (Su et al. 2021). With `factor`
 * the frequency is divided by it: for all pairs ("linear": Chen et al. 2023, position
 * interpolation), or with `few`, `many` and `context` by how often the pair turns in `context`
 * positions, the context of the original training ("llama3": Dubey et al. 2024, as Llama 3.1 was
 * published): fewer than `few` turns: divided; more than `many`: as it is; between them the two are
 * mixed, (1 - s) f / factor + s f with s = (turns - few) / (many - few); with `ramp` s is that of
 * the logarithms, and so linear in the pair's number ("yarn": Peng et al. 2023, arXiv 2309.00071,
 * section 3.2). Or each pair has a factor of its own, by which its frequency is divided
 * ("longrope": Ding et al. 2024, arXiv 2402.13753, section 3; as Phi 3 was published), in place of
 * all that. With `scale` what has turned is multiplied by it, forward and in the gradient: scores
 * of queries and keys that do so are its square times as large.
 */
#ifndef IR_OPS_ROTARY_H
#define IR_OPS_ROTARY_H

#include "ir/graph.h"

/* Most pairs that have factors of their own: a text of 128 numbers fits a line of a plan, and 1 KiB
 * of a kernel's arguments. */
enum { ROTARY_MOST_FACTORS = 128 };

typedef struct RotaryScaling {
    double factor;             /* 1: none */
    double few, many, context; /* context 0: all pairs alike */
    bool ramp;
    int n_factors; /* 0, or one for each pair that turns */
    double factors[ROTARY_MOST_FACTORS];
    double scale; /* of what turns; 0: as 1 */
} RotaryScaling;

/* How many of the numbers along its last axis a rotary op turns, from the first on: pairs (i, i +
 * turned / 2), with the frequencies of a head that is no larger. The others stay as they are
 * (Black et al. 2022, GPT-NeoX-20B, section 2.1: a quarter of each head turns). */
int64_t rotary_turned(const Node *node, int64_t head);

/* What a rotary op turned, where the value is one's result; else the value. */
static inline Value rotary_source(Value value) {
    return value.node->op == OP_ROTARY ? value.node->inputs[0] : value;
}

RotaryScaling rotary_scaling(const Node *node);

/* The stretched frequency of a pair that would turn `frequency` radians a position. */
double rotary_stretch(const RotaryScaling *scaling, int64_t pair, double frequency);

#endif
