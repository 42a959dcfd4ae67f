#include "frontend/gguf/gguf_import.h"

#include "frontend/gguf/gguf_config.h"

#include <inttypes.h>
#include <string.h>

/* --- tensors in blocks, as a method of quantized weights --- */

static void widen(const HfPacked *packed, int64_t slice, float *out) {
    const GgufTensor *tensor = (const GgufTensor *)packed->first->info;
    const GgufType *type = tensor->type;
    const int64_t n_blocks = packed->rows * packed->columns / type->block;
    const size_t skipped = (size_t)(slice * n_blocks) * type->bytes;
    type->widen((const unsigned char *)tensor->info.data + skipped, n_blocks, out);
}

/* A slice is an expert's matrix; a vector is a matrix of one row. */
static bool find(const HfPackedAt *at, const HfQuantized *quantized, HfPacked *out) {
    (void)quantized;
    const SafetensorsInfo *info = at->first->info;
    const GgufTensor *tensor = (const GgufTensor *)info;
    if (!tensor->type->widen) {
        diag_error(at->diag, (SourceLoc){at->first->path, 0},
                   "tensor '%s' is %s, which is not read; f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, "
                   "q8_0, q2_K to q6_K, iq4_nl, iq4_xs and mxfp4 are",
                   info->name, tensor->type->name);
        return false;
    }
    if (at->n_dims > 3 ||
        !hf_packed_check(at, at->first, 1U << SAFETENSORS_U8, at->n_dims, at->shape)) {
        return false;
    }
    *out = (HfPacked){.first = at->first,
                      .widen = widen,
                      .slices = at->n_dims == 3 ? at->shape[0] : 1,
                      .rows = at->n_dims > 1 ? at->shape[at->n_dims - 2] : 1,
                      .columns = at->shape[at->n_dims - 1]};
    return true;
}

static const char *const ENDINGS[] = {"+", NULL};
static const char *const LEFT_OUT[] = {NULL};
static const HfMethod BLOCKS = {"blocks of GGUF", NULL, ENDINGS, find, LEFT_OUT};

/* --- the import --- */

static HfFiles files_of(GgufFile *file) {
    HfFiles files = {.arena = file->arena, .dir = file->path, .n_tensors = file->n_tensors};
    files.tensors = ARENA_ARRAY(file->arena, HfFound, file->n_tensors + 1);
    for (int i = 0; i < file->n_tensors; i++) {
        SafetensorsInfo *info = &file->tensors[i].info;
        /* Some have a matrix of one row as a vector. */
        if (info->n_dims == 1 && strstr(info->name, "ffn_gate_inp_shexp.weight")) {
            info->shape[1] = info->shape[0];
            info->shape[0] = 1;
            info->n_dims = 2;
        }
        files.tensors[i] = (HfFound){&file->tensors[i].info, file->path, false};
    }
    return files;
}

bool gguf_import_open(Arena *arena, const char *path, const char *script, const ModelSetting *given,
                      int n_given, GgufFile *file, HfImport *out, Diag *diag) {
    HfConfig config;
    if (!gguf_open(arena, path, file, diag)) return false;
    const HfFiles files = files_of(file);
    bool fine = gguf_config_read(file, &config, diag);
    if (fine) {
        config.quantized.method = &BLOCKS;
        fine = hf_import_open_found(arena, &config, &files, script, given, n_given, out, diag);
    }
    if (!fine) gguf_close(file);
    return fine;
}
