/* Weights as they will be kept in a GGUF file: in blocks of 32 numbers, each with a scale in f16
 * (runtime/cpu/ggml_blocks.h), or in f16.
 *
 * A block is 32 numbers one after the other of a row of the file. A row is what a product sums
 * over: the axes in `along`, the first of them outermost. They need not lie together in memory.
 *
 * With a mesh axis that divides one of them, ranks have whole blocks each, or it is refused: so
 * scales do not depend on the layout.
 */
#ifndef IR_OPS_ROUND_BLOCKS_H
#define IR_OPS_ROUND_BLOCKS_H

#include "ir/op.h"

enum { ROUND_BLOCK = 32 };

/* What `blocks` says. */
typedef enum RoundForm { ROUND_Q4_0, ROUND_Q8_0, ROUND_F16, N_ROUND_FORMS } RoundForm;
extern const char *const ROUND_FORM_NAMES[N_ROUND_FORMS];
/* N_ROUND_FORMS: there is none of that name. */
RoundForm round_form_find(const char *name);

/* Of a parameter, its copy or a round_blocks: does it have such a form? And is it the same? */
bool node_is_rounded(const Node *node);
bool node_rounds_alike(const Node *a, const Node *b);
/* The form of the graph's parameters: q4_0 or q8_0, f16 where all are that; NULL: none has any. */
const char *graph_rounded_form(const Graph *graph);
/* The three attributes that say so, of the parameter's: blocks, along, and dtype. */
enum { N_ROUND_ATTRS = 3 };
void round_attrs(const Node *param, DType dtype, Attr out[N_ROUND_ATTRS]);

/* Of a parameter or copy: are its attributes what they have to be? False: reported. */
bool round_check_leaf(const Node *leaf, Diag *diag);

/* Does the sharding leave whole blocks of the node's first result to each rank? */
bool round_keeps_blocks(const Node *node, const Sharding *sharding, const Mesh *mesh);

/* Dimensions of a rank's part, outermost first, those of a row and all others. */
typedef struct RoundLayout {
    int n_row, n_other;
    int64_t row_dims[MAX_RANK], row_strides[MAX_RANK];
    int64_t other_dims[MAX_RANK], other_strides[MAX_RANK];
    int64_t length, n_rows; /* numbers of a row, and rows */
} RoundLayout;
RoundLayout round_layout(const Node *node, const Type *local);
/* Where number `i`, counted through the dimensions, lies. */
int64_t round_place(int n, const int64_t *dims, const int64_t *strides, int64_t i);

#endif
