#include "runtime/checkpoint/safetensors.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "ir/base/json.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor bytes are read in place: a little-endian machine is needed"
#endif

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8, MAX_HEADER_BYTES = 100 * 1000 * 1000 };

static const char METADATA_KEY[] = "__metadata__";

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[SAFETENSORS_N_DTYPES] = {
    [SAFETENSORS_F64] = {"F64", 8},         [SAFETENSORS_F32] = {"F32", 4},
    [SAFETENSORS_F16] = {"F16", 2},         [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1}, [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1},
    [SAFETENSORS_I64] = {"I64", 8},         [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_I16] = {"I16", 2},         [SAFETENSORS_I8] = {"I8", 1},
    [SAFETENSORS_U64] = {"U64", 8},         [SAFETENSORS_U32] = {"U32", 4},
    [SAFETENSORS_U16] = {"U16", 2},         [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_BOOL] = {"BOOL", 1},
};

const char *safetensors_dtype_name(SafetensorsDtype dtype) {
    return dtypes[dtype].name;
}

size_t safetensors_dtype_bytes(SafetensorsDtype dtype) {
    return dtypes[dtype].n_bytes;
}

/* --- reading --- */

typedef struct Pair {
    const char *key, *value;
} Pair;

struct Safetensors {
    Arena *arena;
    FileMap map;
    const char *path;
    int n_tensors, tensors_capacity;
    SafetensorsInfo *tensors;        /* in file order once opened */
    const SafetensorsInfo **by_name; /* sorted */
    int n_metadata, metadata_capacity;
    Pair *metadata;
};

/* The bytes after the header. */
typedef struct DataArea {
    const unsigned char *data;
    uint64_t n_bytes;
} DataArea;

__attribute__((format(printf, 4, 5))) static bool
tensor_error(const Safetensors *file, Diag *diag, const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(file->arena, format, args);
    va_end(args);
    diag_error(diag, (SourceLoc){file->path, 0}, "tensor '%s': %s", name, text);
    return false;
}

static bool read_dtype(const Safetensors *file, json_t *json, SafetensorsInfo *info, Diag *diag) {
    const char *text = json_string_value(json_object_get(json, "dtype"));
    if (!text) return tensor_error(file, diag, info->name, "has no dtype");
    for (int i = 0; i < SAFETENSORS_N_DTYPES; i++) {
        if (strcmp(text, dtypes[i].name) != 0) continue;
        info->dtype = (SafetensorsDtype)i;
        return true;
    }
    return tensor_error(file, diag, info->name, "dtype '%.20s' is not known", text);
}

/* Also the tensor's bytes by its shape. */
static bool read_shape(const Safetensors *file, json_t *json, SafetensorsInfo *info, Diag *diag) {
    json_t *shape = json_object_get(json, "shape");
    if (!json_is_array(shape)) return tensor_error(file, diag, info->name, "has no shape");
    size_t n_dims = json_array_size(shape);
    if (n_dims > SAFETENSORS_MAX_DIMS) {
        return tensor_error(file, diag, info->name, "has %zu dimensions; at most %d are read",
                            n_dims, SAFETENSORS_MAX_DIMS);
    }
    info->n_dims = (int)n_dims;
    size_t n_bytes = safetensors_dtype_bytes(info->dtype);
    for (size_t i = 0; i < n_dims; i++) {
        json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return tensor_error(file, diag, info->name, "dimension %zu is not a size", i);
        }
        info->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(n_bytes, (size_t)info->shape[i], &n_bytes)) {
            return tensor_error(file, diag, info->name, "its shape is too large");
        }
    }
    info->n_bytes = n_bytes;
    return true;
}

static bool read_offsets(const Safetensors *file, json_t *json, DataArea area,
                         SafetensorsInfo *info, Diag *diag) {
    json_t *offsets = json_object_get(json, "data_offsets");
    json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return tensor_error(file, diag, info->name, "data_offsets is not a pair of integers");
    }
    long long begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > area.n_bytes) {
        return tensor_error(file, diag, info->name,
                            "bytes %lld to %lld are not inside the file's %llu bytes of data",
                            begin, end, (unsigned long long)area.n_bytes);
    }
    if ((uint64_t)(end - begin) != info->n_bytes) {
        return tensor_error(file, diag, info->name, "has %lld bytes, but its shape and dtype %zu",
                            end - begin, info->n_bytes);
    }
    info->data = area.data + begin;
    return true;
}

