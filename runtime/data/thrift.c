#include "runtime/data/thrift.h"

enum { MOST_DEPTH = 32 };

static unsigned char take_byte(Thrift *thrift) {
    if (thrift->at == thrift->end) {
        thrift->failed = true;
        return 0;
    }
    return *thrift->at++;
}

static uint64_t take_varint(Thrift *thrift) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        unsigned char byte = take_byte(thrift);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    thrift->failed = true;
    return 0;
}

static int64_t take_signed(Thrift *thrift) {
    uint64_t value = take_varint(thrift);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static size_t left(const Thrift *thrift) {
    return (size_t)(thrift->end - thrift->at);
}

static void take_bytes(Thrift *thrift, uint64_t n) {
    if (n > left(thrift)) {
        thrift->failed = true;
        thrift->at = thrift->end;
    } else {
        thrift->at += n;
    }
}

bool thrift_next(Thrift *thrift, ThriftField *field) {
    unsigned char head = take_byte(thrift);
    int64_t id = head >> 4 ? field->id + (head >> 4) : 0;
    field->type = (ThriftType)(head & 15);
    if (field->type == THRIFT_STOP || thrift->failed) return false;
    if (id == 0) id = take_signed(thrift);
    if (id < 0 || id > INT16_MAX || field->type > THRIFT_STRUCT) thrift->failed = true;
    field->id = thrift->failed ? 0 : (int)id;
    return !thrift->failed;
}

int64_t thrift_int(Thrift *thrift, ThriftField field) {
    if (field.type == THRIFT_BYTE) return (signed char)take_byte(thrift);
    if (field.type < THRIFT_I16 || field.type > THRIFT_I64) {
        thrift->failed = true;
        return 0;
    }
    int64_t value = take_signed(thrift);
    return thrift->failed ? 0 : value;
}

bool thrift_bool(Thrift *thrift, ThriftField field) {
    if (field.type != THRIFT_TRUE && field.type != THRIFT_FALSE) thrift->failed = true;
    return field.type == THRIFT_TRUE;
}

const char *thrift_string(Thrift *thrift, ThriftField field, size_t *out_length) {
    uint64_t n = field.type == THRIFT_BINARY ? take_varint(thrift) : UINT64_MAX;
    const char *text = (const char *)thrift->at;
    take_bytes(thrift, n);
    *out_length = thrift->failed ? 0 : (size_t)n;
    return text;
}

/* An element takes a byte at least, so that what is promised ends with the bytes. */
static size_t take_list(Thrift *thrift, ThriftType *out_type) {
    unsigned char head = take_byte(thrift);
    uint64_t n = head >> 4;
    *out_type = (ThriftType)(head & 15);
    if (n == 15) n = take_varint(thrift);
    if (n > left(thrift) || *out_type > THRIFT_STRUCT) thrift->failed = true;
    return thrift->failed ? 0 : (size_t)n;
}

size_t thrift_list(Thrift *thrift, ThriftField field, ThriftType type) {
    ThriftType found = THRIFT_STOP;
    size_t n = 0;
    if (field.type == THRIFT_LIST) {
        n = take_list(thrift, &found);
    } else {
        thrift->failed = true;
    }
    if (n > 0 && found != type) thrift->failed = true;
    return thrift->failed ? 0 : n;
}

static void skip(Thrift *thrift, ThriftType type, bool in_list, int depth);

static void skip_elements(Thrift *thrift, int depth) {
    ThriftType type;
    size_t n = take_list(thrift, &type);
    for (size_t i = 0; i < n && !thrift->failed; i++) skip(thrift, type, true, depth);
}

static void skip_map(Thrift *thrift, int depth) {
    uint64_t n = take_varint(thrift);
    unsigned char types = n ? take_byte(thrift) : 0;
    if (n > left(thrift)) thrift->failed = true;
    for (uint64_t i = 0; i < n && !thrift->failed; i++) {
        skip(thrift, (ThriftType)(types >> 4), true, depth);
        skip(thrift, (ThriftType)(types & 15), true, depth);
    }
}

/* In lists a truth has a byte of its own; of a field it is the type. */
static void skip(Thrift *thrift, ThriftType type, bool in_list, int depth) {
    ThriftField field = {0};
    if (depth == MOST_DEPTH) thrift->failed = true;
    if (thrift->failed) return;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) take_byte(thrift);
        break;
    case THRIFT_BYTE: take_byte(thrift); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: take_varint(thrift); break;
    case THRIFT_DOUBLE: take_bytes(thrift, 8); break;
    case THRIFT_BINARY: take_bytes(thrift, take_varint(thrift)); break;
    case THRIFT_LIST:
    case THRIFT_SET: skip_elements(thrift, depth + 1); break;
    case THRIFT_MAP: skip_map(thrift, depth + 1); break;
    case THRIFT_STRUCT:
        while (thrift_next(thrift, &field)) skip(thrift, field.type, false, depth + 1);
        break;
    default: thrift->failed = true;
    }
}

void thrift_skip(Thrift *thrift, ThriftField field) {
    skip(thrift, field.type, false, 0);
}
