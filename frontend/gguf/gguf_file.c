#include "frontend/gguf/gguf_file.h"

#include "frontend/hf/hf_files.h"
#include "ir/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 4, MOST_KEY = 65535, MOST_NAME = 1024, MOST_COUNT = 1 << 24 };
static const char MAGIC[] = "GGUF";
static const int64_t MOST_ELEMENTS = INT64_C(1) << 50;

static const size_t KIND_BYTES[GGUF_N_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct Cursor {
    GgufFile *file;
    const unsigned char *at, *end;
    Diag *diag;
} Cursor;

bool gguf_fail(const char *path, Diag *diag, const char *format, ...) {
    Arena *arena = arena_create();
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(arena, format, args);
    va_end(args);
    diag_error(diag, (SourceLoc){path, 0}, "%s", text);
    arena_destroy(arena);
    return false;
}

static bool fail_short(const Cursor *cursor, const char *what) {
    return gguf_fail(cursor->file->path, cursor->diag, "ends within %s, at byte %zu: is it whole?",
                     what, cursor->file->map.length_bytes);
}

static size_t left(const Cursor *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

static bool take(Cursor *cursor, void *out, size_t bytes, const char *what) {
    memset(out, 0, bytes);
    if (left(cursor) < bytes) return fail_short(cursor, what);
    memcpy(out, cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

/* --- texts --- */

bool gguf_is_text(const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < length;) {
        uint32_t character;
        const int n = utf8_read(bytes + i, length - i, &character);
        if (!n || character == 0) return false;
        i += (size_t)n;
    }
    return true;
}

/* Its bytes, in the file. */
static bool take_bytes(Cursor *cursor, const unsigned char **out, size_t *out_length,
                       const char *what) {
    uint64_t length;
    *out = cursor->at;
    *out_length = 0;
    if (!take(cursor, &length, sizeof(length), what)) return false;
    if (length > left(cursor)) {
        return gguf_fail(cursor->file->path, cursor->diag,
                         "has a text of %" PRIu64 " bytes in %s, where %zu are left", length, what,
                         left(cursor));
    }
    *out = cursor->at;
    *out_length = (size_t)length;
    cursor->at += length;
    return true;
}

/* A key or a name: not empty, and no control characters. */
static const char *take_name(Cursor *cursor, size_t most, const char *what) {
    const unsigned char *bytes;
    size_t length;
    if (!take_bytes(cursor, &bytes, &length, what)) return NULL;
    bool fine = length > 0 && length <= most && gguf_is_text((const char *)bytes, length);
    for (size_t i = 0; fine && i < length; i++) fine = bytes[i] > 32 && bytes[i] != 127;
    if (fine) return arena_strndup(cursor->file->arena, (const char *)bytes, length);
    gguf_fail(cursor->file->path, cursor->diag,
              "has %s that is no name: of %zu bytes, UTF-8 without spaces of 1 to %zu is one", what,
              length, most);
    return NULL;
}

/* --- pairs --- */

static bool skip_values(Cursor *cursor, const GgufPair *pair) {
    const size_t bytes = KIND_BYTES[pair->kind];
    if (pair->kind != GGUF_TEXT) {
        if (pair->count > left(cursor) / bytes) {
            return gguf_fail(cursor->file->path, cursor->diag,
                             "%s has %" PRIu64 " numbers, where %zu bytes are left",
                             hf_quoted(cursor->file->arena, pair->key), pair->count, left(cursor));
        }
        cursor->at += pair->count * bytes;
        for (uint64_t i = 0; pair->kind == GGUF_BOOL && i < pair->count; i++) {
            if (pair->data[i] > 1) {
                return gguf_fail(cursor->file->path, cursor->diag,
                                 "%s is neither true nor false, but %d",
                                 hf_quoted(cursor->file->arena, pair->key), pair->data[i]);
            }
        }
        return true;
    }
    for (uint64_t i = 0; i < pair->count; i++) {
        const unsigned char *text;
        size_t length;
        if (!take_bytes(cursor, &text, &length, "its metadata")) return false;
        if (pair->is_array || gguf_is_text((const char *)text, length)) continue;
        return gguf_fail(cursor->file->path, cursor->diag, "%s is a text that is not UTF-8",
                         hf_quoted(cursor->file->arena, pair->key));
    }
    return true;
}

static bool take_pair(Cursor *cursor, GgufPair *out) {
    static const char WHAT[] = "its metadata";
    uint32_t kind;
    *out = (GgufPair){.key = take_name(cursor, MOST_KEY, "a key"), .count = 1};
    if (!out->key || !take(cursor, &kind, sizeof(kind), WHAT)) return false;
    if (kind == GGUF_ARRAY) {
        out->is_array = true;
        if (!take(cursor, &kind, sizeof(kind), WHAT) ||
            !take(cursor, &out->count, sizeof(out->count), WHAT)) {
            return false;
        }
    }
    if (kind >= GGUF_N_KINDS || kind == GGUF_ARRAY) {
        return gguf_fail(cursor->file->path, cursor->diag,
                         "%s is of type %u, which is not supported%s",
                         hf_quoted(cursor->file->arena, out->key), kind,
                         kind == GGUF_ARRAY ? ": an array of arrays" : "");
    }
    out->kind = (GgufKind)kind;
    out->data = cursor->at;
    return skip_values(cursor, out);
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp(((const GgufPair *)a)->key, ((const GgufPair *)b)->key);
}

static bool take_pairs(Cursor *cursor) {
    GgufFile *file = cursor->file;
    for (int i = 0; i < file->n_pairs; i++) {
        if (!take_pair(cursor, &file->pairs[i])) return false;
    }
    qsort(file->pairs, (size_t)file->n_pairs, sizeof(GgufPair), compare_pairs);
    for (int i = 1; i < file->n_pairs; i++) {
        if (strcmp(file->pairs[i - 1].key, file->pairs[i].key) != 0) continue;
        return gguf_fail(cursor->file->path, cursor->diag, "has %s twice",
                         hf_quoted(file->arena, file->pairs[i].key));
    }
    return true;
}

/* --- tensors --- */

static SafetensorsDtype dtype_of(const GgufType *type) {
    switch (type->number) {
    case GGUF_TYPE_F32: return SAFETENSORS_F32;
    case GGUF_TYPE_F16: return SAFETENSORS_F16;
    case GGUF_TYPE_BF16: return SAFETENSORS_BF16;
    default: return SAFETENSORS_U8;
    }
}

/* Its dimensions, which the file has from the innermost on, and how many bytes they are. */
static bool take_shape(Cursor *cursor, GgufTensor *tensor, const char *name) {
    uint32_t n_dims, number;
    uint64_t dims[GGUF_MOST_DIMS];
    int64_t elements = 1;
    SafetensorsInfo *info = &tensor->info;
    if (!take(cursor, &n_dims, sizeof(n_dims), name)) return false;
    if (n_dims < 1 || n_dims > GGUF_MOST_DIMS) {
        return gguf_fail(cursor->file->path, cursor->diag,
                         "tensor %s has %u dimensions; 1 to %d are supported", name, n_dims,
                         GGUF_MOST_DIMS);
    }
    if (!take(cursor, dims, n_dims * sizeof(dims[0]), name) ||
        !take(cursor, &number, sizeof(number), name)) {
        return false;
    }
    tensor->type = gguf_type_find(number);
    if (!tensor->type)
        return gguf_fail(cursor->file->path, cursor->diag, "tensor %s is of type %u, which is none",
                         name, number);
    info->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || dims[i] > (uint64_t)(MOST_ELEMENTS / elements)) {
            return gguf_fail(cursor->file->path, cursor->diag,
                             "tensor %s has a dimension of %" PRIu64, name, dims[i]);
        }
        elements *= (int64_t)dims[i];
        info->shape[n_dims - 1 - i] = (int64_t)dims[i];
    }
    if (dims[0] % (uint64_t)tensor->type->block != 0) {
        return gguf_fail(cursor->file->path, cursor->diag,
                         "tensor %s is %s, of blocks of %" PRId64 ", but its rows have %" PRIu64
                         " numbers",
                         name, tensor->type->name, tensor->type->block, dims[0]);
    }
    info->dtype = dtype_of(tensor->type);
    info->n_bytes = (size_t)(elements / tensor->type->block) * tensor->type->bytes;
    return true;
}

/* `offsets`: of each, from the beginning of the data. */
static bool take_tensors(Cursor *cursor, uint64_t *offsets) {
    GgufFile *file = cursor->file;
    for (int i = 0; i < file->n_tensors; i++) {
        GgufTensor *tensor = &file->tensors[i];
        tensor->info.name = take_name(cursor, MOST_NAME, "a tensor's name");
        if (!tensor->info.name) return false;
        const char *name = hf_quoted(file->arena, tensor->info.name);
        if (!take_shape(cursor, tensor, name) ||
            !take(cursor, &offsets[i], sizeof(offsets[i]), name)) {
            return false;
        }
    }
    return true;
}

static bool find_alignment(const Cursor *cursor, size_t *out) {
    const GgufPair *pair = gguf_find(cursor->file, "general.alignment");
    *out = GGUF_ALIGNMENT;
    if (!pair) return true;
    const int64_t value = pair->kind == GGUF_U32 && !pair->is_array ? gguf_integer(pair, 0) : 0;
    *out = (size_t)value;
    if (value >= 8 && (value & (value - 1)) == 0) return true;
    return gguf_fail(cursor->file->path, cursor->diag,
                     "'general.alignment' is no power of two from 8 on, of type u32");
}

static int compare_data(const void *a, const void *b) {
    const SafetensorsInfo *x = &((const GgufTensor *)a)->info, *y = &((const GgufTensor *)b)->info;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const GgufTensor *)a)->info.name, ((const GgufTensor *)b)->info.name);
}

