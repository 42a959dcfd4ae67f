/* Adapters of low rank (nn.lora) beside a model's weights: merged into them, or as PEFT has them.
 *
 * A weight W [from, to] with an adapter does as W + scale A B does, A [from, lora], B [lora, to];
 * experts, [experts, from, to], have one each.
 */
#ifndef FRONTEND_HF_HF_ADAPTER_H
#define FRONTEND_HF_HF_ADAPTER_H

#include "frontend/hf/hf_export.h"

/* Is it the name of an adapter, NAME.lora_a or NAME.lora_b? */
bool hf_adapter_is_name(const char *name);

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
/* PEFT's name of it, by that of the weight there. */
const char *hf_adapter_head_name(Arena *arena, const char *theirs);

/* Has the model an adapter beside this weight? */
bool hf_adapter_is_of(const HfExport *export, const char *weight);
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