static bool read_tensor(Safetensors *file, const char *name, json_t *json, DataArea area,
                        Diag *diag) {
    SafetensorsInfo info = {.name = arena_strdup(file->arena, name)};
    if (!json_is_object(json)) return tensor_error(file, diag, name, "is not a JSON object");
    if (!read_dtype(file, json, &info, diag) || !read_shape(file, json, &info, diag) ||
        !read_offsets(file, json, area, &info, diag)) {
        return false;
    }
    ARENA_PUSH(file->arena, file->tensors, file->n_tensors, file->tensors_capacity, info);
    return true;
}

static bool read_metadata(Safetensors *file, json_t *json, Diag *diag) {
    const char *key;
    json_t *value;
    bool ok = json_is_object(json);
    json_object_foreach(json, key, value) {
        ok = ok && json_is_string(value);
        if (!ok) break;
        Pair pair = {arena_strdup(file->arena, key),
                     arena_strdup(file->arena, json_string_value(value))};
        ARENA_PUSH(file->arena, file->metadata, file->n_metadata, file->metadata_capacity, pair);
    }
    if (!ok) {
        diag_error(diag, (SourceLoc){file->path, 0}, "%s is not a map of strings", METADATA_KEY);
    }
    return ok;
}

static int compare_places(const void *a, const void *b) {
    const SafetensorsInfo *x = a, *y = b;
    const char *x_begin = x->data, *y_begin = y->data;
    if (x_begin != y_begin) return x_begin < y_begin ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1; /* empty ones first */
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    const SafetensorsInfo *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* In file order each tensor starts where the one before ends, and the last ends the file. */
static bool check_places(Safetensors *file, DataArea area, Diag *diag) {
    if (file->n_tensors) {
        qsort(file->tensors, (size_t)file->n_tensors, sizeof(*file->tensors), compare_places);
    }
    const unsigned char *end = area.data;
    for (int i = 0; i < file->n_tensors; i++) {
        const SafetensorsInfo *info = &file->tensors[i];
        const unsigned char *begin = info->data;
        if (begin < end) {
            return tensor_error(file, diag, info->name, "overlaps tensor '%s'", info[-1].name);
        }
        if (begin > end) {
            return tensor_error(file, diag, info->name, "%td unused bytes lie before it",
                                begin - end);
        }
        end = begin + info->n_bytes;
    }
    if (end != area.data + area.n_bytes) {
        diag_error(diag, (SourceLoc){file->path, 0}, "%td bytes follow the last tensor",
                   area.data + area.n_bytes - end);
        return false;
    }
    return true;
}

static bool read_header(Safetensors *file, json_t *json, DataArea area, Diag *diag) {
    const char *key;
    json_t *value;
    if (!json_is_object(json)) {
        diag_error(diag, (SourceLoc){file->path, 0}, "the header is not a JSON object");
        return false;
    }
    json_object_foreach(json, key, value) {
        bool ok = strcmp(key, METADATA_KEY) == 0 ? read_metadata(file, value, diag)
                                                 : read_tensor(file, key, value, area, diag);
        if (!ok) return false;
    }
    if (!check_places(file, area, diag)) return false;
    file->by_name = ARENA_ARRAY(file->arena, const SafetensorsInfo *, file->n_tensors);
    for (int i = 0; i < file->n_tensors; i++) file->by_name[i] = &file->tensors[i];
    if (file->n_tensors) {
        qsort(file->by_name, (size_t)file->n_tensors, sizeof(*file->by_name), compare_names);
    }
    return true;
}

static bool read_file(Safetensors *file, Diag *diag) {
    SourceLoc loc = {file->path, 0};
    if (!file_map(file->path, &file->map, diag)) return false;
    uint64_t header_bytes, n_left;
    if (file->map.length_bytes < LENGTH_BYTES) {
        diag_error(diag, loc, "is too short (%zu bytes) for a safetensors file",
                   file->map.length_bytes);
        return false;
    }
    memcpy(&header_bytes, file->map.data, LENGTH_BYTES);
    if (memcmp(file->map.data, "GGUF", 4) == 0) {
        diag_error(diag, loc, "is a GGUF file, of which perilune import makes weights");
        return false;
    }
    n_left = file->map.length_bytes - LENGTH_BYTES;
    if (header_bytes > n_left || header_bytes > MAX_HEADER_BYTES) {
        diag_error(
            diag, loc,
            "is no safetensors file, or was cut short: it says %llu bytes of header (at most "
            "%d are read here) and has %zu in all",
            (unsigned long long)header_bytes, MAX_HEADER_BYTES, file->map.length_bytes);
        return false;
    }
    const unsigned char *header = file->map.data + LENGTH_BYTES;
    json_t *json = json_parse_bytes(file->path, header, header_bytes, diag);
    if (!json) return false;
    DataArea area = {header + header_bytes, n_left - header_bytes};
    bool ok = read_header(file, json, area, diag);
    json_decref(json);
    return ok;
}

Safetensors *safetensors_open(const char *path, Diag *diag) {
    Arena *arena = arena_create();
    Safetensors *file = ARENA_NEW(arena, Safetensors);
    file->arena = arena;
    file->path = arena_strdup(arena, path);
    if (read_file(file, diag)) return file;
    safetensors_close(file);
    return NULL;
}

void safetensors_close(Safetensors *file) {
    if (!file) return;
    file_unmap(&file->map);
    arena_destroy(file->arena);
}

int safetensors_count(const Safetensors *file) {
    return file->n_tensors;
}

const SafetensorsInfo *safetensors_at(const Safetensors *file, int i) {
    if (i < 0 || i >= file->n_tensors) BUG("tensor %d of %d", i, file->n_tensors);
    return &file->tensors[i];
}

bool safetensors_find(const Safetensors *file, const char *name, SafetensorsInfo *out_info) {
    SafetensorsInfo key = {.name = name};
    const SafetensorsInfo *key_place = &key, **found;
    if (!file->n_tensors) return false;
    found = bsearch(&key_place, file->by_name, (size_t)file->n_tensors, sizeof(*file->by_name),
                    compare_names);
    if (found) *out_info = **found;
    return found != NULL;
}

int safetensors_count_metadata(const Safetensors *file) {
    return file->n_metadata;
}

void safetensors_metadata_at(const Safetensors *file, int i, const char **out_key,
                             const char **out_value) {
    if (i < 0 || i >= file->n_metadata) BUG("metadata %d of %d", i, file->n_metadata);
    *out_key = file->metadata[i].key;
    *out_value = file->metadata[i].value;
}

const char *safetensors_find_metadata(const Safetensors *file, const char *key) {
    for (int i = 0; i < file->n_metadata; i++) {
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    }
    return NULL;
}

/* --- writing --- */

typedef struct Declared {
    const char *name;
    size_t begin, n_bytes; /* in the data */
} Declared;

struct SafetensorsWriter {
    Arena *arena;
    FileWriter *file;
    json_t *header, *metadata;
    const char *header_text; /* NULL: more may be declared */
    size_t header_bytes;
    const char *bad_name; /* the first that cannot be written: reported on open */
    int n_tensors, capacity;
    Declared *tensors;
    size_t n_data_bytes;
    int current;        /* the tensor that is being put */
    size_t n_put_bytes; /* of it */
};

SafetensorsWriter *safetensors_writer_create(void) {
    Arena *arena = arena_create();
    SafetensorsWriter *writer = ARENA_NEW(arena, SafetensorsWriter);
    writer->arena = arena;
    writer->header = json_object();
    writer->metadata = json_object();
    if (!writer->header || !writer->metadata) BUG("out of memory");
    return writer;
}

void safetensors_writer_add_tensor(SafetensorsWriter *writer, const char *name,
                                   SafetensorsDtype dtype, const int64_t *shape, int n_dims) {
    if (n_dims < 0 || n_dims > SAFETENSORS_MAX_DIMS) BUG("tensor '%s': %d axes", name, n_dims);
    if (writer->header_text) BUG("tensor '%s' declared after opening", name);
    size_t n_bytes = safetensors_dtype_bytes(dtype);
    json_t *sizes = json_array();
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(n_bytes, (size_t)shape[i], &n_bytes)) {
            BUG("tensor '%s': axis %d is %lld", name, i, (long long)shape[i]);
        }
        json_array_append_new(sizes, json_integer(shape[i]));
    }
    size_t begin = writer->n_data_bytes;
    writer->n_data_bytes += n_bytes;
    json_t *entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(dtype), "shape", sizes,
                  "data_offsets", (json_int_t)begin, (json_int_t)writer->n_data_bytes);
    bool bad = strcmp(name, METADATA_KEY) == 0 || json_object_get(writer->header, name) != NULL;
    Declared tensor = {arena_strdup(writer->arena, name), begin, n_bytes};
    bad = json_object_set_new(writer->header, name, entry) != 0 || bad;
    if (bad && !writer->bad_name) writer->bad_name = tensor.name;
    ARENA_PUSH(writer->arena, writer->tensors, writer->n_tensors, writer->capacity, tensor);
}

