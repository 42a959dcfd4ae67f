/* Path: the way of a micro-batch through the chunks of all stages.
 *
 *   line   one chunk a stage            0 1 2 3
 *   loop   chunk 0 of every stage,      0 1 2 3    4 5 6 7        stage 0 has 0 and 4
 *          then chunk 1, ...
 *   v      chunk 0 down the stages,     0 1 2 3               stage 0 has 0 and 7, the ends of the
 *          chunk 1 back up (Qi et       7 6 5 4               model, and stage 3 the turn, 3 and 4
 *          al. 2024, arXiv 2405.15362)
 *
 * The numbers are global chunks: places on the way. Activations go from global chunk g to g + 1,
 * gradients back. Where one stage holds both, as it does at the turn of a V, nothing is sent: the
 * later chunk reads what the earlier one keeps, and leaves its gradient there.
 */
#ifndef PLANNER_PLAN_PATH_H
#define PLANNER_PLAN_PATH_H

#include <stdbool.h>

typedef enum PathKind { PATH_LINE, PATH_LOOP, PATH_V, N_PATH_KINDS } PathKind;
const char *path_name(PathKind kind); /* line, loop, v */

typedef struct Path {
    PathKind kind;
    int p; /* stages */
} Path;

/* Can a stage have so many chunks? */
bool path_allows(PathKind kind, int n_chunks);
/* Chunks 1, 3, ... of a V. */
bool path_goes_up(Path path, int chunk);
/* A stage's chunk on the way, and back. */
int path_global(Path path, int stage, int chunk);
int path_stage(Path path, int global);
int path_chunk(Path path, int global);
/* Who has the global chunk after that of the stage's chunk, and the one before: the stage itself at
 * a turn, and, of a V, where the way ends. */
int path_next(Path path, int stage, int chunk);
int path_previous(Path path, int stage, int chunk);
/* Are global chunks `global` and the one after it on one stage? */
bool path_turns(Path path, int global);
/* The border between stages that a micro-batch crosses after the global chunk: of stages s and
 * s + 1, number s, whichever way; p - 1 from the last stage back to stage 0; -1 at a turn. */
int path_border(Path path, int global);
/* Does the stage's chunk send its output, or backward its gradient, to stage `to`? */
bool path_sends(Path path, int stage, int chunk, bool backward, int to);
/* Of n_chunks chunks a stage: is another stage's chunk before that of the stage, or after it? */
bool path_has_border(Path path, int n_chunks, int stage, int chunk, bool before);
/* Of all chunks of the stage, the borders before and after them. */
int path_count_borders(Path path, int n_chunks, int stage);
/* How often a micro-batch crosses that border on its way forward, and again on its way back. */
int path_count_crossings(Path path, int n_chunks, int border);
/* Are both ends of the way on stage 0? */
bool path_ends_meet(Path path);

#endif
