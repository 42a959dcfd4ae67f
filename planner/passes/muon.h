/* Muon (Jordan et al. 2024; Moonlight, arXiv 2502.16982) in the graph of the update.
 *
 * muon_find_use says what a parameter is for the model: a matrix that something is multiplied by,
 * with the axes that products sum away as its columns and the others as its rows; the table of a
 * look-up; the head, whose product is what the loss looks at; or anything else.
 *
 * muon_append_scaled takes a direction, of the parameter's type in f32, and the sum of its squares,
 * and returns it divided by its size, in the dtype of products; muon_append_steps what five steps
 * of Newton-Schulz make of that: a nearly orthogonal matrix of the same shape. All of it is named
 * axes: which ranks hold what follows from the axis rules, as it does for the model. Or it takes
 * many of one type as a stack, with an outermost axis that ranks may divide: muon_append_stack
 * makes one, muon_append_part takes a matrix out of it.
 */
#ifndef PLANNER_PASSES_MUON_H
#define PLANNER_PASSES_MUON_H

#include "planner/passes/pass.h"

typedef enum ParamUse { USE_OTHER, USE_MATRIX, USE_TABLE, USE_HEAD } ParamUse;

typedef struct MuonMatrix {
    int n_columns, n_rows; /* axes */
    int columns[MAX_RANK], rows[MAX_RANK];
    int64_t n_inputs, n_outputs; /* elements of a row, of a column */
} MuonMatrix;

/* What each parameter of a graph is for: by node id. */
typedef struct ParamUses {
    ParamUse *use;
    MuonMatrix *matrix; /* of USE_MATRIX and USE_HEAD */
} ParamUses;
ParamUses muon_find_uses(const Graph *graph, Arena *arena);

/* All return NO_VALUE where they have reported something. */
Value muon_append_scaled(PassContext *ctx, Graph *out, const Node *param, Value direction,
                         Value squares);
Value muon_append_steps(PassContext *ctx, Graph *out, const Node *param, const MuonMatrix *matrix,
                        Value x);
/* Are the two matrices alike, and of few enough axes? */
bool muon_may_stack(const Node *param, const MuonMatrix *matrix, const Node *other,
                    const MuonMatrix *of_other);
/* `count` matrices, of which those after `xs` are zero; the parameter is the first's. */
Value muon_append_stack(PassContext *ctx, Graph *out, const Node *param, const Value *xs, int n_xs,
                        int64_t count);
Value muon_append_part(PassContext *ctx, Graph *out, const Node *param, Value stack, int number);

#endif
