/* Adapters of low rank (nn.lora) beside a model's weights: merged into them, or as PEFT has them.
 *
 * A weight W [from, to] with an adapter does as W + scale A B does, A [from, lora], B [lora, to];
 * experts, [experts, from, to], have one each. Weights wz and wx that share an A have z_x.lora_a,
 * wz.lora_b and wx.lora_b.
 */
#ifndef FRONTEND_HF_HF_ADAPTER_H
#define FRONTEND_HF_HF_ADAPTER_H

#include "frontend/hf/hf_export.h"

/* Is it the name of an adapter, NAME.lora_a or NAME.lora_b? */
bool hf_adapter_is_name(const char *name);

/* The weight of a first half, or the first of those that share it. */
const char *hf_adapter_first_weight(Arena *arena, const char *a);

/* Is a half of an adapter one for each expert, which its first axis is? */
bool hf_adapter_of_experts(const Model *model, const Type *half);

/* The module of a weight there: its name without ".weight". */
const char *hf_adapter_module(Arena *arena, const char *theirs);
/* Is a weight there all experts' as one parameter, without a module of its own? What it is called
 * in every layer (mlp.experts.down_proj), or NULL. */
const char *hf_adapter_parameter(const char *theirs);
/* PEFT's name of an adapter's half, 'A' or 'B', by that of the weight there. both: it is one of two
 * such parameters of its layer that have adapters, which are wrapped one into the other. */
const char *hf_adapter_name(Arena *arena, const char *theirs, bool both, char half);

/* A second half, [rank, outputs] here and [outputs, rank] there, as axes and strides of both. */
typedef struct HfAdapterB {
    int rank;
    int64_t size[MAX_RANK], ours[MAX_RANK], theirs[MAX_RANK];
    int64_t first; /* of outputs there: the part's first row */
} HfAdapterB;

/* Of a weight, or an expert's part of one, with so many axes of inputs and outputs; outputs may
 * have another order there (rotary pairs), or lie among others'. */
void hf_adapter_b_strides(const HfPart *part, int64_t rank, int n_in_axes, int n_out_axes,
                          HfAdapterB *out);

/* Lists the model's, and what their products are multiplied by, from its settings. False, reported:
 * there are adapters, and no settings that say it. */
bool hf_adapter_find(HfExport *export, Diag *diag);

/* Is it the head of a model that tells classes of texts or rewards? It trains beside adapters, and
 * PEFT keeps it with them (modules_to_save). */
bool hf_adapter_is_head(const Model *model, const char *name);
/* The tensor there that a parameter alone is all of, a module's weight; NULL: there is none. */
const HfItem *hf_adapter_whole(const HfLayout *layout, const char *ours);
/* Is a parameter kept whole beside the adapters, as it was trained with them: is it such a head, or
 * in a file of what was trained alone (ENGINE_TRAINED_ALONE_KEY), and whole in a module? */
bool hf_adapter_is_saved(const HfExport *export, const char *ours);
/* PEFT's name of it, by that of the weight there. */
const char *hf_adapter_saved_name(Arena *arena, const char *theirs);
/* Of embeddings whose table the head shares, the head's name there; else NULL. */
const char *hf_adapter_tied(Arena *arena, const Model *model, const HfFamily *family,
                            const HfType *type, const HfLayout *layout, const HfItem *item);

/* Has the model a half of an adapter with this name? */
bool hf_adapter_is_known(const HfExport *export, const char *name);
/* Are both halves of the weight's adapter there, with the shapes of the model? False: reported. A
 * weight that has none is fine. */
bool hf_adapter_check(const HfExport *export, const HfPart *part, Diag *diag);
/* W + scale A B in f32, added up in f64, of the part, from its first element on; NULL where the
 * weight has no adapter. The caller frees. */
float *hf_adapter_merge(const HfExport *export, const HfPart *part);

/* Can the adapters, and a head, of an export whose tensors are all there stand alone? False:
 * reported. */
bool hf_adapter_check_alone(const HfExport *export, Diag *diag);
/* The adapters of an open export as a folder that PEFT reads: adapter_config.json and
 * adapter_model.safetensors. False: reported. */
bool hf_adapter_write(HfExport *export, const char *dir, Diag *diag);

#endif