void safetensors_writer_add_metadata(SafetensorsWriter *writer, const char *key,
                                     const char *value) {
    if (json_object_set_new(writer->metadata, key, json_string(value)) != 0 && !writer->bad_name) {
        writer->bad_name = arena_strdup(writer->arena, key);
    }
}

/* The header, made once all is declared; padded with spaces so that the data starts aligned. */
static void seal(SafetensorsWriter *writer) {
    if (writer->header_text) return;
    if (json_object_size(writer->metadata)) {
        json_object_set(writer->header, METADATA_KEY, writer->metadata);
    }
    char *text = json_dumps(writer->header, JSON_COMPACT);
    if (!text) BUG("out of memory");
    size_t length = strlen(text), padding = (ALIGN_BYTES - length % ALIGN_BYTES) % ALIGN_BYTES;
    writer->header_text = arena_printf(writer->arena, "%s%*s", text, (int)padding, "");
    writer->header_bytes = length + padding;
    free(text);
}

static bool put_header(SafetensorsWriter *writer, Diag *diag) {
    uint64_t header_bytes = writer->header_bytes;
    return file_writer_put(writer->file, &header_bytes, LENGTH_BYTES, diag) &&
           file_writer_put(writer->file, writer->header_text, writer->header_bytes, diag);
}

