/* Writes GGUF files, version 3 (gguf_file.h): pairs of metadata and tensors are declared, then the
 * tensors' bytes come in that order, into a file that appears whole on commit. */
#ifndef FRONTEND_GGUF_GGUF_WRITER_H
#define FRONTEND_GGUF_GGUF_WRITER_H

#include "frontend/gguf/gguf_file.h"

typedef struct GgufWriter GgufWriter;

GgufWriter *gguf_writer_create(void);

/* Texts are copied, UTF-8. */
void gguf_put_text(GgufWriter *writer, const char *key, const char *value);
void gguf_put_u32(GgufWriter *writer, const char *key, uint32_t value);
void gguf_put_f32(GgufWriter *writer, const char *key, float value);
void gguf_put_flag(GgufWriter *writer, const char *key, bool value);
/* An array: its elements follow, as gguf_put_element or gguf_put_element_text, `count` of them. */
void gguf_put_array(GgufWriter *writer, const char *key, GgufKind kind, uint64_t count);
void gguf_put_element(GgufWriter *writer, const void *bytes, size_t length);
void gguf_put_element_text(GgufWriter *writer, const char *text, size_t length);

/* The outermost dimension first. */
void gguf_add_tensor(GgufWriter *writer, const char *name, const GgufType *type,
                     const int64_t *shape, int n_dims);
size_t gguf_tensor_bytes(const GgufType *type, const int64_t *shape, int n_dims);

/* Writes what was declared. After an error only abandon is allowed. */
bool gguf_writer_open(GgufWriter *writer, const char *path, Diag *diag);
/* The next tensor, whole. */
bool gguf_writer_put(GgufWriter *writer, const void *bytes, size_t length, Diag *diag);
bool gguf_writer_commit(GgufWriter *writer, Diag *diag); /* frees the writer, either way */
void gguf_writer_abandon(GgufWriter *writer);

#endif
