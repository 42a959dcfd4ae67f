/* What the parts of verify_plan share. Each part reports every defect it finds and goes on where
 * that makes sense; verify_plan.c's head lists what is proved.
 */
#ifndef PLANNER_VERIFY_VERIFY_H
#define PLANNER_VERIFY_VERIFY_H

#include "ir/op.h"
#include "planner/plan/flow.h"
#include "planner/plan/plan.h"

enum { MAX_DEFECTS = 20 };

typedef struct Verifier {
    const Plan *plan;
    Diag *diag;
    Arena *scratch; /* of this verification */
    int n_defects;
} Verifier;

/* After MAX_DEFECTS they are counted only: one broken thing can break many others. */
void verify_defect(Verifier *v, SourceLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "stage 3 (ranks 12-15)" */
const char *verify_stage_text(Verifier *v, int stage);
/* "'blocks.3.attn.wq'" or "%17 matmul"; names in blocks are those of `stage`. */
const char *verify_value_text(Verifier *v, int stage, Value value);
/* "forward(0)", "backward(1)", "weights(1)", "update" */
const char *verify_segment_text(Verifier *v, const Node *node);
/* "F0.3" */
const char *verify_task_text(Verifier *v, const Task *task);

/* Nodes run in segments: forward(c), backward(c), weights(c), update. */
enum { N_SEGMENTS = 3 * MAX_CHUNKS + 1 };
static inline int verify_segment(const Node *node) {
    return node->phase == PHASE_UPDATE ? 3 * MAX_CHUNKS
                                       : (int)node->phase * MAX_CHUNKS + node->chunk;
}

/* Graph, buffers, reads and lifetimes of the program that `stage` runs (verify_program.c). */
bool verify_program(Verifier *v, int stage);
/* What is wrong with a node that makes, moves or reads fp8, or NULL (verify_scales.c). */
const char *verify_scales(const Graph *graph, const Node *node);
/* What a node reads and makes is divided among ranks alike, and whole where it has to be
 * (verify_division.c). False: reported. Needs a sound graph. */
bool verify_division(Verifier *v, int stage, const Node *node);
/* No two values that are alive together share memory; in-place updates are legal
 * (verify_lifetimes.c). Needs a program whose graph and buffers are sound. */
void verify_lifetimes(Verifier *v, int stage);
/* Upper halves lie in their parameters, which their optimizers alone read (verify_masters.c).
 * Likewise. */
void verify_masters(Verifier *v, int stage);
/* Region layout, frames and task list of a stage (verify_stage.c); the first of these alone. */
bool verify_regions(Verifier *v, int stage);
bool verify_stage(Verifier *v, int stage);
/* Messages, collectives across stages, and that all lists come to their end
 * (verify_messages.c, verify_flow.c). Need programs and stages that are sound. */
void verify_messages(Verifier *v);
void verify_flow(Verifier *v);
/* Parameters are updated as a whole, from what is theirs (verify_update.c). Needs a sound program.
 */
void verify_update(Verifier *v, int stage);
/* Largest scores are maxima, and factors lie as their parameters do (verify_largest.c). Likewise.
 */
void verify_largest(Verifier *v, int stage);
/* Logical names are unique on a stage; tied weights stay one weight (verify_names.c). */
void verify_names(Verifier *v);

/* --- of the update (verify_update.c) --- */

/* The parameter that the optimizer node updates, all or a shard of it; NULL: none. */
const Node *verify_updated_parameter(const Node *update);
/* The first operand of an optimizer that is one number: what gradients are multiplied by. Before it
 * are operands with an element per element of the parameter. */
int verify_first_number(OpKind op);
/* The factor of gradients, as it is where no step is left out for its norm. */
Value verify_clip_of(Value factor);
/* The first node of this op, or NULL. */
const Node *verify_find_op(const Graph *graph, OpKind op);
/* Is it the number of the update? With a loss scale, of those that were not left out. */
bool verify_counts_updates(const Graph *graph, Value step);
/* Weights that are rounded to blocks (verify_rounded.c). */
void verify_rounded(Verifier *v, int stage);
/* Averages of weights, and steps that are left out for their norm (verify_average.c). */
void verify_average(Verifier *v, int stage);

#endif
