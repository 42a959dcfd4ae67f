/* Masters in halves: a parameter in f32 whose copy in bf16 is the upper half of its memory.
 *
 * Where a parameter has n elements on a rank, its memory has first their upper halves, bf16 [n],
 * and then their lower ones, 16 bits [n]. Of the bits x of an f32 the upper half is x rounded to
 * bf16, to nearest, halves away from zero: (x + 0x8000) >> 16; the lower half is x's lower 16 bits.
 * So x = (upper << 16) + lower, `lower` read as a signed number, exactly. (Ties to even would not
 * do: x could be half a unit above an even upper half or below it.) A NaN's upper half is a NaN.
 *
 * All copies of parameters in bf16 are rounded in this way (OP_TO_UPPER, where a cast makes them),
 * so that a step has the same bits whether they are halves or not.
 */
#ifndef IR_MASTERS_H
#define IR_MASTERS_H

#include "ir/op.h"

/* n is a multiple of this, so that both halves lie as far aligned as buffers do. */
enum { MASTER_MULTIPLE = 128 };

/* The copy that is the upper half of the parameter, of the same block and chunk; NULL: none. */
const Node *master_upper(const Graph *graph, const Node *param);
/* By id: of an upper half its parameter, of a parameter its first upper half, else NULL; an upper
 * half without a parameter is in no sound graph. */
const Node **master_pairs(const Graph *graph, Arena *arena);

#endif
