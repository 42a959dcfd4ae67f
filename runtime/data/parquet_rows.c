#include "runtime/data/parquet_rows.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_spelled(const char *name) {
    size_t n = strlen(name);
    return utf8_valid_bytes((const unsigned char *)name, n) == n;
}

/* A value of a record at the top, in no list. */
static bool is_own_field(const ParquetLeaf *leaf) {
    return leaf->most_repeated == 0 && leaf->member && leaf->member == leaf->name;
}

bool parquet_leaf_is_readable(const ParquetLeaf *leaf) {
    if (!is_spelled(leaf->column) || !is_spelled(leaf->name)) return false;
    if (is_own_field(leaf)) return leaf->is_text;
    if (leaf->most_repeated != leaf->is_nested) return false; /* deeper ones, lists of lists */
    if (leaf->member) {                                       /* the field's own list, of texts */
        return is_spelled(leaf->member) && leaf->repeated_depth == 2 && leaf->is_element &&
               leaf->is_text;
    }
    return leaf->is_text || leaf->number_bytes > 0;
}

static json_t *made(json_t *json) {
    if (!json) memory_exhausted(0);
    return json;
}

static void put(json_t *object, const char *name, json_t *value) {
    if (json_object_set_new(object, name, made(value)) != 0) memory_exhausted(0);
}

static json_t *object_at(ParquetRows *rows, size_t row) {
    while (row >= rows->n) {
        if (rows->n == rows->room) {
            rows->room = 2 * rows->room + 64;
            rows->items = memory_grow(rows->items, rows->room * sizeof(json_t *));
        }
        rows->items[rows->n++] = made(json_object());
    }
    return rows->items[row];
}

static json_t *list_at(json_t *row, const char *column) {
    json_t *list = json_object_get(row, column);
    if (json_is_array(list)) return list;
    put(row, column, list = json_array());
    return list;
}

/* A list's record, all before it made as needed. NULL: another column of the name has texts. */
static json_t *record_at(json_t *list, size_t i) {
    while (json_array_size(list) <= i) {
        if (json_array_append_new(list, made(json_object())) != 0) memory_exhausted(0);
    }
    json_t *record = json_array_get(list, i);
    return json_is_object(record) ? record : NULL;
}

/* The record of a column at the top. */
static json_t *top_record(json_t *row, const char *column) {
    json_t *record = json_object_get(row, column);
    if (json_is_object(record)) return record;
    put(row, column, record = json_object());
    return record;
}

typedef struct Place {
    int64_t row; /* -1: before the first */
    size_t element;
} Place;

/* Whole numbers at the top stay whole. */
static json_t *number_of(const ParquetLeaf *leaf, double number) {
    const double exact = 9007199254740992; /* 2^53 */
    if (leaf->is_nested || leaf->is_real || fabs(number) > exact) return json_real(number);
    return leaf->number_bytes == 1 ? json_boolean(number != 0) : json_integer((json_int_t)number);
}

/* NULL, or what is wrong. */
static const char *put_value(json_t *object, const ParquetLeaf *leaf, const ParquetText *text) {
    if (!text->bytes) {
        put(object, is_spelled(leaf->name) ? leaf->name : "?", json_true());
        return NULL;
    }
    if (leaf->number_bytes) {
        double number = parquet_number(leaf, text);
        if (!isfinite(number)) return "has a number that is none";
        put(object, leaf->name, number_of(leaf, number));
        return NULL;
    }
    json_t *string = json_stringn((const char *)text->bytes, text->length);
    if (!string) return "has text that is not UTF-8";
    put(object, leaf->name, string);
    return NULL;
}

/* NULL, or what is wrong. */
static const char *put_element(json_t *list, const ParquetLeaf *leaf, const ParquetText *text) {
    json_t *value = json_null();
    if (text && leaf->number_bytes) {
        const double number = parquet_number(leaf, text);
        if (!isfinite(number)) return "has a number that is none";
        value = json_real(number);
    } else if (text) {
        value = json_stringn((const char *)text->bytes, text->length);
    }
    if (!value) return "has text that is not UTF-8";
    if (json_array_append_new(list, value) != 0) memory_exhausted(0);
    return NULL;
}

/* NULL, or what is wrong. */
static const char *put_values(const ParquetLeaf *leaf, const ParquetValues *values, bool texts,
                              Place *place, ParquetRows *rows) {
    const char *wrong = NULL;
    for (size_t i = 0; !wrong && i < values->n; i++) {
        if (values->repeated[i] == 0) *place = (Place){.row = place->row + 1};
        if (values->repeated[i] == 1) place->element++;
        if (place->row < 0 || place->row >= rows->n_promised) return "has other rows than promised";
        json_t *object = object_at(rows, (size_t)place->row);
        if (leaf->is_nested && values->defined[i] < leaf->element_defined) { /* empty, or null */
            const bool empty = values->defined[i] == leaf->element_defined - 1;
            if (rows->keeps_empty && leaf->is_element && texts && empty && !leaf->member) {
                list_at(object, leaf->column);
            }
            continue;
        }
        const bool there = values->defined[i] >= leaf->most_defined;
        if (leaf->is_element && texts) {
            json_t *list = leaf->member ? list_at(top_record(object, leaf->column), leaf->member)
                                        : list_at(object, leaf->column);
            wrong = put_element(list, leaf, there ? &values->texts[i] : NULL);
            continue;
        }
        if (texts && is_own_field(leaf)) {
            if (there) wrong = put_value(top_record(object, leaf->column), leaf, &values->texts[i]);
            continue;
        }
        if (leaf->is_nested) object = record_at(list_at(object, leaf->column), place->element);
        if (!object) return "is there twice, of other types";
        if (there) wrong = put_value(object, leaf, &values->texts[i]);
    }
    return wrong;
}

static const char *read_leaf(ParquetRows *rows, const ParquetFile *file, int group, int number,
                             bool texts, ParquetValues *values) {
    const ParquetLeaf *leaf = &file->leaves[number];
    ParquetValues dictionary = {0};
    ParquetPages pages;
    ParquetPage page;
    Place place = {.row = -1};
    bool any;
    if (!is_spelled(leaf->column)) return "has a name that is not UTF-8";
    const char *wrong = parquet_pages_begin(&pages, file, group, number);
    while (!wrong && !(wrong = parquet_pages_next(&pages, &page, &any)) && any) {
        if (page.kind == PAGE_DICTIONARY) {
            if (texts) wrong = parquet_page_read(&page, leaf, NULL, &dictionary);
            continue;
        }
        wrong = texts ? parquet_page_read(&page, leaf, &dictionary, values)
                      : parquet_page_levels(&page, leaf, values);
        if (!wrong) wrong = put_values(leaf, values, texts, &place, rows);
    }
    parquet_values_release(&dictionary);
    return wrong;
}

const char *parquet_rows_read(ParquetRows *rows, const ParquetFile *file, int group,
                              const ParquetUse *uses, ParquetValues *values, int *out_leaf) {
    const char *wrong = NULL;
    *rows =
        (ParquetRows){.n_promised = file->groups[group].n_rows, .keeps_empty = rows->keeps_empty};
    for (int i = 0; !wrong && i < file->n_leaves; i++) {
        if (uses[i] == PARQUET_LEFT_OUT) continue;
        *out_leaf = i;
        wrong = read_leaf(rows, file, group, i, uses[i] == PARQUET_VALUES, values);
    }
    return wrong;
}

void parquet_rows_release(ParquetRows *rows) {
    for (size_t i = 0; i < rows->n; i++) json_decref(rows->items[i]);
    free(rows->items);
    *rows = (ParquetRows){0};
}
