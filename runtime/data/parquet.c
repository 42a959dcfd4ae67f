#include "runtime/data/parquet.h"

#include "runtime/data/thrift.h"

#include <string.h>

enum {
    MAGIC_BYTES = 4,
    TAIL_BYTES = MAGIC_BYTES + 4, /* the length of the metadata before it */
    MOST_DEPTH = 16,
    MOST_LEAVES = 10000,
};

enum {
    TYPE_BOOLEAN = 0,
    TYPE_INT32 = 1,
    TYPE_INT64 = 2,
    TYPE_FLOAT = 4,
    TYPE_DOUBLE = 5,
    TYPE_BYTE_ARRAY = 6
};

/* Bounds what a damaged header can ask for. */
#define MOST_PAGE_BYTES  ((int64_t)1 << 30)
#define MOST_PAGE_VALUES ((int64_t)1 << 24)

static const char DAMAGED[] = "its metadata are damaged";

bool parquet_is(const unsigned char *bytes, size_t length) {
    return length >= MAGIC_BYTES && memcmp(bytes, "PAR1", MAGIC_BYTES) == 0;
}

/* --- schema --- */

typedef struct Element {
    const char *name;
    int64_t type, repetition, n_children; /* type -1: none, it has children */
} Element;

enum { REQUIRED, OPTIONAL, REPEATED };

static Element read_element(Thrift *thrift, Arena *arena) {
    Element element = {.name = "", .type = -1};
    ThriftField field = {0};
    size_t length;
    while (thrift_next(thrift, &field)) {
        if (field.id == 1) {
            element.type = thrift_int(thrift, field);
        } else if (field.id == 3) {
            element.repetition = thrift_int(thrift, field);
        } else if (field.id == 4) {
            const char *name = thrift_string(thrift, field, &length);
            char *copy = arena_alloc(arena, length + 1);
            if (length) memcpy(copy, name, length);
            copy[length] = '\0';
            element.name = copy;
        } else if (field.id == 5) {
            element.n_children = thrift_int(thrift, field);
        } else {
            thrift_skip(thrift, field);
        }
    }
    return element;
}

/* The tree in the order of a walk, each with the number of its children; the first is its root. */
/* A list's repeated group whose one child is the element. Some old writers have no such group, and
 * the repeated one is a record of one field; they call it so
 * (https://github.com/apache/parquet-format/blob/master/LogicalTypes.md, lists). */
static bool wraps_element(const Element *element) {
    const size_t n = strlen(element->name);
    return element->repetition == REPEATED && element->n_children == 1 &&
           strcmp(element->name, "array") != 0 &&
           (n < 6 || strcmp(element->name + n - 6, "_tuple") != 0);
}

static bool read_schema(ParquetFile *file, Thrift *thrift, ThriftField field, Arena *arena) {
    size_t n = thrift_list(thrift, field, THRIFT_STRUCT);
    int64_t children_left[MOST_DEPTH + 1] = {0};
    ParquetLeaf above[MOST_DEPTH + 1] = {{0}};
    bool wrapping[MOST_DEPTH + 1] = {false};
    int depth = 0;
    file->leaves = ARENA_ARRAY(arena, ParquetLeaf, n + 1);
    for (size_t i = 0; i < n; i++) {
        Element element = read_element(thrift, arena);
        if (thrift->failed || element.n_children < 0) return false;
        if (i == 0) {
            children_left[0] = element.n_children;
            continue;
        }
        while (depth > 0 && children_left[depth] == 0) depth--;
        if (children_left[depth]-- <= 0) return false;
        ParquetLeaf here = above[depth];
        if (depth == 0) here.column = element.name;
        if (depth == 1 && here.most_repeated == 0 && element.repetition != REPEATED) {
            here.member = element.name;
        }
        here.name = element.name;
        here.is_nested = depth > 0 || element.repetition == REPEATED;
        here.most_defined += element.repetition != REQUIRED;
        if (element.repetition == REPEATED) {
            if (here.most_repeated++ == 0) {
                here.element_defined = here.most_defined;
                here.repeated_depth = depth;
            }
        }
        if (element.n_children > 0) {
            if (++depth > MOST_DEPTH) return false;
            children_left[depth] = element.n_children;
            above[depth] = here;
            wrapping[depth] = wraps_element(&element);
        } else {
            const int type = element.type;
            here.is_text = type == TYPE_BYTE_ARRAY;
            here.is_element = element.repetition == REPEATED || wrapping[depth];
            here.is_real = type == TYPE_FLOAT || type == TYPE_DOUBLE;
            here.number_bytes = type == TYPE_INT64 || type == TYPE_DOUBLE  ? 8
                                : type == TYPE_INT32 || type == TYPE_FLOAT ? 4
                                : type == TYPE_BOOLEAN                     ? 1
                                                                           : 0;
            file->leaves[file->n_leaves++] = here;
        }
    }
    return file->n_leaves <= MOST_LEAVES;
}

