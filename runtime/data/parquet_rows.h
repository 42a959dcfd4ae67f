/* Rows of a Parquet file as JSON objects, of one group of rows at a time: texts, numbers and truth
 * values at the top, lists of texts, lists of records of these, and records of texts and of lists
 * of texts. What is null is absent, but in a list of texts, and so is an empty list. */
#ifndef RUNTIME_DATA_PARQUET_ROWS_H
#define RUNTIME_DATA_PARQUET_ROWS_H

#include "runtime/data/parquet.h"

#include <jansson.h>

/* PARQUET_LEVELS: `true` where there is something, of leaves of any type: for it to be refused
 * where it is not known. */
typedef enum ParquetUse { PARQUET_LEFT_OUT, PARQUET_VALUES, PARQUET_LEVELS } ParquetUse;

/* May its use be PARQUET_VALUES? */
bool parquet_leaf_is_readable(const ParquetLeaf *leaf);

typedef struct ParquetRows {
    json_t **items; /* [n] */
    size_t n, room;
    int64_t n_promised; /* by the group */
    bool keeps_empty;   /* set by the caller: lists that are empty are there, not as if null */
} ParquetRows;

/* uses [n_leaves]; `values` is scratch. NULL, or what is wrong with which leaf. To be released
 * either way. */
const char *parquet_rows_read(ParquetRows *rows, const ParquetFile *file, int group,
                              const ParquetUse *uses, ParquetValues *values, int *out_leaf);
void parquet_rows_release(ParquetRows *rows);

#endif
