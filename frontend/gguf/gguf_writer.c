#include "frontend/gguf/gguf_writer.h"

#include "ir/base/memory.h"
#include "ir/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

struct GgufWriter {
    StrBuf pairs, tensors;
    uint64_t n_pairs, n_tensors;
    uint64_t offset; /* of the next tensor, from the beginning of the data */
    FileWriter *file;
};

static void put(StrBuf *out, const void *bytes, size_t length) {
    strbuf_put_bytes(out, bytes, length);
}

static void put_u32(StrBuf *out, uint32_t value) {
    put(out, &value, sizeof(value));
}

static void put_u64(StrBuf *out, uint64_t value) {
    put(out, &value, sizeof(value));
}

static void put_text(StrBuf *out, const char *text, size_t length) {
    put_u64(out, length);
    put(out, text, length);
}

static size_t padded(size_t bytes) {
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

GgufWriter *gguf_writer_create(void) {
    GgufWriter *writer = memory_zeroed(1, sizeof(*writer));
    writer->pairs = strbuf_create();
    writer->tensors = strbuf_create();
    return writer;
}

/* --- metadata --- */

static void begin_pair(GgufWriter *writer, const char *key, GgufKind kind) {
    put_text(&writer->pairs, key, strlen(key));
    put_u32(&writer->pairs, kind);
    writer->n_pairs++;
}

void gguf_put_text(GgufWriter *writer, const char *key, const char *value) {
    begin_pair(writer, key, GGUF_TEXT);
    put_text(&writer->pairs, value, strlen(value));
}

void gguf_put_u32(GgufWriter *writer, const char *key, uint32_t value) {
    begin_pair(writer, key, GGUF_U32);
    put_u32(&writer->pairs, value);
}

void gguf_put_f32(GgufWriter *writer, const char *key, float value) {
    begin_pair(writer, key, GGUF_F32);
    put(&writer->pairs, &value, sizeof(value));
}

void gguf_put_flag(GgufWriter *writer, const char *key, bool value) {
    const unsigned char byte = value;
    begin_pair(writer, key, GGUF_BOOL);
    put(&writer->pairs, &byte, 1);
}

void gguf_put_array(GgufWriter *writer, const char *key, GgufKind kind, uint64_t count) {
    begin_pair(writer, key, GGUF_ARRAY);
    put_u32(&writer->pairs, kind);
    put_u64(&writer->pairs, count);
}

void gguf_put_element(GgufWriter *writer, const void *bytes, size_t length) {
    put(&writer->pairs, bytes, length);
}

void gguf_put_element_text(GgufWriter *writer, const char *text, size_t length) {
    put_text(&writer->pairs, text, length);
}

/* --- tensors --- */

size_t gguf_tensor_bytes(const GgufType *type, const int64_t *shape, int n_dims) {
    size_t blocks = 1;
    for (int i = 0; i < n_dims; i++) blocks *= (size_t)shape[i];
    return blocks / (size_t)type->block * type->bytes;
}

void gguf_add_tensor(GgufWriter *writer, const char *name, const GgufType *type,
                     const int64_t *shape, int n_dims) {
    put_text(&writer->tensors, name, strlen(name));
    put_u32(&writer->tensors, (uint32_t)n_dims);
    for (int i = n_dims - 1; i >= 0; i--) put_u64(&writer->tensors, (uint64_t)shape[i]);
    put_u32(&writer->tensors, type->number);
    put_u64(&writer->tensors, writer->offset);
    writer->offset += padded(gguf_tensor_bytes(type, shape, n_dims));
    writer->n_tensors++;
}

static bool put_padding(GgufWriter *writer, size_t bytes, Diag *diag) {
    static const char ZEROS[GGUF_ALIGNMENT];
    return file_writer_put(writer->file, ZEROS, padded(bytes) - bytes, diag);
}

bool gguf_writer_open(GgufWriter *writer, const char *path, Diag *diag) {
    StrBuf head = strbuf_create();
    put(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, writer->n_tensors);
    put_u64(&head, writer->n_pairs);
    put(&head, writer->pairs.text, writer->pairs.length);
    put(&head, writer->tensors.text, writer->tensors.length);
    writer->file = file_writer_open(path, diag);
    const bool fine = writer->file && file_writer_put(writer->file, head.text, head.length, diag) &&
                      put_padding(writer, head.length, diag);
    strbuf_destroy(&head);
    return fine;
}

bool gguf_writer_put(GgufWriter *writer, const void *bytes, size_t length, Diag *diag) {
    return file_writer_put(writer->file, bytes, length, diag) && put_padding(writer, length, diag);
}

static void destroy(GgufWriter *writer) {
    strbuf_destroy(&writer->pairs);
    strbuf_destroy(&writer->tensors);
    free(writer);
}

bool gguf_writer_commit(GgufWriter *writer, Diag *diag) {
    const bool fine = file_writer_commit(writer->file, diag);
    destroy(writer);
    return fine;
}

void gguf_writer_abandon(GgufWriter *writer) {
    if (writer->file) file_writer_abandon(writer->file);
    destroy(writer);
}