/* --- groups of rows --- */

static void read_chunk(Thrift *thrift, ThriftField field, ParquetChunk *out) {
    int64_t data = 0, dictionary = 0;
    ThriftField inner = {0};
    if (field.type != THRIFT_STRUCT) thrift->failed = true;
    while (thrift_next(thrift, &inner)) {
        switch (inner.id) {
        case 4: out->codec = (int)thrift_int(thrift, inner); break;
        case 5: out->n_values = thrift_int(thrift, inner); break;
        case 7: out->n_bytes = thrift_int(thrift, inner); break;
        case 9: data = thrift_int(thrift, inner); break;
        case 11: dictionary = thrift_int(thrift, inner); break;
        default: thrift_skip(thrift, inner);
        }
    }
    out->offset = dictionary > 0 && dictionary < data ? dictionary : data;
}

/* Of the chunks' list; those in other files are refused. */
static bool read_chunks(const ParquetFile *file, ParquetGroup *group, Thrift *thrift,
                        ThriftField field, Arena *arena) {
    size_t n = thrift_list(thrift, field, THRIFT_STRUCT);
    if (n != (size_t)file->n_leaves || group->chunks) return false;
    group->chunks = ARENA_ARRAY(arena, ParquetChunk, n + 1);
    for (size_t i = 0; i < n; i++) {
        ThriftField inner = {0};
        while (thrift_next(thrift, &inner)) {
            if (inner.id == 1) return false;
            if (inner.id == 3) {
                read_chunk(thrift, inner, &group->chunks[i]);
            } else {
                thrift_skip(thrift, inner);
            }
        }
    }
    return !thrift->failed;
}

static bool read_groups(ParquetFile *file, Thrift *thrift, ThriftField field, Arena *arena) {
    int64_t row = 0;
    size_t n = thrift_list(thrift, field, THRIFT_STRUCT);
    file->groups = ARENA_ARRAY(arena, ParquetGroup, n + 1);
    for (size_t i = 0; i < n; i++) {
        ParquetGroup *group = &file->groups[file->n_groups++];
        ThriftField inner = {0};
        while (thrift_next(thrift, &inner)) {
            if (inner.id == 1) {
                if (!read_chunks(file, group, thrift, inner, arena)) return false;
            } else if (inner.id == 3) {
                group->n_rows = thrift_int(thrift, inner);
            } else {
                thrift_skip(thrift, inner);
            }
        }
        group->first_row = row;
        if (thrift->failed || group->n_rows < 0 || !group->chunks) return false;
        if (__builtin_add_overflow(row, group->n_rows, &row)) return false;
    }
    return true;
}

/* --- the file --- */

/* NULL, or what is wrong. */
static const char *read_metadata(ParquetFile *file, Arena *arena) {
    size_t length = file->length;
    const unsigned char *tail = file->bytes + length - TAIL_BYTES;
    uint32_t n_metadata;
    if (length < MAGIC_BYTES + TAIL_BYTES) return "ends too early";
    if (memcmp(tail + 4, "PARE", MAGIC_BYTES) == 0) return "is encrypted";
    if (!parquet_is(tail + 4, MAGIC_BYTES)) return "ends too early: its end is not Parquet's";
    memcpy(&n_metadata, tail, sizeof(n_metadata));
    if (n_metadata > length - MAGIC_BYTES - TAIL_BYTES) return DAMAGED;
    Thrift thrift = {.at = tail - n_metadata, .end = tail};
    ThriftField field = {0};
    while (thrift_next(&thrift, &field)) {
        bool good = true;
        if (field.id == 2 && !file->leaves) {
            good = read_schema(file, &thrift, field, arena);
        } else if (field.id == 4 && file->leaves && !file->groups) {
            good = read_groups(file, &thrift, field, arena);
        } else {
            thrift_skip(&thrift, field);
        }
        if (!good) return DAMAGED;
    }
    return thrift.failed || !file->leaves || !file->groups ? DAMAGED : NULL;
}

bool parquet_open(ParquetFile *file, Arena *arena, const char *path, const unsigned char *bytes,
                  size_t length, Diag *diag) {
    *file = (ParquetFile){.bytes = bytes, .length = length};
    const char *wrong = read_metadata(file, arena);
    if (wrong) diag_error(diag, (SourceLoc){path, 0}, "Parquet file: %s", wrong);
    return !wrong;
}

/* --- pages --- */

