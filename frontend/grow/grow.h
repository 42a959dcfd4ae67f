/* A larger model's weights out of a trained smaller one's.
 *
 * Both models' forward graphs go in, and the small one's file; out comes the large one's file. What
 * happens to each axis of each parameter, what parameters are multiplied by and whether the large
 * model computes what the small one did all follow from the two graphs:
 *   grow_pair     values of the large graph are paired with those of the small one that they stand
 *                 for, from the outputs back
 *   grow_blocks   which small block a block is made of; which parameters are zero in those added
 *   grow_scales   an element of a paired value is a constant times the small one's: each op gives
 *                 equations between the logarithms of these constants
 *   grow_write    tensor by tensor
 */
#ifndef FRONTEND_GROW_GROW_H
#define FRONTEND_GROW_GROW_H

#include "frontend/lua/model.h"
#include "runtime/checkpoint/safetensors.h"

typedef enum GrowDepth { GROW_IDENTITY, GROW_STACK, GROW_INTERLEAVE } GrowDepth;

typedef struct GrowOptions {
    const Model *from, *into;
    const char *path, *to; /* files */
    GrowDepth depth;
    double noise; /* added to what is there more than once: of its root mean square */
    uint64_t seed;
    void (*progress)(void *user, int64_t bytes_done, int64_t bytes_all); /* may be NULL */
    void *progress_user;
} GrowOptions;

/* How an element along an axis of the large parameter is found in the small one. */
typedef enum GrowKind {
    GROW_SAME,
    GROW_CLONE,   /* element j is j mod the small size */
    GROW_EXPERTS, /* of more experts: j / times, so that copies lie side by side */
    GROW_MIXTURE, /* the small one has no such axis: each expert is a copy, or has a slice */
    GROW_SLICE,   /* a part of the small axis, by the expert's number */
    GROW_TOKENS,  /* more rows: those added are the mean of the others */
} GrowKind;

typedef struct GrowDim {
    GrowKind kind;
    int64_t from; /* the small size; 1 of GROW_MIXTURE */
} GrowDim;

typedef struct GrowParam {
    const Node *node;
    const char *name;      /* logical */
    const Node *from;      /* NULL: begins as the model's script says */
    const char *from_name; /* of the same parameter in the small file */
    GrowDim dims[MAX_RANK];
    double scale;
    bool zero;         /* of a block that is added and does nothing yet */
    int64_t side_axis; /* of a router: this dimension, in which so many neighbours are alike */
    int64_t n_alike;
} GrowParam;

enum { GROW_MOST_REASONS = 16 };

typedef struct Grown {
    GrowParam *params;
    int n_params;
    int *block_of;     /* [into->n_blocks]: the small block that each is made of */
    bool *block_added; /* [into->n_blocks]: by identity */
    int64_t n_before, n_after;
    int n_states; /* tensors left out: of optimizers */
    const char *reasons[GROW_MOST_REASONS];
    int n_reasons; /* 0: the outputs are what they were, by the rules */
    bool failed_to_write;
} Grown;

/* Finds out all of it but writes nothing. False: reported. */
bool grow_find(Arena *arena, const GrowOptions *options, Grown *out, Diag *diag);
/* Writes the file of what was found. False: reported. */
bool grow_write(Arena *arena, const GrowOptions *options, Grown *grown, Diag *diag);

#endif
