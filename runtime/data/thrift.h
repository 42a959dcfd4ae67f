/* Thrift's compact protocol, as Parquet's metadata have it, read in place
 * (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md). Bytes are
 * not trusted: what is wrong sets `failed`, and everything read from then on is empty. */
#ifndef RUNTIME_DATA_THRIFT_H
#define RUNTIME_DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ThriftType {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
} ThriftType;

typedef struct Thrift {
    const unsigned char *at, *end;
    bool failed;
} Thrift;

/* A field of a struct: its number and type; `id` is 0 before the first one. */
typedef struct ThriftField {
    int id;
    ThriftType type;
} ThriftField;

/* The next one of a struct, whose value is to be read or skipped; false: there is none. */
bool thrift_next(Thrift *thrift, ThriftField *field);
/* The field's value; 0 or empty, and failed, where it has another type. */
int64_t thrift_int(Thrift *thrift, ThriftField field);
bool thrift_bool(Thrift *thrift, ThriftField field);
const char *thrift_string(Thrift *thrift, ThriftField field, size_t *out_length);
/* How many elements of this type follow: they are read by thrift_next and so on for each, or, where
 * `type` is no struct, with a field of that type. */
size_t thrift_list(Thrift *thrift, ThriftField field, ThriftType type);
void thrift_skip(Thrift *thrift, ThriftField field);

#endif