static const char *pack_of_codec(int codec, PackKind *out) {
    static const struct {
        PackKind pack;
        const char *wrong;
    } CODECS[] = {{PACK_NONE, NULL},
                  {PACK_SNAPPY, NULL},
                  {PACK_GZIP, NULL},
                  {PACK_NONE, "is compressed by LZO, which is not read"},
                  {PACK_NONE, "is compressed by Brotli, which is not read: Zstandard is"},
                  {PACK_NONE, "is compressed by LZ4, which is not read: Zstandard is"},
                  {PACK_ZSTD, NULL},
                  {PACK_NONE, "is compressed by LZ4, which is not read: Zstandard is"}};
    if (codec < 0 || codec >= (int)(sizeof(CODECS) / sizeof(CODECS[0]))) {
        return "is compressed in a way that is not known";
    }
    *out = CODECS[codec].pack;
    return CODECS[codec].wrong;
}

const char *parquet_pages_begin(ParquetPages *pages, const ParquetFile *file, int group, int leaf) {
    const ParquetChunk *chunk = &file->groups[group].chunks[leaf];
    int64_t length = (int64_t)file->length;
    if (chunk->offset < MAGIC_BYTES || chunk->n_bytes < 0 || chunk->offset > length ||
        chunk->n_bytes > length - chunk->offset || chunk->n_values < 0) {
        return "lies outside of the file";
    }
    *pages = (ParquetPages){.at = file->bytes + chunk->offset,
                            .end = file->bytes + chunk->offset + chunk->n_bytes,
                            .n_left = chunk->n_values};
    return pack_of_codec(chunk->codec, &pages->pack);
}

/* Of the three kinds of page, of which a header has one. */
static void read_kind(Thrift *thrift, ThriftField field, ParquetPage *page, int64_t levels[2]) {
    bool second = field.id == 8;
    ThriftField inner = {0};
    if (field.type != THRIFT_STRUCT) thrift->failed = true;
    while (thrift_next(thrift, &inner)) {
        if (inner.id == 1) {
            page->n_values = thrift_int(thrift, inner);
        } else if (inner.id == (second ? 4 : 2)) {
            page->encoding = (int)thrift_int(thrift, inner);
        } else if (field.id == 5 && (inner.id == 3 || inner.id == 4)) {
            page->level_encoding[inner.id == 3] = (int)thrift_int(thrift, inner);
        } else if (second && (inner.id == 5 || inner.id == 6)) {
            levels[inner.id == 5] = thrift_int(thrift, inner);
        } else if (second && inner.id == 7) {
            if (!thrift_bool(thrift, inner)) page->pack = PACK_NONE;
        } else {
            thrift_skip(thrift, inner);
        }
    }
}

static const char *read_page(ParquetPages *pages, ParquetPage *page) {
    Thrift thrift = {.at = pages->at, .end = pages->end};
    ThriftField field = {0};
    int64_t kind = -1, n_packed = -1, n_unpacked = -1, levels[2] = {0}; /* as in the header */
    *page = (ParquetPage){.pack = pages->pack, .n_values = -1};
    while (thrift_next(&thrift, &field)) {
        if (field.id == 1) {
            kind = thrift_int(&thrift, field);
        } else if (field.id == 2) {
            n_unpacked = thrift_int(&thrift, field);
        } else if (field.id == 3) {
            n_packed = thrift_int(&thrift, field);
        } else if (field.id == 5 || field.id == 7 || field.id == 8) {
            read_kind(&thrift, field, page, levels);
        } else {
            thrift_skip(&thrift, field);
        }
    }
    bool good = !thrift.failed && kind >= PAGE_DATA && kind <= PAGE_DATA_2 && n_packed >= 0 &&
                n_packed <= pages->end - thrift.at && n_unpacked >= 0 &&
                n_unpacked <= MOST_PAGE_BYTES && page->n_values <= MOST_PAGE_VALUES;
    good = good && (kind == PAGE_INDEX || page->n_values >= 0);
    for (int i = 0; i < 2; i++) {
        good = good && levels[i] >= 0 && levels[i] <= n_packed && levels[i] <= n_unpacked;
    }
    good = good && levels[0] + levels[1] <= n_packed && levels[0] + levels[1] <= n_unpacked;
    if (!good) return "has a page whose header is damaged";
    page->kind = (ParquetPageKind)kind;
    page->bytes = thrift.at;
    page->n_packed = (size_t)n_packed;
    page->n_unpacked = (size_t)n_unpacked;
    for (int i = 0; i < 2; i++) page->n_level_bytes[i] = (size_t)levels[i];
    pages->at = thrift.at + n_packed;
    return NULL;
}

const char *parquet_pages_next(ParquetPages *pages, ParquetPage *out, bool *out_any) {
    *out_any = false;
    while (pages->n_left > 0 && !*out_any) {
        if (pages->at == pages->end) return "has fewer values than it promises";
        const char *wrong = read_page(pages, out);
        if (wrong) return wrong;
        *out_any = out->kind != PAGE_INDEX;
        if (out->kind == PAGE_DATA || out->kind == PAGE_DATA_2) {
            if (out->n_values > pages->n_left) return "has more values than it promises";
            pages->n_left -= out->n_values;
        }
    }
    return NULL;
}
