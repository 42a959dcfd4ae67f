/* Parquet files, as far as texts and what is said of them go: columns of strings and numbers, at
 * the top or in lists of records, whose pages are read where they are mapped
 * (https://parquet.apache.org/docs/file-format). Bytes are not trusted: what is wrong is said,
 * whatever it is.
 *
 * A file has groups of rows; of each leaf of its schema a group has a chunk, which is pages, maybe
 * with a dictionary in front. A value of a leaf has two levels: how deep it is defined (the leaf's
 * `most_defined`: there is a string; less: null, or no such list) and where it repeats (0: a new
 * row).
 */
#ifndef RUNTIME_DATA_PARQUET_H
#define RUNTIME_DATA_PARQUET_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "runtime/data/unpack.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ParquetLeaf {
    const char *column; /* the name at the top */
    const char *name;   /* the last one; the same where nothing is nested */
    const char *member; /* of a record at the top, the field of it; NULL: the top is none */
    bool is_text, is_nested;
    bool is_element;  /* it is all that an element of the innermost list has, no record */
    int number_bytes; /* 4 or 8 of a number, 1 of true and false; 0: it is none */
    bool is_real;     /* it is an f32 or f64, else an integer with a sign */
    int most_defined, most_repeated;
    int element_defined; /* what an element of the outermost list has at least */
    int repeated_depth;  /* how many names are above that which repeats in it */
} ParquetLeaf;

/* n_bytes behind `offset` in the file. */
typedef struct ParquetChunk {
    int codec;
    int64_t offset, n_bytes, n_values;
} ParquetChunk;

typedef struct ParquetGroup {
    int64_t first_row, n_rows;
    ParquetChunk *chunks; /* [n_leaves] */
} ParquetGroup;

typedef struct ParquetFile {
    const unsigned char *bytes;
    size_t length;
    ParquetLeaf *leaves;
    ParquetGroup *groups;
    int n_leaves, n_groups;
} ParquetFile;

bool parquet_is(const unsigned char *bytes, size_t length);
/* In `arena`; the bytes stay where they are. Reports. */
bool parquet_open(ParquetFile *file, Arena *arena, const char *path, const unsigned char *bytes,
                  size_t length, Diag *diag);

typedef enum ParquetPageKind {
    PAGE_DATA = 0,
    PAGE_INDEX,
    PAGE_DICTIONARY,
    PAGE_DATA_2
} ParquetPageKind;

/* As its header has it: bytes [n_packed] are n_unpacked once unpacked. */
typedef struct ParquetPage {
    ParquetPageKind kind;
    PackKind pack;
    int encoding;
    int level_encoding[2]; /* of PAGE_DATA: where it repeats, how deep it is defined */
    int64_t n_values;
    const unsigned char *bytes;
    size_t n_packed, n_unpacked;
    size_t n_level_bytes[2]; /* of PAGE_DATA_2, which does not pack them */
} ParquetPage;

typedef struct ParquetPages {
    const unsigned char *at, *end;
    int64_t n_left; /* values */
    PackKind pack;
} ParquetPages;

/* The pages of a leaf's chunk. NULL, or what is wrong. */
const char *parquet_pages_begin(ParquetPages *pages, const ParquetFile *file, int group, int leaf);
/* The next one of data, or a dictionary. *out_any: there was one. NULL, or what is wrong. */
const char *parquet_pages_next(ParquetPages *pages, ParquetPage *out, bool *out_any);

/* Or a number's bytes. */
typedef struct ParquetText {
    const unsigned char *bytes; /* NULL: null */
    size_t length;
} ParquetText;

/* Of a leaf of numbers. */
double parquet_number(const ParquetLeaf *leaf, const ParquetText *number);

/* What a page has, to be used again for another one. All zeros at first. */
typedef struct ParquetValues {
    size_t n, room;
    ParquetText *texts; /* [n] */
    unsigned char *defined, *repeated;
    uint32_t *numbers;
    unsigned char *unpacked, *made; /* what texts lie in */
    size_t unpacked_room, made_room;
} ParquetValues;

/* How deep the page's values are defined and where they repeat, of a leaf of any type; no texts.
 * NULL, or what is wrong. */
const char *parquet_page_levels(const ParquetPage *page, const ParquetLeaf *leaf,
                                ParquetValues *values);
/* The same with texts. dictionary: what its page had, or NULL. Texts lie in `values`, in the
 * dictionary or in the page. NULL, or what is wrong. */
const char *parquet_page_read(const ParquetPage *page, const ParquetLeaf *leaf,
                              const ParquetValues *dictionary, ParquetValues *values);
void parquet_values_release(ParquetValues *values);

#endif
