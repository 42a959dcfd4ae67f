/* A file of Perilune's weights as a GGUF file, which llama.cpp and what is built on it run.
 *
 * The file appears whole, or not at all. As llama.cpp's converter does, vectors, routers and tables
 * of positions stay f32; a matrix whose rows are no whole blocks of the wanted type becomes q8_0 or
 * f16. Adapters are merged into their weights.
 */
#ifndef FRONTEND_GGUF_GGUF_EXPORT_H
#define FRONTEND_GGUF_GGUF_EXPORT_H

#include "frontend/gguf/gguf_archs.h"
#include "frontend/gguf/gguf_tokenizer.h"
#include "frontend/gguf/gguf_types.h"
#include "frontend/hf/hf_export.h"

typedef struct GgufExportRequest {
    const Model *model;
    Safetensors *weights, *trained; /* as in HfExportRequest */
    const char *path, *trained_path;
    const char *tokenizer; /* tokenizer.json or a folder with one; NULL: the file has none */
    const GgufType *type;  /* of most tensors */
} GgufExportRequest;

typedef struct GgufExport {
    HfExport hf; /* its layout has llama.cpp's names */
    json_t *config;
    const GgufType *type;
    int n_tensors;
    size_t n_bytes;
    int n_whole;             /* matrices that became q8_0 or f16 */
    bool refused;            /* by gguf_export_write: what is wrong is in the tokenizer */
    GgufTokenizer tokenizer; /* once written */
} GgufExport;

/* The architectures of the model's script. NULL, reported: no such model is written as GGUF. */
const HfFamily *gguf_export_family(Arena *arena, const Model *model, Diag *diag);
/* What a tensor is written in where most are `most`. */
const GgufType *gguf_export_type(const json_t *config, const GgufType *most, const HfItem *item);

/* Finds all that the file will have. False: reported. */
bool gguf_export_open(Arena *arena, const GgufExportRequest *request, GgufExport *out, Diag *diag);
bool gguf_export_write(GgufExport *export, const GgufExportRequest *request, const char *path,
                       Diag *diag);
void gguf_export_close(GgufExport *export);

#endif
