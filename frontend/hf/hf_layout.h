/* Which tensor of Hugging Face's holds which parameters of a model, and where in it.
 *
 * Made of the family's rows and the model's graph; an import reads it from left to right, an export
 * from right to left.
 */
#ifndef FRONTEND_HF_HF_LAYOUT_H
#define FRONTEND_HF_HF_LAYOUT_H

#include "frontend/hf/hf_families.h"
#include "frontend/lua/model.h"

enum { HF_MAX_DIMS = 4 };

/* A parameter, or an expert's part of one, within their tensor. Strides are in elements, one for
 * each axis of `type`. */
typedef struct HfPart {
    const char *ours; /* logical name */
    Type type, whole; /* of what is here; of the parameter */
    int64_t ours_stride[MAX_RANK], theirs_stride[MAX_RANK];
    int64_t ours_first, theirs_first; /* elements that it begins with */
} HfPart;

typedef struct HfItem {
    const char *theirs;
    int n_dims, n_parts;
    int64_t shape[HF_MAX_DIMS];
    float more;       /* what their numbers are more than ours */
    bool by_position; /* its rows are positions: a model of fewer has the first ones */
    HfPart parts[HF_MAX_PARTS];
} HfItem;

typedef struct HfLayout {
    int n_items, items_capacity;
    HfItem *items; /* a parameter's parts one after the other, from its first element on */
} HfLayout;

/* `fused`: experts as one tensor. False: reported, as when the model has a parameter that no row
 * names. */
bool hf_layout_make(Arena *arena, const Model *model, const HfFamily *family, const HfType *type,
                    bool fused, HfLayout *out, Diag *diag);

/* A row's name for a block, whose number stands for '#' (or '<', '>'). */
const char *hf_block_name(Arena *arena, const char *name, int block);

#endif