/* Where they lie: within the data, each by itself. */
static bool place_tensors(Cursor *cursor, const uint64_t *offsets) {
    GgufFile *file = cursor->file;
    size_t alignment, begin = (size_t)(cursor->at - file->map.data);
    if (!find_alignment(cursor, &alignment)) return false;
    begin = begin + (alignment - begin % alignment) % alignment;
    const size_t length = begin < file->map.length_bytes ? file->map.length_bytes - begin : 0;
    for (int i = 0; i < file->n_tensors; i++) {
        SafetensorsInfo *info = &file->tensors[i].info;
        const char *name = hf_quoted(file->arena, info->name);
        if (offsets[i] % alignment != 0) {
            return gguf_fail(cursor->file->path, cursor->diag,
                             "tensor %s begins at %" PRIu64 ", which is no multiple of %zu", name,
                             offsets[i], alignment);
        }
        if (offsets[i] > length || info->n_bytes > length - offsets[i]) {
            return gguf_fail(cursor->file->path, cursor->diag,
                             "tensor %s has %zu bytes at %" PRIu64 " of %zu: is the file whole?",
                             name, info->n_bytes, offsets[i], length);
        }
        info->data = file->map.data + begin + offsets[i];
    }
    qsort(file->tensors, (size_t)file->n_tensors, sizeof(GgufTensor), compare_data);
    for (int i = 1; i < file->n_tensors; i++) {
        const SafetensorsInfo *a = &file->tensors[i - 1].info, *b = &file->tensors[i].info;
        if ((const char *)a->data + a->n_bytes <= (const char *)b->data) continue;
        return gguf_fail(cursor->file->path, cursor->diag, "tensors %s and %s overlap",
                         hf_quoted(file->arena, a->name), hf_quoted(file->arena, b->name));
    }
    qsort(file->tensors, (size_t)file->n_tensors, sizeof(GgufTensor), compare_names);
    for (int i = 1; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].info.name;
        if (strcmp(file->tensors[i - 1].info.name, name) != 0) continue;
        return gguf_fail(cursor->file->path, cursor->diag, "has a tensor %s twice",
                         hf_quoted(file->arena, name));
    }
    return true;
}

