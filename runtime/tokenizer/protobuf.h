/* Protocol Buffers' encoding, read in place (https://protobuf.dev/programming-guides/encoding).
 * Bytes are not trusted: what is wrong sets `failed`, and nothing follows it. */
#ifndef RUNTIME_TOKENIZER_PROTOBUF_H
#define RUNTIME_TOKENIZER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Protobuf {
    const unsigned char *at, *end;
    bool failed;
} Protobuf;

typedef enum ProtobufWire {
    PROTOBUF_VARINT = 0,
    PROTOBUF_FIXED64 = 1,
    PROTOBUF_BYTES = 2,
    PROTOBUF_FIXED32 = 5
} ProtobufWire;

typedef struct ProtobufField {
    uint32_t number;
    ProtobufWire wire;
    uint64_t value;             /* of all but bytes */
    const unsigned char *bytes; /* [length]: a text, or a message */
    size_t length;
} ProtobufField;

/* The next field of a message; false: there is none, or `failed`. */
bool protobuf_next(Protobuf *message, ProtobufField *out);

static inline Protobuf protobuf_message(const ProtobufField *field) {
    return (Protobuf){.at = field->bytes, .end = field->bytes + field->length};
}

/* Of a field of 32 bits. */
float protobuf_float(const ProtobufField *field);

#endif
