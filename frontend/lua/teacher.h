/* teacher: joins a student's forward graph and its teacher's (ir/teacher.h), so that the planner
 * divides both alike. Of the teacher's stays what its logits are made of, without dropout.
 */
#ifndef FRONTEND_LUA_TEACHER_H
#define FRONTEND_LUA_TEACHER_H

#include "frontend/lua/model.h"

/* The student's loss reads the input INPUT_TEACHER, in whose place the teacher's logits come. Sets
 * student->graph and n_blocks, and adds to the settings' text what the teacher's are. Both models'
 * seq and batch are one. False: reported. */
bool teacher_join(Arena *arena, Model *student, const Model *teacher, Diag *diag);

/* The input that the graph's loss reads of a teacher; NULL: it has none. */
const Node *teacher_find_input(const Graph *graph);

/* A model's settings as text, and in lines "teacher.KEY=VALUE" its teacher's. */
const char *teacher_settings_text(const Model *student, const Model *teacher, Arena *arena);

#endif
