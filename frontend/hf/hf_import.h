/* Hugging Face's weights as a file of Perilune's.
 *
 * The file has the model's parameters by their logical names, in f32 as training saves them or in
 * 16 bits, and as metadata the model's name and settings. Tensors are read through a mapping and
 * written piece after piece: beside pages of the files 64 MiB are taken, or one row of a parameter
 * where that is more; and a matrix in fp8 (hf_fp8.h) as a whole.
 */
#ifndef FRONTEND_HF_HF_IMPORT_H
#define FRONTEND_HF_HF_IMPORT_H

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_files.h"
#include "frontend/hf/hf_layout.h"

typedef struct HfImport {
    Arena *arena;
    HfConfig config;
    HfFiles files;
    DType dtype;  /* that hf_import_write is to write: f32 unless it is set, bf16 or f16 */
    bool damaged; /* by hf_import_write: what is wrong is in the files */
    const Model *model;
    HfLayout layout;
    int64_t n_parameters;
    HfPacked packed;      /* the tensor in codes that was read last, */
    const HfItem *opened; /* its item, or NULL, */
    int64_t slice;        /* the slice that was widened, or -1, */
    float *wide;          /* and its numbers */
    int n_packed;         /* tensors in codes */
    int n_left_out;       /* tensors of what is no text model: pictures'; of what we do not have */
    int n_scales;         /* left out, too: of activations */
} HfImport;

/* Reads DIR and finds all that the model needs, and nothing else, in it. script: the model's, NULL
 * the one that is part of the program; `given` come after the configuration's settings. False:
 * reported, nothing is left open. */
bool hf_import_open(Arena *arena, const char *dir, const char *script, const ModelSetting *given,
                    int n_given, HfImport *out, Diag *diag);
/* The same of what another format's reader found: out has both then. */
bool hf_import_open_found(Arena *arena, const HfConfig *config, const HfFiles *files,
                          const char *script, const ModelSetting *given, int n_given, HfImport *out,
                          Diag *diag);
void hf_import_close(HfImport *import);

/* Writes the weights to `path`. False with `damaged`: some of what was read are no numbers. */
bool hf_import_write(HfImport *import, const char *path, Diag *diag);

#endif
