#include "runtime/launch/message.h"

#include <string.h>

static const unsigned char magic[4] = {'P', 'L', 'C', 'M'};

static void encode_u32(unsigned char out[4], uint32_t value) {
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t decode_u32(const unsigned char in[4]) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)in[i] << (8 * i);
    return value;
}

size_t message_begin(StrBuf *out, MessageKind kind) {
    unsigned char header[MESSAGE_HEADER_BYTES] = {0};
    size_t start = out->length;
    memcpy(header, magic, sizeof magic);
    header[4] = (unsigned char)kind;
    strbuf_put_bytes(out, header, sizeof header);
    return start;
}

void message_end(StrBuf *out, size_t start) {
    size_t length = out->length - start - MESSAGE_HEADER_BYTES;
    encode_u32((unsigned char *)out->text + start + 8, (uint32_t)length);
}

void message_put_u32(StrBuf *out, uint32_t value) {
    unsigned char bytes[4];
    encode_u32(bytes, value);
    strbuf_put_bytes(out, bytes, sizeof bytes);
}

void message_put_u64(StrBuf *out, uint64_t value) {
    message_put_u32(out, (uint32_t)value);
    message_put_u32(out, (uint32_t)(value >> 32));
}

void message_put_bytes(StrBuf *out, const void *bytes, size_t length) {
    message_put_u32(out, (uint32_t)length);
    if (length > 0) strbuf_put_bytes(out, bytes, length);
}

void message_put_text(StrBuf *out, const char *text) {
    message_put_bytes(out, text, strlen(text));
}

MessageReader message_reader_create(size_t max_bytes) {
    return (MessageReader){.buffer = strbuf_create(), .max_bytes = max_bytes};
}

void message_reader_destroy(MessageReader *reader) {
    strbuf_destroy(&reader->buffer);
    *reader = (MessageReader){0};
}

void message_reader_feed(MessageReader *reader, const void *bytes, size_t length) {
    if (reader->bad) return; /* nothing will be read any more: keep nothing */
    StrBuf *buffer = &reader->buffer;
    if (reader->start > 0) {
        memmove(buffer->text, buffer->text + reader->start, buffer->length - reader->start);
        buffer->length -= reader->start;
        reader->start = 0;
    }
    strbuf_put_bytes(buffer, bytes, length);
}

MessageStatus message_reader_next(MessageReader *reader, Message *out) {
    const unsigned char *at = (const unsigned char *)reader->buffer.text + reader->start;
    size_t left = reader->buffer.length - reader->start;
    if (reader->bad) return MESSAGE_BAD;
    /* What is there of the magic number must be right: garbage need not fill a header. */
    size_t n_magic = left < sizeof magic ? left : sizeof magic;
    reader->bad = n_magic > 0 && memcmp(at, magic, n_magic) != 0;
    if (reader->bad) return MESSAGE_BAD;
    if (left < MESSAGE_HEADER_BYTES) return MESSAGE_INCOMPLETE;
    uint32_t length = decode_u32(at + 8);
    reader->bad = at[4] == 0 || at[4] >= MESSAGE_KIND_END || at[5] || at[6] || at[7] ||
                  length > reader->max_bytes;
    if (reader->bad) return MESSAGE_BAD;
    if (left - MESSAGE_HEADER_BYTES < length) return MESSAGE_INCOMPLETE;
    *out = (Message){(MessageKind)at[4], at + MESSAGE_HEADER_BYTES, length};
    reader->start += MESSAGE_HEADER_BYTES + length;
    return MESSAGE_COMPLETE;
}

Cursor cursor_create(const Message *message) {
    return (Cursor){message->payload, message->length, true};
}

/* The next n bytes, NULL when there are fewer. */
static const unsigned char *take(Cursor *cursor, size_t n) {
    if (!cursor->ok || cursor->left < n) {
        cursor->ok = false;
        return NULL;
    }
    const unsigned char *at = cursor->at;
    cursor->at += n;
    cursor->left -= n;
    return at;
}

uint32_t cursor_u32(Cursor *cursor) {
    const unsigned char *at = take(cursor, 4);
    return at ? decode_u32(at) : 0;
}

uint64_t cursor_u64(Cursor *cursor) {
    uint64_t low = cursor_u32(cursor);
    return low | (uint64_t)cursor_u32(cursor) << 32;
}

const unsigned char *cursor_bytes(Cursor *cursor, size_t *out_length) {
    uint32_t length = cursor_u32(cursor);
    const unsigned char *at = take(cursor, length);
    *out_length = at ? length : 0;
    return at;
}

void cursor_text(Cursor *cursor, char *out, size_t size) {
    size_t length;
    const unsigned char *at = cursor_bytes(cursor, &length);
    if (length > size - 1) length = size - 1;
    for (size_t i = 0; i < length; i++) {
        out[i] = (char)(at[i] >= ' ' && at[i] != 0x7f ? at[i] : '?');
    }
    out[length] = '\0';
}

bool cursor_end(const Cursor *cursor) {
    return cursor->ok && cursor->left == 0;
}
