/* A folder of PEFT's, adapter_config.json and adapter_model.safetensors, as a file of adapters that
 * --load-trained reads over the weights of its base model.
 */
#ifndef FRONTEND_HF_HF_ADAPTER_IMPORT_H
#define FRONTEND_HF_HF_ADAPTER_IMPORT_H

#include "frontend/lua/model.h"

typedef struct HfAdapterImport {
    const Model *model; /* of the base, with the adapters */
    int n_adapters;
    int n_saved;       /* of these, what is whole (modules_to_save) but for a head of classes */
    const char *saved; /* "!wte,!head": what lets them train; NULL: they are none, or many */
} HfAdapterImport;

/* Is it such a folder, rather than a model's? */
bool hf_adapter_is_folder(Arena *arena, const char *dir);

/* name: the base model's, one of the shipped ones; script: another that it is, or NULL; settings:
 * the base model's. Writes the adapters to `path`. False: reported; *out_wrong: what was given is
 * wrong, not the writing. */
bool hf_adapter_import(Arena *arena, const char *dir, const char *name, const char *script,
                       const ModelSetting *settings, int n_settings, const char *path,
                       HfAdapterImport *out, bool *out_wrong, Diag *diag);

#endif
