#include "runtime/tokenizer/protobuf.h"

#include <string.h>

static bool read_varint(Protobuf *message, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        const unsigned char byte = *message->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    message->failed = true;
    return false;
}

static bool read_fixed(Protobuf *message, int n_bytes, uint64_t *out) {
    *out = 0;
    if (message->end - message->at < n_bytes) {
        message->failed = true;
        return false;
    }
    for (int i = 0; i < n_bytes; i++) *out |= (uint64_t)*message->at++ << 8 * i;
    return true;
}

bool protobuf_next(Protobuf *message, ProtobufField *out) {
    uint64_t tag;
    *out = (ProtobufField){.bytes = message->at};
    if (message->failed || message->at == message->end || !read_varint(message, &tag)) return false;
    out->number = (uint32_t)(tag >> 3);
    out->wire = (ProtobufWire)(tag & 7);
    switch (out->wire) {
    case PROTOBUF_VARINT: return read_varint(message, &out->value);
    case PROTOBUF_FIXED64: return read_fixed(message, 8, &out->value);
    case PROTOBUF_FIXED32: return read_fixed(message, 4, &out->value);
    case PROTOBUF_BYTES:
        if (!read_varint(message, &tag)) return false;
        message->failed = tag > (uint64_t)(message->end - message->at);
        if (message->failed) return false;
        out->bytes = message->at;
        out->length = (size_t)tag;
        message->at += out->length;
        return true;
    }
    message->failed = true; /* groups, which nobody writes any more */
    return false;
}

float protobuf_float(const ProtobufField *field) {
    const uint32_t bits = (uint32_t)field->value;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
