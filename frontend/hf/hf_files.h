/* The tensors of a folder of Hugging Face's: model.safetensors, or the files that
 * model.safetensors.index.json names.
 */
#ifndef FRONTEND_HF_HF_FILES_H
#define FRONTEND_HF_HF_FILES_H

#include "runtime/checkpoint/safetensors.h"

#include "ir/base/arena.h"

#include <jansson.h>

typedef struct HfFound {
    const SafetensorsInfo *info;
    const char *path; /* of its file */
    bool used;        /* the caller's */
} HfFound;

typedef struct HfFiles {
    Arena *arena;
    const char *dir;
    int n_files, files_capacity;
    Safetensors **files;
    const char **paths; /* of them */
    int n_tensors;
    HfFound *tensors; /* by name */
} HfFiles;

/* False: reported, nothing is open. */
bool hf_files_open(Arena *arena, const char *dir, HfFiles *out, Diag *diag);
void hf_files_close(HfFiles *files);

/* A name from outside, for messages: in quotes, ASCII, cut where it is long. */
const char *hf_quoted(Arena *arena, const char *name);

HfFound *hf_files_find(const HfFiles *files, const char *name); /* NULL: none */

#endif
