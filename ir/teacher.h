/* A teacher: another model's forward in the graph of the one that learns from it (the student).
 *
 * What is the teacher's has names of its own: parameters, all frozen, are TEACHER_PARAMS and the
 * name in its own model, axes TEACHER_AXES and theirs, but for those that both models share (batch,
 * seq, source, vocab). An axis is divided as its name without that says.
 *
 * The teacher's blocks come first. A student's block has so many before it, which its parameters'
 * names take off: of 4 teacher's blocks "blocks.#-4.attn.wq" of block 5 is "blocks.1.attn.wq", as
 * in a graph without a teacher, and so initial values and files are the same.
 */
#ifndef IR_TEACHER_H
#define IR_TEACHER_H

#include "ir/graph.h"

/* f32[batch, seq, vocab]: what the student's loss reads until the teacher is in the graph. */
#define INPUT_TEACHER  "teacher_logits"
#define TEACHER_PARAMS "teacher."
#define TEACHER_AXES   "teacher_"

/* A parameter's name in the teacher's own model; NULL: it is none of a teacher's. */
const char *teacher_own_name(const char *name);
/* The name by which an axis is divided: its own, or the one in the teacher's own model. */
const char *teacher_axis_name(const char *axis);

/* The name with the number of its block in place of '#' or "#-4", which takes 4 off; as it is,
 * where it has no '#'. Negative numbers, of damaged plans alone, are written as such. */
const char *name_of_block(const char *name, int block, Arena *arena);
/* How many blocks "#-4" takes off; 0: none. */
int name_blocks_before(const char *name);

#endif
