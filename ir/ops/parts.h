/* Parts of an axis (narrow, pad, concat, shift), an axis of another name (rename), or of two or one
 * (regroup), rows of pairs (of_pairs): which axes, and the moves that make the result.
 *
 * A move copies `count` elements along the axis, from element `from` of an operand to element `to`
 * of the result, in each of `outer` rows of n_in and n_out elements of `inner` numbers. With
 * `fills` the rest of the row becomes `fill`; without, other moves write it, or there is none.
 */
#ifndef IR_OPS_PARTS_H
#define IR_OPS_PARTS_H

#include "ir/op.h"

typedef struct PartMove {
    int64_t outer, n_in, n_out, inner; /* [outer, n_in, inner] -> [outer, n_out, inner] */
    int64_t from, to, count;
    bool fills;
    int32_t fill; /* 0 but for i32 */
} PartMove;

enum { MAX_PARTS = 8 }; /* operands of concat, at most */

/* The axis in the result; -1: there is none. */
int parts_to(const Node *node);
/* Is the axis one of those that the op works along, in an operand or in the result? */
bool parts_has_axis(const Node *node, int axis);
/* Are rows of its batch pairs? */
bool graph_has_pairs(const Graph *graph);
/* Position of the one axis of 'over' in an operand of concat; -1: none, or several. */
int parts_joined(const Node *node, const Type *type);
/* One move for each operand, for operands and a result of local shapes. Returns how many. */
int parts_moves(const Node *node, const Type *inputs, const Type *out, PartMove *moves);

#endif
