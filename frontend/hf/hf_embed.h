/* Models that make vectors of texts, as sentence-transformers keeps them: a folder of transformers'
 * whose model has no output, with modules.json, which says what comes behind it, and a folder for
 * each of these. A script of models/ has them as its setting `embedding`.
 */
#ifndef FRONTEND_HF_HF_EMBED_H
#define FRONTEND_HF_HF_EMBED_H

#include "frontend/hf/hf_families.h"
#include "frontend/lua/model.h"

/* How the model makes vectors: mean, cls or last; NULL: it makes none. */
const char *hf_embed_pooling(const Model *model);
/* The type's architecture without an output: BertModel of BertForMaskedLM. */
const char *hf_embed_architecture(Arena *arena, const HfType *type);
/* Their names of tensors begin with the family's prefix only where there is an output. */
const char *hf_embed_tensor_name(const Model *model, const HfFamily *family, const char *theirs);

/* Is the parameter of an output over tokens, which a base has and the model needs not? */
bool hf_embed_leaves_out(const Model *model, const char *parameter);

/* Settings by which the model is the exported one: rows of tokens that hold several texts are as
 * long there as one of them may be. Returns their number, at most HF_EMBED_SETTINGS. */
enum { HF_EMBED_SETTINGS = 6 };
int hf_embed_exported(Arena *arena, const Model *model, ModelSetting *out);

/* Settings that DIR says, beside its config.json: embedding, and perhaps embed_length. *out_count
 * 0: it is no folder of sentence-transformers', or of models that make no vectors here. False: one
 * that is not supported; reported. */
bool hf_embed_read(Arena *arena, const char *dir, const HfFamily *family, ModelSetting *out,
                   int *out_count, Diag *diag);
/* Writes what is beside config.json into the folder, with the prompts of `like` (NULL: there are
 * none). False: reported. */
bool hf_embed_write(Arena *arena, const Model *model, const char *dir, const char *like,
                    Diag *diag);

#endif