/* --- the file --- */

/* A count of what takes `least` bytes each, at least. */
static bool take_count(Cursor *cursor, size_t least, const char *what, int *out) {
    uint64_t count;
    if (!take(cursor, &count, sizeof(count), "its header")) return false;
    *out = (int)count;
    if (count <= left(cursor) / least && count <= MOST_COUNT) return true;
    return gguf_fail(cursor->file->path, cursor->diag,
                     "says that it has %" PRIu64 " %s, where %zu bytes are left", count, what,
                     left(cursor));
}

static bool take_version(Cursor *cursor) {
    GgufFile *file = cursor->file;
    char magic[MAGIC_BYTES];
    if (!take(cursor, magic, MAGIC_BYTES, "its header")) return false;
    if (memcmp(magic, MAGIC, MAGIC_BYTES) != 0)
        return gguf_fail(cursor->file->path, cursor->diag, "is no GGUF file");
    if (!take(cursor, &file->version, sizeof(file->version), "its header")) return false;
    if (file->version == 2 || file->version == 3) return true;
    const bool other_end = (file->version & 0xffff) == 0;
    return gguf_fail(cursor->file->path, cursor->diag,
                     "is %s; versions 2 and 3, lowest bytes first, are supported",
                     other_end ? "a GGUF file with the highest bytes of numbers first"
                               : arena_printf(file->arena, "GGUF of version %u", file->version));
}

