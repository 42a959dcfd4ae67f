#include "ir/base/strbuf.h"

#include "ir/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(StrBuf *buf, size_t more) {
    size_t needed = buf->length + more + 1;
    if (needed <= buf->capacity) return;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < needed) capacity *= 2;
    buf->text = memory_grow(buf->text, capacity);
    buf->capacity = capacity;
}

StrBuf strbuf_create(void) {
    StrBuf buf = {0};
    reserve(&buf, 0);
    buf.text[0] = '\0';
    return buf;
}

void strbuf_destroy(StrBuf *buf) {
    free(buf->text);
    *buf = (StrBuf){0};
}

void strbuf_put_bytes(StrBuf *buf, const void *bytes, size_t length) {
    reserve(buf, length);
    memcpy(buf->text + buf->length, bytes, length);
    buf->length += length;
    buf->text[buf->length] = '\0';
}

void strbuf_put(StrBuf *buf, const char *text) {
    strbuf_put_bytes(buf, text, strlen(text));
}

void strbuf_vprintf(StrBuf *buf, const char *format, va_list args) {
    /* Mostly it fits where it goes. */
    va_list again;
    va_copy(again, args);
    reserve(buf, 0);
    size_t room = buf->capacity - buf->length;
    int length = vsnprintf(buf->text + buf->length, room, format, args);
    if (length > 0 && (size_t)length >= room) {
        reserve(buf, (size_t)length);
        vsnprintf(buf->text + buf->length, (size_t)length + 1, format, again);
    }
    if (length > 0) buf->length += (size_t)length;
    buf->text[buf->length] = '\0';
    va_end(again);
}

void strbuf_printf(StrBuf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    strbuf_vprintf(buf, format, args);
    va_end(args);
}
