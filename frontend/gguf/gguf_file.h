/* GGUF files: metadata and tensors in one file (docs/gguf.md of ggml), read through a mapping.
 *
 *     "GGUF", u32 version, u64 tensors, u64 pairs; pairs: text key, u32 type, value;
 *     tensors: text name, u32 dimensions, u64 each (the innermost first), u32 type, u64 offset;
 *     padding; data, of which each tensor begins at a multiple of general.alignment (32)
 *
 * Texts are a u64 length and bytes. All of a file is checked when it is opened: versions 2 and 3,
 * lengths and counts within the file, names once, texts in UTF-8 without a NUL (those of lists are
 * their reader's to check), known types, whole blocks, and tensors within the data that do not
 * overlap. Afterwards nothing else needs further checks.
 */
#ifndef FRONTEND_GGUF_GGUF_FILE_H
#define FRONTEND_GGUF_GGUF_FILE_H

#include "frontend/gguf/gguf_types.h"

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/file.h"
#include "runtime/checkpoint/safetensors.h"

enum { GGUF_MOST_DIMS = 4, GGUF_ALIGNMENT = 32 };

typedef enum GgufKind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_KINDS
} GgufKind;

typedef struct GgufPair {
    const char *key; /* terminated */
    GgufKind kind;   /* of the value, or of an array's elements */
    bool is_array;
    uint64_t count;            /* 1, or the array's elements */
    const unsigned char *data; /* in the file, perhaps unaligned */
} GgufPair;

/* info: with dimensions as everywhere here, the outermost first. F32, F16 and BF16 say so; all else
 * is U8, of which only `type` knows more. */
typedef struct GgufTensor {
    SafetensorsInfo info; /* first: what finds it as this, finds the type */
    const GgufType *type;
} GgufTensor;

typedef struct GgufFile {
    Arena *arena;
    const char *path;
    FileMap map;
    uint32_t version;
    int n_pairs, n_tensors;
    GgufPair *pairs;     /* by key */
    GgufTensor *tensors; /* by name */
} GgufFile;

/* Is it UTF-8 without a NUL? */
bool gguf_is_text(const char *text, size_t length);

/* Does the file begin as a GGUF file does? False, silently, for what is no file. */
bool gguf_is_file(const char *path);

/* False: reported, nothing is open. */
bool gguf_open(Arena *arena, const char *path, GgufFile *out, Diag *diag);
void gguf_close(GgufFile *file);

const GgufPair *gguf_find(const GgufFile *file, const char *key);           /* NULL: none */
const GgufTensor *gguf_find_tensor(const GgufFile *file, const char *name); /* NULL: none */

/* A value that is a text, in the file's arena; NULL: there is none, or it is no text. */
const char *gguf_text(const GgufFile *file, const char *key);
/* A whole number of any kind, from 0 to INT64_MAX. False: there is none. */
bool gguf_count(const GgufFile *file, const char *key, int64_t *out);

/* Element i of a pair of numbers, or flags. */
double gguf_number(const GgufPair *pair, uint64_t i);
int64_t gguf_integer(const GgufPair *pair, uint64_t i);
bool gguf_kind_is_integer(GgufKind kind);

/* The next text of a pair of texts: *at begins as pair->data. It is not terminated, and of a list
 * can be any bytes. */
const char *gguf_next_text(const unsigned char **at, size_t *out_length);

/* Reports what is wrong with the file at `path`; false. */
bool gguf_fail(const char *path, Diag *diag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
