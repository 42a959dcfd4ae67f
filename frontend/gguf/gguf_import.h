/* A GGUF file as an import (hf_import.h): its metadata are the configuration, its tensors are found
 * by llama.cpp's names, and those in blocks are widened as they are read. */
#ifndef FRONTEND_GGUF_GGUF_IMPORT_H
#define FRONTEND_GGUF_GGUF_IMPORT_H

#include "frontend/gguf/gguf_file.h"
#include "frontend/hf/hf_import.h"

/* As hf_import_open. `file` is open until the caller closes both, the import first. */
bool gguf_import_open(Arena *arena, const char *path, const char *script, const ModelSetting *given,
                      int n_given, GgufFile *file, HfImport *out, Diag *diag);

#endif
