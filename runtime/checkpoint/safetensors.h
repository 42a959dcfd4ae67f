/* safetensors files: named tensors in one file, any program reads them.
 * Format: https://huggingface.co/docs/safetensors (u64 header length, JSON header, tensor bytes).
 *
 * Reading maps the file and checks all of it first: header length, JSON, known dtypes, shapes whose
 * product matches the bytes, names without duplicates, and tensors that fill the data area without
 * gap or overlap (as the format demands). Errors name the tensor.
 * Writing declares all tensors, then streams their bytes in that order into a file that appears
 * whole on commit.
 *
 * Little-endian, row-major. The writer starts the data at a multiple of 8 bytes; other programs
 * need not, so tensor data may be unaligned: copy it out with memcpy.
 */
#ifndef RUNTIME_CHECKPOINT_SAFETENSORS_H
#define RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_DIMS = 8 };

typedef enum SafetensorsDtype {
    SAFETENSORS_F64,
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_I64,
    SAFETENSORS_I32,
    SAFETENSORS_I16,
    SAFETENSORS_I8,
    SAFETENSORS_U64,
    SAFETENSORS_U32,
    SAFETENSORS_U16,
    SAFETENSORS_U8,
    SAFETENSORS_BOOL,
    SAFETENSORS_N_DTYPES
} SafetensorsDtype;

/* The format's spelling, "F32"; and bytes per element. */
const char *safetensors_dtype_name(SafetensorsDtype dtype);
size_t safetensors_dtype_bytes(SafetensorsDtype dtype);

typedef struct SafetensorsInfo {
    const char *name;
    SafetensorsDtype dtype;
    int n_dims; /* 0: a scalar */
    int64_t shape[SAFETENSORS_MAX_DIMS];
    const void *data; /* in the mapping, n_bytes long, perhaps unaligned */
    size_t n_bytes;
} SafetensorsInfo;

/* --- reading --- */

typedef struct Safetensors Safetensors;

/* Reports and returns NULL. What the functions below return lives until close. */
Safetensors *safetensors_open(const char *path, Diag *diag);
void safetensors_close(Safetensors *file);

int safetensors_count(const Safetensors *file);
/* In file order, 0 <= i < count. */
const SafetensorsInfo *safetensors_at(const Safetensors *file, int i);
/* False, silently, when there is none of that name. */
bool safetensors_find(const Safetensors *file, const char *name, SafetensorsInfo *out_info);

int safetensors_count_metadata(const Safetensors *file);
void safetensors_metadata_at(const Safetensors *file, int i, const char **out_key,
                             const char **out_value);
/* NULL when absent. */
const char *safetensors_find_metadata(const Safetensors *file, const char *key);

/* --- writing: declare, open, put, commit --- */

typedef struct SafetensorsWriter SafetensorsWriter;

SafetensorsWriter *safetensors_writer_create(void);
/* Text is copied and must be UTF-8. A name declared twice is reported when the file is opened. */
void safetensors_writer_add_tensor(SafetensorsWriter *writer, const char *name,
                                   SafetensorsDtype dtype, const int64_t *shape, int n_dims);
void safetensors_writer_add_metadata(SafetensorsWriter *writer, const char *key, const char *value);

/* Writes the header to a temporary file beside `path`. After an error only abandon is allowed. */
bool safetensors_writer_open(SafetensorsWriter *writer, const char *path, Diag *diag);
/* The next n_bytes of tensor `name`, in one or more pieces. Tensors come in declared order, each
 * complete before the next; anything else is our bug. */
bool safetensors_writer_put(SafetensorsWriter *writer, const char *name, const void *bytes,
                            size_t n_bytes, Diag *diag);
/* Instead of open and put, for a file that several processes write: each declares the same tensors,
 * one opens it, all put their parts of tensors (ir/base/file.h) at safetensors_writer_offset. */
bool safetensors_writer_open_parts(SafetensorsWriter *writer, const char *path, Diag *diag);
const char *safetensors_writer_temporary(const SafetensorsWriter *writer);
/* Where the i-th declared tensor begins in the file; i = their number: how long the file is. */
size_t safetensors_writer_offset(SafetensorsWriter *writer, int i);

/* All tensors must be complete. Frees the writer, either way. */
bool safetensors_writer_commit(SafetensorsWriter *writer, Diag *diag);
/* Frees the writer and leaves nothing behind. */
void safetensors_writer_abandon(SafetensorsWriter *writer);

#endif