static bool read_file(Cursor *cursor) {
    enum { LEAST_PAIR = 8 + 1 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };
    GgufFile *file = cursor->file;
    if (!take_version(cursor) || !take_count(cursor, LEAST_TENSOR, "tensors", &file->n_tensors) ||
        !take_count(cursor, LEAST_PAIR, "pairs of metadata", &file->n_pairs)) {
        return false;
    }
    file->pairs = ARENA_ARRAY(file->arena, GgufPair, file->n_pairs + 1);
    file->tensors = ARENA_ARRAY(file->arena, GgufTensor, file->n_tensors + 1);
    uint64_t *offsets = ARENA_ARRAY(file->arena, uint64_t, file->n_tensors + 1);
    return take_pairs(cursor) && take_tensors(cursor, offsets) && place_tensors(cursor, offsets);
}

bool gguf_is_file(const char *path) {
    char magic[MAGIC_BYTES];
    return file_read_head(path, magic, MAGIC_BYTES) && memcmp(magic, MAGIC, MAGIC_BYTES) == 0;
}

bool gguf_open(Arena *arena, const char *path, GgufFile *out, Diag *diag) {
    *out = (GgufFile){.arena = arena, .path = path};
    if (!file_map(path, &out->map, diag)) return false;
    Cursor cursor = {out, out->map.data, out->map.data + out->map.length_bytes, diag};
    const bool fine = read_file(&cursor);
    if (!fine) gguf_close(out);
    return fine;
}

void gguf_close(GgufFile *file) {
    if (file->map.data) file_unmap(&file->map);
    file->map = (FileMap){NULL, 0};
    file->n_pairs = file->n_tensors = 0;
}

/* --- what it has --- */

const GgufPair *gguf_find(const GgufFile *file, const char *key) {
    const GgufPair wanted = {.key = key};
    if (!file->n_pairs) return NULL;
    return bsearch(&wanted, file->pairs, (size_t)file->n_pairs, sizeof(wanted), compare_pairs);
}

const GgufTensor *gguf_find_tensor(const GgufFile *file, const char *name) {
    const GgufTensor wanted = {.info = {.name = name}};
    if (!file->n_tensors) return NULL;
    return bsearch(&wanted, file->tensors, (size_t)file->n_tensors, sizeof(wanted), compare_names);
}

const char *gguf_next_text(const unsigned char **at, size_t *out_length) {
    uint64_t length;
    memcpy(&length, *at, sizeof(length));
    const char *text = (const char *)*at + sizeof(length);
    *out_length = (size_t)length;
    *at += sizeof(length) + length;
    return text;
}

const char *gguf_text(const GgufFile *file, const char *key) {
    const GgufPair *pair = gguf_find(file, key);
    if (!pair || pair->kind != GGUF_TEXT || pair->is_array) return NULL;
    const unsigned char *at = pair->data;
    size_t length;
    const char *text = gguf_next_text(&at, &length);
    return arena_strndup(file->arena, text, length);
}

bool gguf_kind_is_integer(GgufKind kind) {
    return kind != GGUF_F32 && kind != GGUF_F64 && kind != GGUF_BOOL && kind != GGUF_TEXT;
}

int64_t gguf_integer(const GgufPair *pair, uint64_t i) {
    const unsigned char *at = pair->data + i * KIND_BYTES[pair->kind];
    uint64_t bits = 0;
    memcpy(&bits, at, KIND_BYTES[pair->kind]); /* lowest bytes first */
    switch (pair->kind) {
    case GGUF_I8: return (int8_t)bits;
    case GGUF_I16: return (int16_t)bits;
    case GGUF_I32: return (int32_t)bits;
    default: return bits > INT64_MAX && pair->kind == GGUF_U64 ? INT64_MAX : (int64_t)bits;
    }
}

double gguf_number(const GgufPair *pair, uint64_t i) {
    float number;
    double wide;
    const unsigned char *at = pair->data + i * KIND_BYTES[pair->kind];
    if (pair->kind == GGUF_F32) {
        memcpy(&number, at, sizeof(number));
        return (double)number;
    }
    if (pair->kind != GGUF_F64) return (double)gguf_integer(pair, i);
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

bool gguf_count(const GgufFile *file, const char *key, int64_t *out) {
    const GgufPair *pair = gguf_find(file, key);
    if (!pair || pair->is_array || !gguf_kind_is_integer(pair->kind)) return false;
    *out = gguf_integer(pair, 0);
    return *out >= 0;
}