/* Empty tensors need no put. */
static void skip_complete(SafetensorsWriter *writer) {
    while (writer->current < writer->n_tensors &&
           writer->n_put_bytes == writer->tensors[writer->current].n_bytes) {
        writer->current++;
        writer->n_put_bytes = 0;
    }
}

bool safetensors_writer_open(SafetensorsWriter *writer, const char *path, Diag *diag) {
    if (writer->bad_name) {
        diag_error(diag, (SourceLoc){path, 0},
                   "'%s' cannot be written: declared twice, reserved, or not UTF-8",
                   writer->bad_name);
        return false;
    }
    seal(writer);
    writer->file = file_writer_open(path, diag);
    if (!writer->file || !put_header(writer, diag)) return false;
    skip_complete(writer);
    return true;
}

bool safetensors_writer_open_parts(SafetensorsWriter *writer, const char *path, Diag *diag) {
    if (!safetensors_writer_open(writer, path, diag)) return false;
    writer->current = writer->n_tensors; /* others put them */
    return file_writer_reserve(writer->file, safetensors_writer_offset(writer, writer->n_tensors),
                               diag);
}

const char *safetensors_writer_temporary(const SafetensorsWriter *writer) {
    return file_writer_temporary(writer->file);
}

size_t safetensors_writer_offset(SafetensorsWriter *writer, int i) {
    seal(writer);
    size_t begin = i < writer->n_tensors ? writer->tensors[i].begin : writer->n_data_bytes;
    return LENGTH_BYTES + writer->header_bytes + begin;
}

bool safetensors_writer_put(SafetensorsWriter *writer, const char *name, const void *bytes,
                            size_t n_bytes, Diag *diag) {
    if (n_bytes == 0) return true;
    if (writer->current >= writer->n_tensors) BUG("tensor '%s' put after the last one", name);
    const Declared *due = &writer->tensors[writer->current];
    if (strcmp(name, due->name) != 0) BUG("tensor '%s' put while '%s' is due", name, due->name);
    if (n_bytes > due->n_bytes - writer->n_put_bytes) BUG("too many bytes of tensor '%s'", name);
    if (!file_writer_put(writer->file, bytes, n_bytes, diag)) return false;
    writer->n_put_bytes += n_bytes;
    skip_complete(writer);
    return true;
}

static void writer_free(SafetensorsWriter *writer) {
    json_decref(writer->header);
    json_decref(writer->metadata);
    arena_destroy(writer->arena);
}

bool safetensors_writer_commit(SafetensorsWriter *writer, Diag *diag) {
    if (!writer->file) BUG("commit without a file");
    if (writer->current < writer->n_tensors) {
        BUG("tensor '%s' is incomplete", writer->tensors[writer->current].name);
    }
    bool ok = file_writer_commit(writer->file, diag);
    writer_free(writer);
    return ok;
}

void safetensors_writer_abandon(SafetensorsWriter *writer) {
    if (!writer) return;
    file_writer_abandon(writer->file);
    writer_free(writer);
}
