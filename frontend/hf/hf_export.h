/* A file of Perilune's weights as a folder that transformers reads.
 *
 * The folder appears whole, or not at all: config.json and model.safetensors, or several files of
 * at most so many bytes with model.safetensors.index.json. Like an import it takes the memory of
 * the largest tensor.
 */
#ifndef FRONTEND_HF_HF_EXPORT_H
#define FRONTEND_HF_HF_EXPORT_H

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_layout.h"
#include "runtime/checkpoint/safetensors.h"

typedef struct HfExport {
    Arena *arena;
    const Model *model;
    const HfFamily *family;
    const HfType *type;
    HfLayout layout;
    const char *path; /* of the weights */
    Safetensors *weights;
    const char *like; /* a folder of Hugging Face's, or NULL */
    json_t *config;
    DType dtype;
    size_t max_shard_bytes;
    int n_shards;   /* once written */
    size_t n_bytes; /* of all tensors */
} HfExport;

/* Finds all parameters of `model` in the open file, and what the folder will say. `like`: its
 * config.json gives what no row knows, and its tokenizer's files are copied. False: reported. The
 * weights stay the caller's to close. */
bool hf_export_open(Arena *arena, const Model *model, Safetensors *weights, const char *path,
                    const char *like, DType dtype, HfExport *out, Diag *diag);
void hf_export_close(HfExport *export);

/* Is `dir` free to be made: not there, or an empty folder? False: reported. */
bool hf_export_try(Arena *arena, const char *dir, Diag *diag);
bool hf_export_write(HfExport *export, const char *dir, Diag *diag);

#endif
