/* A file of Perilune's weights as a folder that transformers reads.
 *
 * The folder appears whole, or not at all: config.json and model.safetensors, or several files of
 * at most so many bytes with model.safetensors.index.json. Like an import it takes the memory of
 * the largest tensor. Adapters are merged into their weights (hf_adapter.h), or written alone, as
 * PEFT has them.
 */
#ifndef FRONTEND_HF_HF_EXPORT_H
#define FRONTEND_HF_HF_EXPORT_H

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_layout.h"
#include "runtime/checkpoint/safetensors.h"

/* Half of an adapter, as the model has it. */
typedef struct HfHalf {
    const char *name;
    const Type *type;
} HfHalf;

typedef struct HfExport {
    Arena *arena;
    const Model *model;
    const HfFamily *family;
    const HfType *type;
    HfLayout layout;
    const char *path; /* of the weights */
    Safetensors *weights;
    const char *trained_path; /* of what was trained over them; NULL: none */
    Safetensors *trained;
    int n_halves, halves_capacity;
    HfHalf *halves;       /* by name */
    double adapter_scale; /* of the product of an adapter's halves */
    bool adapters_alone;  /* as PEFT has them */
    const char *like;     /* a folder of Hugging Face's, or NULL */
    json_t *config;
    DType dtype;
    size_t max_shard_bytes;
    int n_shards;   /* once written */
    size_t n_bytes; /* of all tensors */
} HfExport;

/* Finds all parameters of `model` in the open file, and what the folder will say. `like`: its
 * config.json gives what no row knows, and its tokenizer's files are copied. False: reported. The
 * files stay the caller's to close. */
typedef struct HfExportRequest {
    const Model *model;
    Safetensors *weights, *trained; /* trained: over the weights; NULL: none */
    const char *path, *trained_path, *like;
    DType dtype;
    bool adapters_alone;
    /* Of another format (gguf_export.h): rows by which there is a layout, no configuration, and who
     * reads it; else NULL. */
    const HfFamily *family;
    const char *reader;
} HfExportRequest;
bool hf_export_open(Arena *arena, const HfExportRequest *request, HfExport *out, Diag *diag);
/* A tensor of either file; *out_path: the one that has it, or should. */
bool hf_export_find(const HfExport *export, const char *name, SafetensorsInfo *out,
                    const char **out_path);
/* All of a tensor of theirs, in export->dtype. False: reported, as numbers are too large for it. */
bool hf_export_fill(const HfExport *export, const HfItem *item, void *out, Diag *diag);
bool hf_write_json(Arena *arena, const char *dir, const char *name, const json_t *json, Diag *diag);
void hf_export_close(HfExport *export);

/* Is `dir` free to be made: not there, or an empty folder? False: reported. */
bool hf_export_try(Arena *arena, const char *dir, Diag *diag);
bool hf_export_write(HfExport *export, const char *dir, Diag *diag);

#endif
